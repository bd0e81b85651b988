/* store_tokens: rows of tokens. The tokens themselves are never here, only keyed hashes of them and
 * their public prefix, by which they are found. A session is a row with a parent. */
#include "common/must.h"
#include "daemon/store_sql.h"

#define STORE_TOKEN_COLUMNS                                                               \
    "id, parent, prefix, hash, name, user, scope, created_ms, expires_ms, last_used_ms, " \
    "revoked_ms"

static struct store_token store_token_row(struct store_query *query)
{
    return (struct store_token){
        .id = store_column_text(query, 0),
        .parent = store_column_text(query, 1),
        .prefix = store_column_text(query, 2),
        .hash = sqlite3_column_blob(query->cached->statement, 3),
        .name = store_column_text(query, 4),
        .user = store_column_text(query, 5),
        .scope = store_column_text(query, 6),
        .created_ms = store_column_i64(query, 7),
        .expires_ms = store_column_i64(query, 8),
        .last_used_ms = store_column_i64(query, 9),
        .revoked_ms = store_column_i64(query, 10),
    };
}

static int store_token_upsert(struct store *store, const struct store_token *token, struct err *err)
{
    return store_run(
        store, STORE_JOBS,
        "INSERT INTO tokens (id, parent, prefix, hash, name, user, scope, created_ms, "
        "expires_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
        "prefix = excluded.prefix, hash = excluded.hash, "
        "created_ms = excluded.created_ms, last_used_ms = 0 "
        "WHERE hash <> excluded.hash",
        STORE_VALUES(store_text(token->id), store_text(token->parent), store_text(token->prefix),
                     store_blob(token->hash, STORE_HASH_BYTES), store_text(token->name),
                     store_text(token->user), store_text(token->scope),
                     store_i64(token->created_ms), store_i64(token->expires_ms)),
        err);
}

int store_token_put(struct store *store, const struct store_token *token, struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    TRY(store_token_upsert(store, token, err));
    if (sqlite3_changes(store->databases[STORE_JOBS]) > 0) /* a new one has no sessions yet */
        TRY(store_run(store, STORE_JOBS, "DELETE FROM tokens WHERE parent = ?",
                      STORE_VALUES(store_text(token->id)), err));
    return store_transaction_commit(&transaction, err);
}

int store_token_find(struct store *store, const char *prefix, store_token_fn *row, void *context,
                     struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT " STORE_TOKEN_COLUMNS " FROM tokens WHERE prefix = ?",
                    STORE_VALUES(store_text(prefix)), err));
    bool found = false;
    TRY(store_query_step(&query, &found, err));
    if (!found)
        return err_set(err, ERR_AUTH, "the token is not known");
    const struct store_token token = store_token_row(&query);
    return row(context, &token, err);
}

int store_tokens_list(struct store *store, const struct store_page *page, store_token_fn *row,
                      void *context, bool *ret_has_more, struct err *err)
{
    int64_t start = 0;
    must(page->order == STORE_NEWEST_FIRST);
    TRY(store_page_start(store, page, "SELECT row FROM tokens WHERE id = ?", NULL, &start, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT " STORE_TOKEN_COLUMNS " FROM tokens WHERE row < ? AND parent = '' "
                    "ORDER BY row DESC LIMIT ?",
                    STORE_VALUES(store_i64(start), store_i64(page->limit + 1)), err));
    bool found = false;
    for (int64_t given = 0;; given++) {
        TRY(store_query_step(&query, &found, err));
        if (!found || given == page->limit)
            break;
        const struct store_token token = store_token_row(&query);
        TRY(row(context, &token, err));
    }
    *ret_has_more = found;
    return 0;
}

int store_tokens_count(struct store *store, int64_t now_ms, int64_t *ret_count, struct err *err)
{
    return store_query_i64(store, STORE_JOBS,
                           "SELECT count(*) FROM tokens WHERE revoked_ms = 0 AND "
                           "(expires_ms = 0 OR expires_ms > ?)",
                           STORE_VALUES(store_i64(now_ms)), ret_count, err);
}

int store_token_counts(struct store *store, const char *id, int64_t now_ms, bool *ret_counts,
                       struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT 1 FROM tokens WHERE id = ? AND revoked_ms = 0 AND "
                    "(expires_ms = 0 OR expires_ms > ?)",
                    STORE_VALUES(store_text(id), store_i64(now_ms)), err));
    return store_query_step(&query, ret_counts, err);
}

int store_token_used(struct store *store, const char *id, int64_t now_ms, struct err *err)
{
    return store_run(store, STORE_JOBS, "UPDATE tokens SET last_used_ms = ? WHERE id = ?",
                     STORE_VALUES(store_i64(now_ms), store_text(id)), err);
}

int store_token_revoke(struct store *store, const char *id, int64_t now_ms, struct err *err)
{
    TRY(store_run(store, STORE_JOBS,
                  "UPDATE tokens SET revoked_ms = iif(revoked_ms = 0, ?1, revoked_ms) "
                  "WHERE id = ?2 OR parent = ?2",
                  STORE_VALUES(store_i64(now_ms), store_text(id)), err));
    if (sqlite3_changes(store->databases[STORE_JOBS]) == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no token %s", id);
    return 0;
}

int store_tokens_prune(struct store *store, int64_t now_ms, struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "DELETE FROM tokens WHERE "
                     "(parent <> '' AND (expires_ms <= ?1 OR revoked_ms > 0)) OR "
                     "(expires_ms > 0 AND expires_ms <= ?1 - ?2) OR "
                     "(revoked_ms > 0 AND revoked_ms <= ?1 - ?2)",
                     STORE_VALUES(store_i64(now_ms), store_i64(STORE_TOKENS_KEPT_MS)), err);
}
