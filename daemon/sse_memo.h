/* sse_memo: what streams of one kind send from one place on. A hundred dashboards stand at the same
 * rows, and to read and print these is most of what a stream costs: so it is done once, for as long
 * as nothing new is stored. */
#pragma once
#include "common/buf.h"
#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum { SSE_MEMO_ENTRIES = 8 }; /* places at once, of at most 1 MiB each */

/* Where a stream stands, and what follows there. Texts are borrowed. */
struct sse_memo_key {
    const char *viewer, *job_id; /* as in a stream */
    int64_t event_row, point_row;
};
struct sse_memo_value {
    int64_t event_row, point_row; /* where it then stands */
    int64_t rows;                 /* read, shown or not */
    bool more;                    /* something may follow */
    const char *text;             /* what is sent; borrowed until the memo changes */
    size_t length;                /* of it */
};

struct sse_memo_entry {
    char viewer[LIMIT_NAME_BYTES + 1], job_id[LIMIT_ID_BYTES + 1];
    int64_t event_row, point_row;
    struct sse_memo_value value;
    struct buf text;
};

struct sse_memo {
    struct sse_memo_entry entries[SSE_MEMO_ENTRIES];
    int count; /* of them, valid */
    int next;  /* to be overwritten once all are */
};

void sse_memo_done(struct sse_memo *memo);  /* a zeroed one is empty */
void sse_memo_clear(struct sse_memo *memo); /* something was stored */
bool sse_memo_find(const struct sse_memo *memo, const struct sse_memo_key *key,
                   struct sse_memo_value *ret_value);
/* Copies; without memory nothing is kept. */
void sse_memo_put(struct sse_memo *memo, const struct sse_memo_key *key,
                  const struct sse_memo_value *value);
