/* offload: what layers keep leaves the place where it is worked on, for the host or a file, and
 * comes back for the backward pass; and what lies on the host passes through the device in tiles.
 *
 * Kept tensors come in three groups, each whole at one moment of a layer's forward:
 *     INPUT      x                   before the layer, which reads it
 *     ATTENTION  q, k, v, O, LSE     after attention
 *     MLP        x_mid, gate, up     after the MLP
 * A layer works on its own where that is at hand (offload_keep says so), else on the set that such
 * layers use in turn:
 *     TRY(offload_ready(offload, group, stream, err));          the set is complete
 *     ... work that reads it is issued ...
 *     TRY(offload_out(offload, group, index, &span, stream, err)); copied away meanwhile
 *     TRY(offload_vacate(offload, group, stream, err));          before it is overwritten
 * and in backward
 *     TRY(offload_in(offload, group, index, &span, stream, err)); back, into what is free by now
 *     TRY(offload_arrive(offload, &span, stream, err));          before it is read
 * `index` is the layer, or layers + i for the i-th input of the segment that is replayed. With
 * nothing kept away all of these do nothing. What lies by rows may go and come tile by tile: a
 * tile's copy then runs under the work on other tiles.
 *
 * Copies run on two streams of their own, one each way, in the order of the calls. To and from a
 * file they go by pieces through pinned chunks, and the call itself waits for chunks to be free:
 * calls stand where enough work for the device has been issued.
 *
 * Tiles: with a streamed residual x, its like and its gradient lie on the host, and an operation's
 * rows of them are read into a chunk of a ring, the next rows after them, and written back:
 *     TRY(offload_tile_read(offload, OFFLOAD_RING_X, x, &span, stream, &tile, err));
 *     ... tile.data ...
 *     TRY(offload_tile_write(offload, &tile, x, &span, stream, err));   or offload_tile_done()
 * Without streaming tile.data is the place in x itself, and nothing is copied.
 *
 * Bytes moved are counted; what passes on the stream of work inside of these calls, which is what
 * offloading costs, goes to the device's account (exposed.h).
 *
 * Files: offload.c, offload_tile.c, offload_file.c (the file), offload_private.h. */
#pragma once
#include "common/err.h"
#include "common/mem_buffer.h"
#include "worker/arena.h"
#include "worker/device.h"

#include <stdbool.h>
#include <stdint.h>

struct offload_file;

/* X(id, group, by_rows): by_rows: a token's are together: it can go and come by parts */
#define OFFLOAD_TABLE(X)     \
    X(X, INPUT, true)        \
    X(Q, ATTENTION, false)   \
    X(K, ATTENTION, false)   \
    X(V, ATTENTION, false)   \
    X(O, ATTENTION, true)    \
    X(LSE, ATTENTION, false) \
    X(X_MID, MLP, false)     \
    X(GATE, MLP, false)      \
    X(UP, MLP, false)

#define X(id, group, by_rows) OFFLOAD_##id,
enum offload_tensor_id { OFFLOAD_TABLE(X) OFFLOAD_TENSORS };
#undef X
enum offload_group { OFFLOAD_INPUT, OFFLOAD_ATTENTION, OFFLOAD_MLP, OFFLOAD_GROUPS };
enum offload_ring_id {
    OFFLOAD_RING_X,  /* x on its way through a layer */
    OFFLOAD_RING_DX, /* its gradient; in forward x_mid that is kept */
    OFFLOAD_RING_O,  /* O of a layer that is replayed */
    OFFLOAD_RINGS
};
enum {
    OFFLOAD_RING_CHUNKS = 3,
    OFFLOAD_PARTS = 8 /* of a batch's rows, whose arrival is waited for one by one */
};

/* Where a tensor is kept: away. */
struct offload_place {
    bool away;
    void *memory;   /* on the host, or NULL */
    int64_t offset; /* in the file */
    int64_t layer;  /* whose it is, for messages; past the last: an input of a segment */
};

struct offload_tensor {
    void *work;                   /* the set of all layers in turn; NULL: there is none */
    int64_t row_bytes;            /* for a token */
    struct offload_place *places; /* (layers, and for x the inputs of a segment) */
};

struct offload_chunk {
    void *memory;       /* on the device */
    struct event *full; /* what was read is there */
    struct event *free; /* it may be filled again */
};

struct offload_ring {
    struct offload_chunk chunks[OFFLOAD_RING_CHUNKS]; /* (count) */
    int count;
    int next;                    /* the one to be filled next */
    struct offload_chunk *ahead; /* holds the rows to be read next; NULL: none does */
};

struct offload_options {
    int64_t layers;      /* of the model */
    int64_t segment;     /* inputs of a segment that are kept while it is replayed */
    int64_t tokens_max;  /* T */
    int64_t x_row_bytes; /* [act] (h) */
    bool away;           /* something is kept away */
    bool streamed;       /* x and its like lie on the host */
};

struct offload {
    struct device *device; /* borrowed */
    struct offload_options options;
    struct stream *out, *in;
    struct event *moment; /* of one stream, for another to wait for at once */
    struct event *ready[OFFLOAD_GROUPS], *left[OFFLOAD_GROUPS];
    struct event *arrived[OFFLOAD_GROUPS][OFFLOAD_PARTS];
    bool leaving[OFFLOAD_GROUPS];    /* and not waited for */
    unsigned coming[OFFLOAD_GROUPS]; /* likewise: a bit for each part */
    int64_t holds[OFFLOAD_GROUPS];   /* index of what the set has; -1: none that is kept */
    struct offload_tensor tensors[OFFLOAD_TENSORS];
    struct offload_ring rings[OFFLOAD_RINGS];

    struct offload_file *file;     /* NULL: none */
    void *pieces[MEM_CHUNKS_FILE]; /* pinned; used from their first page on */
    int64_t piece_bytes;           /* of each from there on */
    int next_piece;                /* the one written longest ago */
    bool reading;                  /* what they were last used for */

    int64_t bytes; /* moved since the last offload_account() */
};

/* Rows [row, row + rows) of the `all` that a batch has, in tiles of `tile`. */
struct offload_span {
    int64_t row, rows, all, tile;
};

int offload_init(struct offload *offload, const struct offload_options *options,
                 struct device *device, struct err *err);
void offload_done(struct offload *offload); /* before the arena */

/* A buffer of the plan. */
struct offload_name {
    enum mem_name name;
    int64_t index;
};
/* Declares what is kept at `index`: at *slot where it is at hand, else away, and *slot stays. */
int offload_keep(struct offload *offload, struct arena *arena, enum offload_tensor_id id,
                 int64_t index, const struct offload_name *name, void *slot, int64_t bytes,
                 struct err *err);
/* The set of all layers in turn. */
int offload_work(struct offload *offload, struct arena *arena, enum offload_tensor_id id,
                 enum mem_name name, int64_t bytes, struct err *err);
/* Chunks for tiles of O and of x, and for the file's pieces; 0 bytes: none. */
int offload_chunks(struct offload *offload, struct arena *arena, int64_t o_bytes, int64_t x_bytes,
                   int64_t piece_bytes, struct err *err);
/* The file, of `bytes`, where something goes to one; and how it is written, for the log. */
int offload_open(struct offload *offload, const char *path, int64_t bytes, struct err *err);
const char *offload_how(const struct offload *offload);

bool offload_is_away(const struct offload *offload, enum offload_tensor_id id, int64_t index);

int offload_ready(struct offload *offload, enum offload_group group, struct stream *stream,
                  struct err *err);
/* What is complete at offload_ready: of those that lie by rows the span, of the others all, with
 * the last row; so does what goes to a file, which is written by whole pages. */
int offload_out(struct offload *offload, enum offload_group group, int64_t index,
                const struct offload_span *span, struct stream *stream, struct err *err);
int offload_vacate(struct offload *offload, enum offload_group group, struct stream *stream,
                   struct err *err);
/* Of those that lie by rows the span, the others with row 0. Nothing when the set has them. */
int offload_in(struct offload *offload, enum offload_group group, int64_t index,
               const struct offload_span *span, struct stream *stream, struct err *err);
/* Of all groups, rows up to the span's last. */
int offload_arrive(struct offload *offload, const struct offload_span *span, struct stream *stream,
                   struct err *err);

struct offload_tile {
    void *data;                  /* on the device */
    struct offload_chunk *chunk; /* NULL: data lies in the tensor itself */
};
/* Spans of a pass come in order, from row 0. */
int offload_tile_read(struct offload *offload, enum offload_ring_id ring, const void *x,
                      const struct offload_span *span, struct stream *stream,
                      struct offload_tile *ret, struct err *err);
/* To be written only. */
int offload_tile_fresh(struct offload *offload, enum offload_ring_id ring, void *x,
                       const struct offload_span *span, struct stream *stream,
                       struct offload_tile *ret, struct err *err);
/* tile.data is complete: its rows of x, of any tensor of that kind. The tile is done. */
int offload_tile_write(struct offload *offload, const struct offload_tile *tile, void *x,
                       const struct offload_span *span, struct stream *stream, struct err *err);
/* Nothing issued from now on uses the tile. */
int offload_tile_done(struct offload *offload, const struct offload_tile *tile,
                      struct stream *stream, struct err *err);
/* Rows of O of a layer that keeps it away. goes_on: the next layer's are read after the last. */
int offload_tile_o(struct offload *offload, int64_t layer, bool goes_on,
                   const struct offload_span *span, struct stream *stream, struct offload_tile *ret,
                   struct err *err);

/* Bytes moved since the last call. */
int64_t offload_account(struct offload *offload);
