/* notice: see notice.h. Events have the job's row as their parent, so the store refuses those of a
 * job that is not there. */
#include "daemon/notice.h"

#include "common/mem.h"
#include "daemon/bus.h"
#include "daemon/host.h"
#include "daemon/store.h"

enum { NOTICE_DATA_BYTES = 64 << 10 };

int notice_put(struct store *store, struct host *host, struct bus *bus, const struct notice *notice,
               struct err *err)
{
    CLEANUP(json_unref) json_t *data = notice->data;
    CLEANUP(buf_done) struct buf text;
    char id[LIMIT_ID_BYTES + 1], owner[LIMIT_NAME_BYTES + 1];
    int64_t row = 0;
    buf_init(&text, NOTICE_DATA_BYTES);
    TRY(store_job_owner(store, notice->job_id, owner, err));
    TRY(host_new_id(host, "ftevent-", id, sizeof id, err));
    if (data != NULL)
        TRY(json_print(data, &text, err));
    const struct store_event event = {
        .id = id,
        .job_id = notice->job_id,
        .created_ms = host->ops->wall_ms(host),
        .level = notice->level,
        .type = "message",
        .message = notice->text,
        .data_json = buf_str(&text),
    };
    TRY(store_event_insert(store, &event, &row, err));
    bus_publish(bus, &(struct bus_note){.job_id = notice->job_id, .event_row = row});
    return 0;
}
