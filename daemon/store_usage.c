/* store_usage: what each user has used of the machine, and whether the queue is drained. */
#include "daemon/store_sql.h"

int store_usage_put(struct store *store, const struct store_usage *usage, struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "INSERT INTO usage (owner, used_s, total_s, at_ms) VALUES (?, ?, ?, ?) "
                     "ON CONFLICT (owner) DO UPDATE SET used_s = excluded.used_s, "
                     "total_s = excluded.total_s, at_ms = excluded.at_ms",
                     STORE_VALUES(store_text(usage->owner), store_f64(usage->used_s),
                                  store_f64(usage->total_s), store_i64(usage->at_ms)),
                     err);
}

int store_usage_list(struct store *store, store_usage_fn *row, void *context, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT owner, used_s, total_s, at_ms FROM usage ORDER BY owner", NULL, err));
    for (;;) {
        bool found = false;
        TRY(store_query_step(&query, &found, err));
        if (!found)
            return 0;
        const struct store_usage usage = {
            .owner = store_column_text(&query, 0),
            .used_s = store_column_f64(&query, 1),
            .total_s = store_column_f64(&query, 2),
            .at_ms = store_column_i64(&query, 3),
        };
        TRY(row(context, &usage, err));
    }
}

int store_drained_put(struct store *store, bool drained, struct err *err)
{
    return store_run(store, STORE_JOBS, "UPDATE queue SET drained = ?",
                     STORE_VALUES(store_i64(drained)), err);
}

int store_drained_get(struct store *store, bool *ret_drained, struct err *err)
{
    int64_t drained = 0;
    TRY(store_query_i64(store, STORE_JOBS, "SELECT drained FROM queue", NULL, &drained, err));
    *ret_drained = drained != 0;
    return 0;
}
