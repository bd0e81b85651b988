/* sse_memo: a short array, searched from end to end. Buffers are kept when entries are forgotten.
 */
#include "daemon/sse_memo.h"

#include "daemon/http.h"

#include <stdio.h>
#include <string.h>

void sse_memo_done(struct sse_memo *memo)
{
    for (int i = 0; i < SSE_MEMO_ENTRIES; i++)
        buf_done(&memo->entries[i].text);
    *memo = (struct sse_memo){.count = 0};
}

void sse_memo_clear(struct sse_memo *memo)
{
    memo->count = memo->next = 0;
}

bool sse_memo_find(const struct sse_memo *memo, const struct sse_memo_key *key,
                   struct sse_memo_value *ret_value)
{
    for (int i = 0; i < memo->count; i++) {
        const struct sse_memo_entry *entry = &memo->entries[i];
        if (entry->event_row != key->event_row || entry->point_row != key->point_row ||
            strcmp(entry->viewer, key->viewer) != 0 || strcmp(entry->job_id, key->job_id) != 0)
            continue;
        *ret_value = entry->value;
        ret_value->text = buf_str(&entry->text);
        ret_value->length = entry->text.length;
        return true;
    }
    return false;
}

void sse_memo_put(struct sse_memo *memo, const struct sse_memo_key *key,
                  const struct sse_memo_value *value)
{
    struct sse_memo_entry *entry = &memo->entries[memo->next];
    struct err no_memory; /* then it is read again */
    struct buf text = entry->text;
    if (text.length_max == 0)
        buf_init(&text, HTTP_STREAM_BYTES);
    buf_clear(&text);
    buf_append(&text, value->text, value->length);
    *entry = (struct sse_memo_entry){
        .event_row = key->event_row, .point_row = key->point_row, .value = *value, .text = text};
    (void)snprintf(entry->viewer, sizeof entry->viewer, "%s", key->viewer);
    (void)snprintf(entry->job_id, sizeof entry->job_id, "%s", key->job_id);
    if (buf_error(&text, &no_memory) != 0)
        entry->event_row = entry->point_row = -1; /* nobody stands there */
    memo->next = (memo->next + 1) % SSE_MEMO_ENTRIES;
    if (memo->count < SSE_MEMO_ENTRIES)
        memo->count++;
}
