/* store_sql: what the store's files share: the two databases, a cache of prepared statements, and
 * statements that end themselves. Only store*.c include this.
 *
 *     CLEANUP(store_query_end) struct store_query query = {.store = store};
 *     TRY(store_query(&query, STORE_JOBS, "SELECT state FROM jobs WHERE id = ?",
 *                     STORE_VALUES(store_text(id)), err));
 *     bool found = false;
 *     TRY(store_query_step(&query, &found, err));
 *
 * SQL texts are string literals: the cache knows them by address. A statement is in use from
 * store_query() to store_query_end(); the same text cannot be used twice at once. */
#pragma once
#include "common/err.h"
#include "common/mem.h"
#include "daemon/exposition.h"
#include "daemon/store.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum store_database { STORE_JOBS, STORE_METRICS, STORE_DATABASE_COUNT };

enum { STORE_STATEMENTS_MAX = 160 }; /* distinct SQL texts of the store; must() beyond */

struct store_statement {
    const char *sql; /* literal */
    sqlite3_stmt *statement;
    bool in_use;
};

/* What another process does at a database (store_guests.c). */
struct store_guest {
    bool writes;           /* it holds the lock for long */
    bool reads;            /* it keeps the log from being emptied, and that is too long */
    int64_t busy_ns;       /* monotonic time at which the wait under way began */
    int64_t checkpoint_ns; /* of the last checkpoint */
    int log_pages_max;     /* too long: more than these */
    struct {
        dev_t device;
        ino_t number; /* 0: it is not watched yet */
    } files[2];       /* the database and its log, as they were opened */
};

struct store {
    sqlite3 *databases[STORE_DATABASE_COUNT];
    int lock_fd; /* the data folder, flocked */
    struct store_statement statements[STORE_STATEMENTS_MAX];
    int statement_count;
    char point_job[LIMIT_ID_BYTES + 1]; /* job whose number is known: see store_points.c */
    int64_t point_job_number;
    const struct store_request *request; /* being handled, or NULL */
    struct exposition_histogram write_times[STORE_DATABASE_COUNT];
    struct store_guest guests[STORE_DATABASE_COUNT];
};

struct store_query {
    struct store *store;
    enum store_database database;
    struct store_statement *cached;
};

/* The value of a parameter. */
struct store_value {
    enum {
        STORE_VALUE_END, /* after the last one */
        STORE_VALUE_NULL,
        STORE_VALUE_I64,
        STORE_VALUE_F64,
        STORE_VALUE_TEXT,
        STORE_VALUE_BLOB
    } kind;
    int64_t i64;
    double f64;
    const void *bytes; /* of a text or blob, borrowed until the statement's end */
    size_t length;     /* of a blob */
};
static inline struct store_value store_end(void)
{
    return (struct store_value){.kind = STORE_VALUE_END};
}
static inline struct store_value store_null(void)
{
    return (struct store_value){.kind = STORE_VALUE_NULL};
}
static inline struct store_value store_i64(int64_t value)
{
    return (struct store_value){.kind = STORE_VALUE_I64, .i64 = value};
}
static inline struct store_value store_f64(double value)
{
    return (struct store_value){.kind = STORE_VALUE_F64, .f64 = value};
}
static inline struct store_value store_text(const char *text) /* NULL is "" */
{
    return (struct store_value){.kind = STORE_VALUE_TEXT, .bytes = text != NULL ? text : ""};
}
static inline struct store_value store_blob(const void *bytes, size_t length)
{
    return (struct store_value){.kind = STORE_VALUE_BLOB, .bytes = bytes, .length = length};
}
/* Those of a statement, all of them, in order. */
#define STORE_VALUES(...) ((const struct store_value[]){__VA_ARGS__, store_end()})

/* Begins a statement; values NULL: it has no parameters. */
int store_query(struct store_query *query, enum store_database database, const char *sql,
                const struct store_value *values, struct err *err);
void store_query_end(struct store_query *query);
int store_query_step(struct store_query *query, bool *ret_row, struct err *err);
const char *store_column_text(struct store_query *query, int column); /* never NULL */
int64_t store_column_i64(struct store_query *query, int column);
double store_column_f64(struct store_query *query, int column);

/* A statement without rows, whole. */
int store_run(struct store *store, enum store_database database, const char *sql,
              const struct store_value *values, struct err *err);
/* The id that a query of one column and at most one row gives; "" when it gives none. */
int store_query_id(struct store *store, enum store_database database, const char *sql,
                   const struct store_value *values, char ret_id[LIMIT_ID_BYTES + 1],
                   struct err *err);
/* The number that such a query gives; 0 when it gives no row. */
int store_query_i64(struct store *store, enum store_database database, const char *sql,
                    const struct store_value *values, int64_t *ret_value, struct err *err);

/* A write transaction (BEGIN IMMEDIATE) that rolls back unless it was committed. One within another
 * (store_together()) is a part of it: it is committed with that one, and rolls back all of it.
 *     CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store}; */
struct store_transaction {
    struct store *store;
    enum store_database database;
    bool open;
    bool within; /* another one */
    int64_t begun_ns;
};
int store_transaction_begin(struct store_transaction *transaction, enum store_database database,
                            struct err *err);
int store_transaction_commit(struct store_transaction *transaction, struct err *err);
void store_transaction_end(struct store_transaction *transaction);

/* The error of a failed SQLite call. */
int store_fail(sqlite3 *database, int sqlite_code, const char *call, struct err *err);
#define SQL_TRY(database, call)                                   \
    do {                                                          \
        int sql_rc_ = (call);                                     \
        if (sql_rc_ != SQLITE_OK)                                 \
            return store_fail((database), sql_rc_, #call, (err)); \
    } while (0)

/* From now on other processes hold nothing up. */
int store_guests_watch(struct store *store, struct err *err);
/* Before every write: ERR_UNAVAILABLE while the database's files are not where they were opened. */
int store_guests_find_files(struct store *store, enum store_database which, struct err *err);
/* Before a write that can wait: ERR_UNAVAILABLE while a reader keeps the log too long. */
int store_guests_admit(struct store *store, enum store_database which, struct err *err);

/* In the transaction that makes a job or file: remembers the request that asked for it. */
int store_replay_made(struct store *store, const char *id, struct err *err);

/* Inserts a file's row, in the caller's transaction (store_files.c). */
int store_file_put(struct store *store, const struct store_file *file, struct err *err);

/* Copies a database to <path>.v<version> (store_backup.c). */
int store_backup(sqlite3 *database, const char *path, int64_t version, struct err *err);
/* ERR_SETTING where the folder is on a network filesystem. */
int store_check_place(const char *data_dir, struct err *err);
const char *store_network_name(int64_t magic); /* of statfs's f_type; NULL: none of those */

/* Makes the tables of one database, or brings them up to this version (store_schema.c). */
int store_schema_migrate(sqlite3 *database, enum store_database which, const char *path,
                         struct err *err);

/* The query that store_page_start() takes, of a table whose rows may be deleted while somebody
 * pages through it. */
#define STORE_PAGE_ROW(table)                            \
    "SELECT row FROM " table " WHERE id = ?1 UNION ALL " \
    "SELECT place FROM gone WHERE id = ?1 AND kind = '" table "'"
/* Finds the row of a page's `after` in a table's query "SELECT row ... WHERE id = ?"; for an empty
 * one: the row that all rows follow in the page's order. */
int store_page_start(struct store *store, const struct store_page *page, const char *sql,
                     const char *scope, int64_t *ret_row, struct err *err);
