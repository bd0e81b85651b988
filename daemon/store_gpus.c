/* store_gpus: rows of gpus: what was decided about a GPU. */
#include "daemon/store_sql.h"

int store_gpu_put(struct store *store, const struct store_gpu *gpu, struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "INSERT OR REPLACE INTO gpus (uuid, drained, aside, changed_ms) "
                     "VALUES (?, ?, ?, ?)",
                     STORE_VALUES(store_text(gpu->uuid), store_i64(gpu->drained),
                                  store_text(gpu->aside), store_i64(gpu->changed_ms)),
                     err);
}

int store_gpus_list(struct store *store, store_gpu_fn *row, void *context, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS, "SELECT uuid, drained, aside, changed_ms FROM gpus", NULL,
                    err));
    for (;;) {
        bool found = false;
        TRY(store_query_step(&query, &found, err));
        if (!found)
            return 0;
        const struct store_gpu gpu = {
            .uuid = store_column_text(&query, 0),
            .drained = store_column_i64(&query, 1) != 0,
            .aside = store_column_text(&query, 2),
            .changed_ms = store_column_i64(&query, 3),
        };
        TRY(row(context, &gpu, err));
    }
}
