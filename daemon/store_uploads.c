/* store_uploads: rows of uploads in parts. The parts are the business of uploads.c. */
#include "daemon/store_sql.h"

#define STORE_UPLOAD_COLUMNS                                                          \
    "id, created_ms, expires_ms, filename, purpose, bytes, file_lifetime_s, status, " \
    "file_id, owner"

int store_upload_insert(struct store *store, const struct store_upload *upload, struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "INSERT INTO uploads (" STORE_UPLOAD_COLUMNS ") VALUES "
                     "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                     STORE_VALUES(store_text(upload->id), store_i64(upload->created_ms),
                                  store_i64(upload->expires_ms), store_text(upload->filename),
                                  store_text(upload->purpose), store_i64(upload->bytes),
                                  store_i64(upload->file_lifetime_s), store_text(upload->status),
                                  store_text(upload->file_id), store_text(upload->owner)),
                     err);
}

int store_upload_get(struct store *store, const char *id, store_upload_fn *row, void *context,
                     struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS, "SELECT " STORE_UPLOAD_COLUMNS " FROM uploads WHERE id = ?",
                    STORE_VALUES(store_text(id)), err));
    bool found = false;
    TRY(store_query_step(&query, &found, err));
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "there is no upload %s", id);
    const struct store_upload upload = {
        .id = store_column_text(&query, 0),
        .created_ms = store_column_i64(&query, 1),
        .expires_ms = store_column_i64(&query, 2),
        .filename = store_column_text(&query, 3),
        .purpose = store_column_text(&query, 4),
        .bytes = store_column_i64(&query, 5),
        .file_lifetime_s = store_column_i64(&query, 6),
        .status = store_column_text(&query, 7),
        .file_id = store_column_text(&query, 8),
        .owner = store_column_text(&query, 9),
    };
    return row(context, &upload, err);
}

static int store_upload_move(struct store *store, const char *id, const char *status,
                             const char *file_id, struct err *err)
{
    TRY(store_run(store, STORE_JOBS,
                  "UPDATE uploads SET status = ?, file_id = ? WHERE id = ? AND "
                  "status = 'pending'",
                  STORE_VALUES(store_text(status), store_text(file_id), store_text(id)), err));
    if (sqlite3_changes(store->databases[STORE_JOBS]) == 1)
        return 0;
    return err_set(err, ERR_BAD_STATE, "upload %s is not pending any more", id);
}

int store_upload_end(struct store *store, const char *id, const char *status, struct err *err)
{
    return store_upload_move(store, id, status, "", err);
}

int store_upload_complete(struct store *store, const char *id, const struct store_file *file,
                          struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(store_upload_move(store, id, "completed", file->id, err));
    TRY(store_file_put(store, file, err));
    return store_transaction_commit(&transaction, err);
}

int store_upload_expired(struct store *store, int64_t now_ms, char ret_id[LIMIT_ID_BYTES + 1],
                         struct err *err)
{
    return store_query_id(
        store, STORE_JOBS,
        "SELECT id FROM uploads WHERE expires_ms <= ? AND status = 'pending' LIMIT 1",
        STORE_VALUES(store_i64(now_ms)), ret_id, err);
}

int store_uploads_forget(struct store *store, int64_t before_ms, struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "DELETE FROM uploads WHERE expires_ms <= ? AND status <> 'pending'",
                     STORE_VALUES(store_i64(before_ms)), err);
}
