/* store_replays: rows of replays. A row is found by its key, or where it has none by the hash of
 * the request's body. What a request made is remembered in the transaction that makes it
 * (store_replay_made), so there is no moment at which one is there without the other. */
#include "daemon/store_sql.h"

/* Rows beyond these: the oldest go. A day of a user's scripts; 64 KiB each at most. */
enum { STORE_REPLAYS_MAX = 10000 };

int store_replay_find(struct store *store, const struct store_replay *replay, store_replay_fn *row,
                      void *context, bool *ret_found, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    replay->key[0] != '\0'
                        ? "SELECT hash, made, status, body FROM replays WHERE caller = ?1 AND "
                          "target = ?2 AND key = ?3 AND key <> '' AND expires_ms > ?4"
                        : "SELECT hash, made, status, body FROM replays WHERE caller = ?1 AND "
                          "target = ?2 AND hash = ?3 AND key = '' AND expires_ms > ?4 "
                          "ORDER BY row DESC LIMIT 1",
                    STORE_VALUES(store_text(replay->caller), store_text(replay->target),
                                 store_text(replay->key[0] != '\0' ? replay->key : replay->hash),
                                 store_i64(replay->now_ms)),
                    err));
    TRY(store_query_step(&query, ret_found, err));
    if (!*ret_found)
        return 0;
    const struct store_replayed found = {
        .hash = store_column_text(&query, 0),
        .made = store_column_text(&query, 1),
        .status = (int)store_column_i64(&query, 2),
        .body = store_column_text(&query, 3),
    };
    return row(context, &found, err);
}

static int store_replays_prune(struct store *store, int64_t now_ms, struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "DELETE FROM replays WHERE expires_ms <= ? OR "
                     "row <= (SELECT max(row) FROM replays) - ?",
                     STORE_VALUES(store_i64(now_ms), store_i64(STORE_REPLAYS_MAX)), err);
}

int store_replay_put(struct store *store, const struct store_replay *replay,
                     const struct store_replayed *answer, struct err *err)
{
    TRY(store_replays_prune(store, replay->now_ms, err));
    return store_run(store, STORE_JOBS,
                     "INSERT INTO replays (caller, target, key, hash, expires_ms, made, status, "
                     "body) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                     "ON CONFLICT (caller, target, key) WHERE key <> '' DO NOTHING",
                     STORE_VALUES(store_text(replay->caller), store_text(replay->target),
                                  store_text(replay->key), store_text(replay->hash),
                                  store_i64(replay->expires_ms), store_text(answer->made),
                                  store_i64(answer->status), store_text(answer->body)),
                     err);
}

int store_replay_made(struct store *store, const char *id, struct err *err)
{
    if (store->request == NULL || store->request->replay == NULL)
        return 0;
    return store_replay_put(store, store->request->replay,
                            &(struct store_replayed){.made = id, .status = 200}, err);
}
