/* store_tokens: rows of tokens. The tokens themselves are never here, only keyed hashes of them. */
#include "daemon/store_sql.h"

int store_token_put(struct store *store, const struct store_token *token, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "INSERT OR REPLACE INTO tokens (name, hash, scopes, created_ms) "
                    "VALUES (?, ?, ?, ?)",
                    err));
    store_bind_text(&query, token->name);
    store_bind_blob(&query, token->hash, STORE_HASH_BYTES);
    store_bind_text(&query, token->scopes);
    store_bind_i64(&query, token->created_ms);
    return store_query_run(&query, err);
}

int store_token_find(struct store *store, const uint8_t hash[STORE_HASH_BYTES], store_token_fn *row,
                     void *context, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT name, hash, scopes, created_ms FROM tokens WHERE hash = ? "
                    "AND length(hash) = 32",
                    err));
    store_bind_blob(&query, hash, STORE_HASH_BYTES);
    bool found = false;
    TRY(store_query_step(&query, &found, err));
    if (!found)
        return err_set(err, ERR_AUTH, "this API token is not known");
    const struct store_token token = {
        .name = store_column_text(&query, 0),
        .hash = sqlite3_column_blob(query.cached->statement, 1),
        .scopes = store_column_text(&query, 2),
        .created_ms = store_column_i64(&query, 3),
    };
    return row(context, &token, err);
}
