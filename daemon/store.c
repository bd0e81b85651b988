/* store: opening, closing, and the statements of store_sql.h.
 *
 * One connection each, which alone writes and checkpoints, in WAL mode: that is fast, keeps readers
 * of other processes (sqlite3 on the command line) out of the way, and stays clear of SQLite's
 * WAL-reset fault (fixed in 3.51.3), which needs two connections that write at once.
 *
 * A clean close removes the -wal file. One that is there at the next open tells of an unclean stop:
 * then quick_check runs first. */
#include "daemon/store.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"
#include "common/must.h"
#include "daemon/store_sql.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { STORE_LOCK_MS = 2000 }; /* that a child may take to its first step, and longer */

int store_fail(sqlite3 *database, int sqlite_code, const char *call, struct err *err)
{
    enum err_code code = ERR_IO;
    switch (sqlite_code & 0xff) {
    case SQLITE_NOMEM:
        code = ERR_NOMEM;
        break;
    case SQLITE_FULL:
        code = ERR_NO_SPACE;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        code = ERR_CORRUPT;
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        code = ERR_UNAVAILABLE;
        break;
    case SQLITE_CONSTRAINT:
    case SQLITE_MISUSE:
    case SQLITE_ERROR:
        code = ERR_INTERNAL;
        break;
    }
    const char *path = database != NULL ? sqlite3_db_filename(database, "main") : NULL;
    if (code == ERR_UNAVAILABLE && path != NULL)
        return err_set(err, code,
                       "%s: another process writes to the database and holds its lock; end it, or "
                       "try again (%s)",
                       path, call);
    return err_set(err, code, "%s: %s (%s)", path != NULL ? path : "store",
                   database != NULL ? sqlite3_errmsg(database) : sqlite3_errstr(sqlite_code), call);
}

static int store_quick_check(void *ret_said, int columns, char **values, char **names)
{
    (void)names;
    struct err *said = ret_said; /* its text takes the first fault */
    if (columns == 1 && values[0] != NULL && strcmp(values[0], "ok") != 0)
        (void)err_set(said, ERR_CORRUPT, "%.200s", values[0]);
    return 0;
}

/* After an unclean stop. */
static int store_check_sound(sqlite3 *database, struct err *err)
{
    struct err said = {.code = ERR_NONE};
    SQL_TRY(database,
            sqlite3_exec(database, "PRAGMA quick_check(1)", store_quick_check, &said, NULL));
    return said.code == ERR_NONE ? 0 : err_set(err, ERR_CORRUPT, "quick_check: %s", said.text);
}

/* The same, told: of gigabytes it takes a while, and nothing is served meanwhile. */
static int store_check_told(sqlite3 *database, const char *path, struct err *err)
{
    int64_t bytes = 0, begun_ms = clock_monotonic_ms();
    TRY(io_file_size(path, &bytes, err));
    log_info("store", "%s was not closed by the daemon before: its %lld MiB are being checked",
             path, (long long)bytes >> 20);
    TRY(store_check_sound(database, err));
    log_info("store", "%s is sound (%.1f s)", path,
             (double)(clock_monotonic_ms() - begun_ms) * 1e-3);
    return 0;
}

static int store_open_file(sqlite3 **database, const char *path, const char *synchronous,
                           bool unclean, struct err *err)
{
    int code = sqlite3_open_v2(path, database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK)
        return store_fail(*database, code, "open", err);
    SQL_TRY(*database, sqlite3_busy_timeout(*database, 5000));
    SQL_TRY(*database, sqlite3_exec(*database,
                                    "PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON;"
                                    "PRAGMA trusted_schema = OFF; PRAGMA mmap_size = 0;",
                                    NULL, NULL, NULL));
    SQL_TRY(*database, sqlite3_exec(*database, synchronous, NULL, NULL, NULL));
    return unclean ? store_check_told(*database, path, err) : 0;
}

static int store_open_database(struct store *store, enum store_database which, const char *path,
                               const char *synchronous, struct err *err)
{
    CLEANUP(mem_free_ptr) char *log_path = mem_printf("%s-wal", path);
    if (log_path == NULL)
        return mem_fail(err, strlen(path), "a path");
    bool unclean = io_exists(log_path);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* SQLite would make it 0644 */
    if (fd < 0)
        return err_set_errno(err, errno, "%s", path);
    (void)close(fd); /* nothing was written */
    struct err why;
    int rc = store_open_file(&store->databases[which], path, synchronous, unclean, &why);
    if (rc == -ERR_CORRUPT)
        return err_set(err, ERR_CORRUPT,
                       "%s is damaged (%.300s): put a backup of it in its place, or save what can "
                       "be by `sqlite3 %s .recover`%s",
                       path, why.text, path,
                       which == STORE_METRICS ? "; moved away, only metric points are lost" : "");
    if (rc != 0) {
        *err = why;
        return rc;
    }
    return store_schema_migrate(store->databases[which], which, path, err);
}

/* The folder itself: a file in it could be removed, and a second daemon would lock a new one. A
 * child of a daemon that was killed has its lock until it runs (host_spawn.h), and the sockets that
 * the next daemon wants: it is waited for. */
static int store_lock(struct store *store, const char *data_dir, struct err *err)
{
    const int64_t end_ms = clock_monotonic_ms() + STORE_LOCK_MS;
    store->lock_fd = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->lock_fd < 0)
        return err_set_errno(err, errno, "%s", data_dir);
    while (flock(store->lock_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK &&
           clock_monotonic_ms() < end_ms)
        clock_sleep_ms(20);
    if (flock(store->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return err_set(err, ERR_IN_USE,
                       "%s is in use by another daemon; stop that one, or give another --data-dir",
                       data_dir);
    return err_set_errno(err, errno, "%s", data_dir);
}

static int store_name_metrics(struct store *store, struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_METRICS, err));
    static const struct {
        const char *name, *unit;
    } rows[] = {
#define X(id, metric, metric_unit, scope, label, doc) {.name = metric, .unit = metric_unit},
#include "api/metrics.def"
#undef X
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        TRY(store_run(
            store, STORE_METRICS,
            "INSERT OR REPLACE INTO metric_names (number, name, unit) VALUES (?, ?, ?)",
            STORE_VALUES(store_i64((int64_t)i), store_text(rows[i].name), store_text(rows[i].unit)),
            err));
    }
    return store_transaction_commit(&transaction, err);
}

static int store_open_all(struct store *store, const char *data_dir, struct err *err)
{
    TRY(store_check_place(data_dir, err));
    TRY(store_lock(store, data_dir, err));
    CLEANUP(mem_free_ptr) char *jobs = io_join(data_dir, "jobs.db");
    CLEANUP(mem_free_ptr) char *metrics = io_join(data_dir, "metrics.db");
    if (jobs == NULL || metrics == NULL)
        return mem_fail(err, strlen(data_dir), "a path");
    TRY(store_open_database(store, STORE_JOBS, jobs, "PRAGMA synchronous = FULL", err));
    TRY(store_open_database(store, STORE_METRICS, metrics, "PRAGMA synchronous = NORMAL", err));
    TRY(store_name_metrics(store, err));
    return store_guests_watch(store, err);
}

int store_open(const char *data_dir, struct store **ret_store, struct err *err)
{
    struct store *store = mem_new(1, sizeof *store);
    if (store == NULL)
        return mem_fail(err, sizeof *store, "the store");
    store->lock_fd = -1;
    int rc = store_open_all(store, data_dir, err);
    if (rc != 0) {
        store_close(store);
        return rc;
    }
    *ret_store = store;
    return 0;
}

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    for (int i = 0; i < store->statement_count; i++) {
        must(!store->statements[i].in_use);
        (void)sqlite3_finalize(store->statements[i].statement); /* repeats an error told before */
    }
    for (int i = 0; i < STORE_DATABASE_COUNT; i++)
        must(sqlite3_close(store->databases[i]) == SQLITE_OK);
    if (store->lock_fd >= 0)
        (void)close(store->lock_fd); /* lets the lock go */
    mem_free(store);
}

void store_set_request(struct store *store, const struct store_request *request)
{
    store->request = request;
}

int store_check_files(struct store *store, struct err *err)
{
    TRY(store_guests_find_files(store, STORE_JOBS, err));
    return store_guests_find_files(store, STORE_METRICS, err);
}

int store_check(struct store *store, struct err *err)
{
    int64_t unused = 0;
    TRY(store_check_files(store, err));
    TRY(store_query_i64(store, STORE_JOBS, "SELECT count(*) FROM tokens", NULL, &unused, err));
    return store_query_i64(store, STORE_METRICS, "SELECT count(*) FROM metric_names", NULL, &unused,
                           err);
}

static int store_bind(sqlite3_stmt *statement, int number, const struct store_value *value)
{
    switch (value->kind) {
    case STORE_VALUE_I64:
        return sqlite3_bind_int64(statement, number, value->i64);
    case STORE_VALUE_F64:
        return sqlite3_bind_double(statement, number, value->f64);
    case STORE_VALUE_TEXT:
        return sqlite3_bind_text(statement, number, value->bytes, -1, SQLITE_STATIC);
    case STORE_VALUE_BLOB:
        return sqlite3_bind_blob64(statement, number, value->bytes, value->length, SQLITE_STATIC);
    case STORE_VALUE_NULL:
    case STORE_VALUE_END:
        break;
    }
    return sqlite3_bind_null(statement, number);
}

int store_query(struct store_query *query, enum store_database database, const char *sql,
                const struct store_value *values, struct err *err)
{
    struct store *store = query->store;
    sqlite3 *handle = store->databases[database];
    query->database = database;
    for (int i = 0; i < store->statement_count; i++) {
        if (store->statements[i].sql == sql)
            query->cached = &store->statements[i];
    }
    if (query->cached == NULL) {
        must(store->statement_count < STORE_STATEMENTS_MAX);
        struct store_statement *fresh = &store->statements[store->statement_count];
        SQL_TRY(handle, sqlite3_prepare_v3(handle, sql, -1, SQLITE_PREPARE_PERSISTENT,
                                           &fresh->statement, NULL));
        fresh->sql = sql;
        store->statement_count++;
        query->cached = fresh;
    }
    must(!query->cached->in_use);
    query->cached->in_use = true;
    int bound = 0;
    for (; values != NULL && values[bound].kind != STORE_VALUE_END; bound++)
        SQL_TRY(handle, store_bind(query->cached->statement, bound + 1, &values[bound]));
    must(bound == sqlite3_bind_parameter_count(query->cached->statement));
    return 0;
}

void store_query_end(struct store_query *query)
{
    if (query->cached == NULL)
        return;
    (void)sqlite3_reset(query->cached->statement);          /* repeats an error told by step */
    (void)sqlite3_clear_bindings(query->cached->statement); /* cannot fail */
    query->cached->in_use = false;
    query->cached = NULL;
}

int store_query_step(struct store_query *query, bool *ret_row, struct err *err)
{
    sqlite3 *handle = query->store->databases[query->database];
    int code = sqlite3_step(query->cached->statement);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        return store_fail(handle, code, query->cached->sql, err);
    *ret_row = code == SQLITE_ROW;
    return 0;
}

static void store_count_write(struct store *store, enum store_database database, int64_t begun_ns)
{
    exposition_observe(&store->write_times[database],
                       (double)(clock_monotonic_ns() - begun_ns) * 1e-9);
}

const struct exposition_histogram *store_write_times(const struct store *store, int database)
{
    must(database >= 0 && database < STORE_DATABASE_COUNT);
    return &store->write_times[database];
}

int store_run(struct store *store, enum store_database database, const char *sql,
              const struct store_value *values, struct err *err)
{
    bool row = false;
    bool alone = sqlite3_get_autocommit(store->databases[database]) != 0;
    int64_t begun_ns = clock_monotonic_ns();
    if (alone)
        TRY(store_guests_find_files(store, database, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, database, sql, values, err));
    TRY(store_query_step(&query, &row, err));
    must(!row);
    if (alone) /* else its transaction counts */
        store_count_write(store, database, begun_ns);
    return 0;
}

const char *store_column_text(struct store_query *query, int column)
{
    const char *text = (const char *)sqlite3_column_text(query->cached->statement, column);
    return text != NULL ? text : "";
}

int64_t store_column_i64(struct store_query *query, int column)
{
    return sqlite3_column_int64(query->cached->statement, column);
}

double store_column_f64(struct store_query *query, int column)
{
    return sqlite3_column_double(query->cached->statement, column);
}

int store_query_id(struct store *store, enum store_database database, const char *sql,
                   const struct store_value *values, char ret_id[LIMIT_ID_BYTES + 1],
                   struct err *err)
{
    bool row = false;
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, database, sql, values, err));
    TRY(store_query_step(&query, &row, err));
    (void)snprintf(ret_id, LIMIT_ID_BYTES + 1, "%s", row ? store_column_text(&query, 0) : "");
    return 0;
}

int store_query_i64(struct store *store, enum store_database database, const char *sql,
                    const struct store_value *values, int64_t *ret_value, struct err *err)
{
    bool row = false;
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, database, sql, values, err));
    TRY(store_query_step(&query, &row, err));
    *ret_value = row ? store_column_i64(&query, 0) : 0;
    return 0;
}

int store_transaction_begin(struct store_transaction *transaction, enum store_database database,
                            struct err *err)
{
    sqlite3 *handle = transaction->store->databases[database];
    transaction->begun_ns = clock_monotonic_ns();
    TRY(store_guests_find_files(transaction->store, database, err));
    transaction->within = sqlite3_get_autocommit(handle) == 0;
    if (!transaction->within)
        SQL_TRY(handle, sqlite3_exec(handle, "BEGIN IMMEDIATE", NULL, NULL, NULL));
    transaction->database = database;
    transaction->open = true;
    return 0;
}

int store_transaction_commit(struct store_transaction *transaction, struct err *err)
{
    sqlite3 *handle = transaction->store->databases[transaction->database];
    must(transaction->open);
    if (!transaction->within) {
        SQL_TRY(handle, sqlite3_exec(handle, "COMMIT", NULL, NULL, NULL));
        store_count_write(transaction->store, transaction->database, transaction->begun_ns);
    }
    transaction->open = false;
    return 0;
}

void store_transaction_end(struct store_transaction *transaction)
{
    if (!transaction->open)
        return;
    sqlite3 *handle = transaction->store->databases[transaction->database];
    (void)sqlite3_exec(handle, "ROLLBACK", NULL, NULL, NULL); /* the error before it counts */
    transaction->open = false;
}

int store_together(struct store *store, store_write_fn *write, void *context, struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(write(context, err));
    return store_transaction_commit(&transaction, err);
}

int store_page_start(struct store *store, const struct store_page *page, const char *sql,
                     const char *scope, int64_t *ret_row, struct err *err)
{
    must(page->limit >= 0 && page->limit <= LIMIT_PAGE_ROWS);
    if (page->after_row > 0) {
        *ret_row = page->after_row;
        return 0;
    }
    if (page->after == NULL || page->after[0] == '\0') {
        *ret_row = page->order == STORE_NEWEST_FIRST ? INT64_MAX : 0;
        return 0;
    }
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS, sql,
                    scope != NULL ? STORE_VALUES(store_text(page->after), store_text(scope))
                                  : STORE_VALUES(store_text(page->after)),
                    err));
    bool row = false;
    TRY(store_query_step(&query, &row, err));
    if (!row)
        return err_set_field(err, ERR_INVALID_VALUE, "after", "\"after\": there is no %s",
                             page->after);
    *ret_row = store_column_i64(&query, 0);
    return 0;
}
