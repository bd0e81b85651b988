/* store_webhooks: messages that wait for their delivery, and the cursor up to which events have
 * become messages: both change in one transaction, so no event is told of twice or not at all. */
#include "daemon/store_sql.h"

static int store_webhook_insert(struct store *store, const struct store_webhook *webhook,
                                struct err *err)
{
    return store_run(store, STORE_JOBS,
                     "INSERT INTO webhooks (id, job_id, owner, url, body, created_ms, next_ms) "
                     "VALUES (?, ?, ?, ?, ?, ?, ?)",
                     STORE_VALUES(store_text(webhook->id), store_text(webhook->job_id),
                                  store_text(webhook->owner), store_text(webhook->url),
                                  store_text(webhook->body), store_i64(webhook->created_ms),
                                  store_i64(webhook->next_ms)),
                     err);
}

int store_webhooks_put(struct store *store, const struct store_webhook *webhooks, size_t count,
                       int64_t cursor, struct err *err)
{
    CLEANUP(store_transaction_end) struct store_transaction transaction = {.store = store};
    TRY(store_transaction_begin(&transaction, STORE_JOBS, err));
    for (size_t i = 0; i < count; i++)
        TRY(store_webhook_insert(store, &webhooks[i], err));
    TRY(store_run(store, STORE_JOBS, "UPDATE webhook_cursor SET event_row = ?",
                  STORE_VALUES(store_i64(cursor)), err));
    return store_transaction_commit(&transaction, err);
}

int store_webhook_cursor(struct store *store, int64_t *ret_row, struct err *err)
{
    return store_query_i64(store, STORE_JOBS, "SELECT event_row FROM webhook_cursor", NULL, ret_row,
                           err);
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
                    STORE_VALUES(store_i64(now_ms), store_i64(limit)), err));
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
    return store_run(store, STORE_JOBS, "UPDATE webhooks SET tries = ?, next_ms = ? WHERE row = ?",
                     STORE_VALUES(store_i64(tries), store_i64(next_ms), store_i64(row)), err);
}

int store_webhook_done(struct store *store, int64_t row, struct err *err)
{
    return store_run(store, STORE_JOBS, "DELETE FROM webhooks WHERE row = ?",
                     STORE_VALUES(store_i64(row)), err);
}

int store_webhooks_count(struct store *store, const char *owner, int64_t *ret_count,
                         struct err *err)
{
    if (owner == NULL)
        return store_query_i64(store, STORE_JOBS, "SELECT count(*) FROM webhooks", NULL, ret_count,
                               err);
    return store_query_i64(store, STORE_JOBS, "SELECT count(*) FROM webhooks WHERE owner = ?",
                           STORE_VALUES(store_text(owner)), ret_count, err);
}

int store_webhook_edition(struct store *store, const char *owner, bool next, int64_t *ret_edition,
                          struct err *err)
{
    if (next)
        TRY(store_run(store, STORE_JOBS,
                      "INSERT INTO webhook_secrets (owner, edition) VALUES (?, 2) "
                      "ON CONFLICT (owner) DO UPDATE SET edition = edition + 1",
                      STORE_VALUES(store_text(owner)), err));
    return store_query_i64(store, STORE_JOBS,
                           "SELECT coalesce(max(edition), 1) FROM webhook_secrets WHERE owner = ?",
                           STORE_VALUES(store_text(owner)), ret_edition, err);
}
