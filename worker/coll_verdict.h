/* coll_verdict: what the records of all ranks of an attempt (coll_record.h) say together, once the
 * ranks have ended: which collective was waited in, and for whom.
 *
 *     coll_verdict_tell(attempt_dir, world, text, sizeof text);
 *     "collective 812 (reduce_scatter of 131072 F32, step 12, backward): rank 1 had not come; its
 *      last was 811, step 12, backward"
 *
 * The call told is the one with the lowest number that some rank was in, and that other ranks had
 * not come to or called otherwise; else the lowest that was not over. A rank without a readable
 * record is one that had not come to anything. */
#pragma once
#include "common/buf.h"
#include "common/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A sentence without a full stop; "" when no call was under way, or there are no records. */
void coll_verdict_tell(const char *attempt_dir, uint32_t world, char *ret_text, size_t bytes);
/* Where a rank was when it ended; false where it left no record. */
bool coll_verdict_place(const char *attempt_dir, uint32_t rank, uint64_t *ret_step,
                        enum wire_phase *ret_phase);
/* A rank's last calls, a line each, the newest last. */
void coll_verdict_list(const char *attempt_dir, uint32_t rank, struct buf *out);
/* Removes the records: all went well. */
void coll_verdict_clear(const char *attempt_dir, uint32_t world);
