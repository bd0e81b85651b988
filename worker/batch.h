/* batch: the tokens one context group works on in one micro-step, and this rank's share of them.
 *
 * Documents (examples) lie end to end; positions restart with each, attention stays inside each.
 * targets[t] is the token that follows t in its document when that one is trained, else -1: shifted
 * before anything is cut. batch_upload() pads the sequence with untrained tokens, a document of
 * their own, until it divides, and takes this rank's rows (common/mesh.h). An empty batch (0
 * tokens, 0 documents) is legal and contributes nothing.
 *
 * Every rank of a context group appends the same documents. */
#pragma once
#include "common/err.h"
#include "common/mesh.h"
#include "worker/arena.h"

#include <stdint.h>

struct batch {
    struct mesh mesh;
    struct mesh_place place; /* of this rank */
    int64_t tokens_max;      /* capacity: tokens of the sequence, padding included */

    int64_t tokens;  /* of documents, in the sequence */
    int64_t trained; /* targets that are not -1, in the sequence */
    int64_t documents;
    int64_t *doc_rows; /* host (documents + 1): first tokens, then the end; after batch_upload one
                          more, of the padding */
    int32_t *host_ids; /* host (3 * tokens_max): ids, then targets, then positions; owned */
    int32_t *host_targets;
    int32_t *host_positions;
    float *host_losses;    /* host (T at most) of this rank's rows: positions.h; owned */
    int64_t *host_numbers; /* host (tokens_max), or NULL; owned */
    int64_t number;        /* of the next token appended */
    int64_t step;          /* optimizer step whose dropout is drawn; 0: none is (evaluation) */

    /* since batch_upload */
    struct mesh_seq seq;
    int64_t rows;           /* T: this rank's tokens */
    int64_t ring_documents; /* documents and padding */
    int64_t *ring_doc_rows; /* host (ring_documents + 1): their first ring rows, then the end */
    int32_t *ids;           /* device (T) */
    int32_t *targets;       /* device (T) */
    int32_t *positions;     /* device (T) in their documents */
    int64_t *numbers;       /* device (T) in their step, whatever the layout; NULL: not wanted */
};

/* tokens_max: of documents. */
int batch_init(struct batch *batch, const struct mesh *mesh, struct mesh_place place,
               int64_t tokens_max, struct arena *arena, struct err *err);
/* Tokens are to have numbers: the caller sets `number` at the start of each sequence. */
int batch_want_numbers(struct batch *batch, struct arena *arena, struct err *err);
void batch_done(struct batch *batch);
void batch_clear(struct batch *batch);
/* Appends a document of count tokens; trained[t] says whether token t is a target. */
void batch_append(struct batch *batch, const int32_t *ids, const uint8_t *trained, int64_t count);
/* Pads, cuts, and copies this rank's rows to the device. */
int batch_upload(struct batch *batch, struct device *device, struct stream *stream,
                 struct err *err);
/* The first token and the end of the document (or padding) that holds `position`. */
void batch_document(const struct batch *batch, int64_t position, int64_t *ret_first,
                    int64_t *ret_end);
