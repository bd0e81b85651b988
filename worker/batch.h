/* batch: the tokens one rank works on in one micro-step: whole packed sequences, one after the
 * other.
 *
 * Documents (examples) lie end to end; positions restart with each, attention stays inside each.
 * targets[t] is the token that follows t in its document when that one is trained, else -1: shifted
 * before anything is cut. An empty batch (0 tokens, 0 documents) is legal and contributes nothing.
 */
#pragma once
#include "common/err.h"
#include "worker/arena.h"

#include <stdint.h>

struct batch {
    int64_t tokens_max; /* capacity */
    int64_t tokens;     /* T of this micro-step */
    int64_t trained;    /* targets that are not -1 */
    int64_t documents;
    int64_t *doc_rows; /* host (documents + 1): first rows, then T */
    int32_t *host_ids; /* host (3 * tokens_max): ids, then targets, then positions; owned */
    int32_t *host_targets;
    int32_t *host_positions;
    int32_t *ids;       /* device (T) */
    int32_t *targets;   /* device (T) */
    int32_t *positions; /* device (T) */
};

int batch_init(struct batch *batch, int64_t tokens_max, struct arena *arena, struct err *err);
void batch_done(struct batch *batch);
void batch_clear(struct batch *batch);
/* Appends a document of count tokens; trained[t] says whether token t is a target. */
void batch_append(struct batch *batch, const int32_t *ids, const uint8_t *trained, int64_t count);
/* Copies the host side to the device. */
int batch_upload(struct batch *batch, struct device *device, struct stream *stream,
                 struct err *err);
