/* store_files: rows of files. Their bytes are the business of the code that streams them. */
#include "common/mem.h"
#include "common/must.h"
#include "daemon/store_sql.h"

#include <stdio.h>
#include <string.h>

#define STORE_FILE_COLUMNS \
    "id, created_ms, filename, purpose, bytes, status, status_details, hash, owner, expires_ms"

static struct store_file store_file_row(struct store_query *query)
{
    return (struct store_file){
        .id = store_column_text(query, 0),
        .created_ms = store_column_i64(query, 1),
        .filename = store_column_text(query, 2),
        .purpose = store_column_text(query, 3),
        .bytes = store_column_i64(query, 4),
        .status = store_column_text(query, 5),
        .status_details = store_column_text(query, 6),
        .hash = store_column_text(query, 7),
        .owner = store_column_text(query, 8),
        .expires_ms = store_column_i64(query, 9),
    };
}

int store_file_put(struct store *store, const struct store_file *file, struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "INSERT INTO files (" STORE_FILE_COLUMNS ") VALUES "
                     "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                     STORE_VALUES(store_text(file->id), store_i64(file->created_ms),
                                  store_text(file->filename), store_text(file->purpose),
                                  store_i64(file->bytes), store_text(file->status),
                                  store_text(file->status_details), store_text(file->hash),
                                  store_text(file->owner), store_i64(file->expires_ms)),
                     err);
}

int store_file_insert(struct store *store, const struct store_file *file, struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(store_file_put(store, file, err));
    TRY(store_replay_made(store, file->id, err));
    return store_transaction_commit(&transaction, err);
}

static int store_file_missing(const char *id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "there is no file %s", id);
}

int store_file_get(struct store *store, const char *id, store_file_fn *row, void *context,
                   struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS, "SELECT " STORE_FILE_COLUMNS " FROM files WHERE id = ?",
                    STORE_VALUES(store_text(id)), err));
    bool found = false;
    TRY(store_query_step(&query, &found, err));
    if (!found)
        return store_file_missing(id, err);
    struct store_file file = store_file_row(&query);
    return row(context, &file, err);
}

static int files_copy_name(void *context, const struct store_file *file, struct err *err)
{
    *(char **)context = mem_strdup(file->filename);
    return *(char **)context != NULL ? 0 : mem_fail(err, strlen(file->filename), "a name");
}

int store_file_name(struct store *store, const char *id, char **ret_name, struct err *err)
{
    return store_file_get(store, id, files_copy_name, ret_name, err);
}

static int store_take_file_owner(void *ret_owner, const struct store_file *file, struct err *err)
{
    (void)err;
    (void)snprintf(ret_owner, LIMIT_NAME_BYTES + 1, "%s", file->owner);
    return 0;
}

int store_file_owner(struct store *store, const char *id, char ret_owner[LIMIT_NAME_BYTES + 1],
                     struct err *err)
{
    return store_file_get(store, id, store_take_file_owner, ret_owner, err);
}

int store_files_list(struct store *store, const char *owner, const char *purpose,
                     const struct store_page *page, store_file_fn *row, void *context,
                     bool *ret_has_more, struct err *err)
{
    int64_t start = 0;
    TRY(store_page_start(store, page, STORE_PAGE_ROW("files"), NULL, &start, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    page->order == STORE_NEWEST_FIRST
                        ? "SELECT " STORE_FILE_COLUMNS " FROM files WHERE row < ?1 AND "
                          "(?2 = '' OR purpose = ?2) AND (?4 = '' OR owner = ?4) "
                          "ORDER BY row DESC LIMIT ?3"
                        : "SELECT " STORE_FILE_COLUMNS " FROM files WHERE row > ?1 AND "
                          "(?2 = '' OR purpose = ?2) AND (?4 = '' OR owner = ?4) "
                          "ORDER BY row LIMIT ?3",
                    STORE_VALUES(store_i64(start), store_text(purpose), store_i64(page->limit + 1),
                                 store_text(owner)),
                    err));
    bool found = false;
    for (int64_t given = 0;; given++) {
        TRY(store_query_step(&query, &found, err));
        if (!found || given == page->limit)
            break;
        struct store_file file = store_file_row(&query);
        TRY(row(context, &file, err));
    }
    *ret_has_more = found;
    return 0;
}

int store_files_usage(struct store *store, const char *owner, int64_t *ret_files,
                      int64_t *ret_bytes, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT count(*), coalesce(sum(bytes), 0) FROM ("
                    "SELECT bytes FROM files WHERE owner = ?1 UNION ALL "
                    "SELECT bytes FROM uploads WHERE owner = ?1 AND status = 'pending')",
                    STORE_VALUES(store_text(owner)), err));
    bool found = false;
    TRY(store_query_step(&query, &found, err));
    must(found);
    *ret_files = store_column_i64(&query, 0);
    *ret_bytes = store_column_i64(&query, 1);
    return 0;
}

int store_file_set_status(struct store *store, const char *id, const char *status,
                          const char *details, struct err *err)
{
    TRY(store_run(store, STORE_JOBS, "UPDATE files SET status = ?, status_details = ? WHERE id = ?",
                  STORE_VALUES(store_text(status), store_text(details), store_text(id)), err));
    if (sqlite3_changes(store->databases[STORE_JOBS]) != 1)
        return store_file_missing(id, err);
    return 0;
}

int store_file_delete(struct store *store, const char *id, struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(store_run(store, STORE_JOBS,
                  "UPDATE jobs SET result_file = '' WHERE result_file <> '' AND result_file = "
                  "?",
                  STORE_VALUES(store_text(id)), err));
    TRY(store_run(store, STORE_JOBS, "DELETE FROM files WHERE id = ?", STORE_VALUES(store_text(id)),
                  err));
    if (sqlite3_changes(store->databases[STORE_JOBS]) != 1)
        return store_file_missing(id, err);
    return store_transaction_commit(&transaction, err);
}

int store_file_expired(struct store *store, int64_t now_ms, char ret_id[LIMIT_ID_BYTES + 1],
                       struct err *err)
{
    return store_query_id(
        store, STORE_JOBS,
        "SELECT id FROM files AS f WHERE expires_ms > 0 AND expires_ms <= ? AND NOT "
        "EXISTS (SELECT 1 FROM jobs WHERE (training_file = f.id OR validation_file = "
        "f.id) AND state NOT IN ('succeeded', 'failed', 'cancelled')) LIMIT 1",
        STORE_VALUES(store_i64(now_ms)), ret_id, err);
}
