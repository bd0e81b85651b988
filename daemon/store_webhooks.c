/* store_webhooks: messages that wait for their delivery, and the cursor up to which events have
 * become messages: both change in one transaction, so no event is told of twice or not at all. */
#include "daemon/store_sql.h"

static int store_webhook_insert(struct store *store, const struct store_webhook *webhook,
                                struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "INSERT INTO webhooks (id, job_id, owner, url, body, created_ms, next_ms) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    err));
    store_bind_text(&query, webhook->id);
    store_bind_text(&query, webhook->job_id);
    store_bind_text(&query, webhook->owner);
    store_bind_text(&query, webhook->url);
    store_bind_text(&query, webhook->body);
    store_bind_i64(&query, webhook->created_ms);
    store_bind_i64(&query, webhook->next_ms);
    return store_query_run(&query, err);
}

int store_webhooks_put(struct store *store, const struct store_webhook *webhooks, size_t count,
                       int64_t cursor, struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    for (size_t i = 0; i < count; i++)
        TRY(store_webhook_insert(store, &webhooks[i], err));
    TRY(store_run_i64(store, "UPDATE webhook_cursor SET event_row = ?", cursor, err));
    return store_transaction_commit(&transaction, err);
}

int store_webhook_cursor(struct store *store, int64_t *ret_row, struct err *err)
{
    return store_query_i64(store, STORE_JOBS, "SELECT event_row FROM webhook_cursor", ret_row, err);
}

int store_webhooks_due(struct store *store, int64_t now_ms, int64_t limit, store_webhook_fn *row,
                       void *context, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT row, id, job_id, owner, url, body, created_ms, tries, next_ms "
                    "FROM webhooks AS w WHERE next_ms <= ? AND NOT EXISTS (SELECT 1 FROM webhooks "
                    "AS o WHERE o.job_id = w.job_id AND o.url = w.url AND o.row < w.row) "
                    "ORDER BY next_ms, row LIMIT ?",
                    err));
    store_bind_i64(&query, now_ms);
    store_bind_i64(&query, limit);
    bool found = false;
    for (;;) {
        TRY(store_query_step(&query, &found, err));
        if (!found)
            return 0;
        const struct store_webhook webhook = {
            .row = store_column_i64(&query, 0),
            .id = store_column_text(&query, 1),
            .job_id = store_column_text(&query, 2),
            .owner = store_column_text(&query, 3),
            .url = store_column_text(&query, 4),
            .body = store_column_text(&query, 5),
            .created_ms = store_column_i64(&query, 6),
            .tries = store_column_i64(&query, 7),
            .next_ms = store_column_i64(&query, 8),
        };
        TRY(row(context, &webhook, err));
    }
}

int store_webhook_retry(struct store *store, int64_t row, int64_t tries, int64_t next_ms,
                        struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS, "UPDATE webhooks SET tries = ?, next_ms = ? WHERE row = ?",
                    err));
    store_bind_i64(&query, tries);
    store_bind_i64(&query, next_ms);
    store_bind_i64(&query, row);
    return store_query_run(&query, err);
}

int store_webhook_done(struct store *store, int64_t row, struct err *err)
{
    return store_run_i64(store, "DELETE FROM webhooks WHERE row = ?", row, err);
}

int store_webhooks_count(struct store *store, const char *owner, int64_t *ret_count,
                         struct err *err)
{
    if (owner == NULL)
        return store_query_i64(store, STORE_JOBS, "SELECT count(*) FROM webhooks", ret_count, err);
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS, "SELECT count(*) FROM webhooks WHERE owner = ?", err));
    store_bind_text(&query, owner);
    return store_query_number(&query, ret_count, err);
}

int store_webhook_edition(struct store *store, const char *owner, bool next, int64_t *ret_edition,
                          struct err *err)
{
    if (next)
        TRY(store_run_text(store, STORE_JOBS,
                           "INSERT INTO webhook_secrets (owner, edition) VALUES (?, 2) "
                           "ON CONFLICT (owner) DO UPDATE SET edition = edition + 1",
                           owner, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT coalesce(max(edition), 1) FROM webhook_secrets WHERE owner = ?", err));
    store_bind_text(&query, owner);
    return store_query_number(&query, ret_edition, err);
}
