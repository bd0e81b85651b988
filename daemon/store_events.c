/* store_events: rows of job_events. AUTOINCREMENT keeps `row` rising for ever, so it is the cursor
 * of streams. */
#include "common/mem.h"
#include "common/must.h"
#include "daemon/store_sql.h"

#include <string.h>

#define STORE_EVENT_COLUMNS "row, id, job_id, created_ms, level, type, message, data_json"

static int store_events_give(struct store_query *query, int64_t limit, store_event_fn *row,
                             void *context, bool *ret_has_more, struct err *err)
{
    bool found = false;
    for (int64_t given = 0;; given++) {
        TRY(store_query_step(query, &found, err));
        if (!found || given == limit)
            break;
        const struct store_event event = {
            .row = store_column_i64(query, 0),
            .id = store_column_text(query, 1),
            .job_id = store_column_text(query, 2),
            .created_ms = store_column_i64(query, 3),
            .level = store_column_text(query, 4),
            .type = store_column_text(query, 5),
            .message = store_column_text(query, 6),
            .data_json = store_column_text(query, 7),
        };
        TRY(row(context, &event, err));
    }
    *ret_has_more = found;
    return 0;
}

/* What an event says, and who asked for it where a request did: words that need no escape (auth.h).
 * NULL: no memory. */
static char *store_event_data(const struct store *store, const char *said)
{
    const struct store_request *request = store->request;
    if (request == NULL)
        return mem_printf("%s", said);
    const size_t kept = said[0] != '\0' ? strlen(said) - 1 : 0; /* without its brace */
    must(kept == 0 || (kept > 1 && said[kept] == '}'));
    return mem_printf("%.*s%s\"user\":\"%s\",\"request_id\":\"%s\"}", (int)kept, said,
                      kept > 0 ? "," : "{", request->user, request->id);
}

static int store_event_put(struct store *store, const char *sql, const struct store_event *event,
                           int64_t *ret_row, struct err *err)
{
    CLEANUP(mem_free_ptr) char *data = store_event_data(store, event->data_json);
    if (data == NULL)
        return mem_fail(err, 0, "an event");
    TRY(store_run(store, STORE_JOBS, sql,
                  STORE_VALUES(store_text(event->id), store_text(event->job_id),
                               store_i64(event->created_ms), store_text(event->level),
                               store_text(event->type), store_text(event->message),
                               store_text(data)),
                  err));
    sqlite3 *database = store->databases[STORE_JOBS];
    *ret_row = sqlite3_changes(database) > 0 ? sqlite3_last_insert_rowid(database) : 0;
    return 0;
}

#define STORE_EVENT_INSERT                                                              \
    "INSERT INTO job_events (id, job_id, created_ms, level, type, message, data_json) " \
    "VALUES (?, ?, ?, ?, ?, ?, ?)"

int store_event_insert(struct store *store, const struct store_event *event, int64_t *ret_row,
                       struct err *err)
{
    return store_event_put(store, STORE_EVENT_INSERT, event, ret_row, err);
}

int store_event_insert_once(struct store *store, const struct store_event *event, int64_t *ret_row,
                            struct err *err)
{
    return store_event_put(store, STORE_EVENT_INSERT " ON CONFLICT (id) DO NOTHING", event, ret_row,
                           err);
}

int store_events_list(struct store *store, const char *job_id, const struct store_page *page,
                      store_event_fn *row, void *context, bool *ret_has_more, struct err *err)
{
    int64_t start = 0;
    TRY(store_page_start(store, page, "SELECT row FROM job_events WHERE id = ? AND job_id = ?",
                         job_id, &start, err));
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    page->order == STORE_NEWEST_FIRST
                        ? "SELECT " STORE_EVENT_COLUMNS " FROM job_events WHERE job_id = ? AND "
                          "row < ? ORDER BY row DESC LIMIT ?"
                        : "SELECT " STORE_EVENT_COLUMNS " FROM job_events WHERE job_id = ? AND "
                          "row > ? ORDER BY row LIMIT ?",
                    STORE_VALUES(store_text(job_id), store_i64(start), store_i64(page->limit + 1)),
                    err));
    return store_events_give(&query, page->limit, row, context, ret_has_more, err);
}

int store_events_after(struct store *store, const char *job_id, int64_t after_row, int64_t limit,
                       store_event_fn *row, void *context, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    job_id != NULL ? "SELECT " STORE_EVENT_COLUMNS " FROM job_events WHERE "
                                     "row > ? AND job_id = ? ORDER BY row LIMIT ?"
                                   : "SELECT " STORE_EVENT_COLUMNS " FROM job_events WHERE "
                                     "row > ? ORDER BY row LIMIT ?",
                    job_id != NULL
                        ? STORE_VALUES(store_i64(after_row), store_text(job_id), store_i64(limit))
                        : STORE_VALUES(store_i64(after_row), store_i64(limit)),
                    err));
    bool unused = false;
    return store_events_give(&query, limit, row, context, &unused, err);
}

int store_events_telling(struct store *store, int64_t after_row, int64_t limit, store_event_fn *row,
                         void *context, struct err *err)
{
    CLEANUP(store_query_end) struct store_query query = {.store = store};
    TRY(store_query(&query, STORE_JOBS,
                    "SELECT " STORE_EVENT_COLUMNS " FROM job_events WHERE row > ? AND "
                    "(data_json GLOB '{\"state\":*' OR data_json GLOB '{\"alert\":*') "
                    "ORDER BY row LIMIT ?",
                    STORE_VALUES(store_i64(after_row), store_i64(limit)), err));
    bool unused = false;
    return store_events_give(&query, limit, row, context, &unused, err);
}

int store_events_newest(struct store *store, int64_t *ret_row, struct err *err)
{
    return store_query_i64(store, STORE_JOBS, "SELECT max(row) FROM job_events", NULL, ret_row,
                           err);
}
