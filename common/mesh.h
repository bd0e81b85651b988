/* mesh: who does what when one sequence is shared by several ranks. Pure arithmetic: no
 * communication, no allocation, no errors; what is legal is asked before (mesh_*_legal).
 *
 * Ranks: world = data x ring x ulysses; the last varies fastest (Ulysses ranks are neighbours):
 *     rank = (data_index * ring + ring_index) * ulysses + ulysses_index
 * A context group (ring x ulysses ranks) works on one sequence at a time; each data index has its
 * own. C below is the Ulysses degree, R the ring degree.
 *
 * Heads: Ulysses rank c owns query heads c*H/C .. (c+1)*H/C-1 for attention over the whole (ring)
 * sequence, and the max(1, K/C) key/value heads they read; with K < C, C/K neighbours share one.
 * Attention goes in stages of u query heads a rank: u = H/C is plain Ulysses, less is Untied
 * Ulysses (arXiv 2602.21196). A K/V head is used by consecutive stages and exchanged once.
 *
 * Sequence: tokens are padded (at the end) to a multiple of 2*R*C, of C when R is 1. R = 1: one
 * chunk, cut into C slices. R > 1: 2R equal chunks; ring rank i holds chunks i and 2R-1-i, one
 * after the other (zigzag: every ring rank gets the same number of causal pairs), and these rows,
 * its "ring rows", are cut into C slices. So a rank's shard is at most two runs of consecutive
 * tokens. After the Ulysses exchange every rank of a ring index sees all ring rows, in order.
 *
 *     struct mesh mesh = mesh_make(world, spec->ring, spec->ulysses);
 *     struct mesh_place me = mesh_place(&mesh, rank);
 *     struct mesh_seq seq = mesh_seq_make(&mesh, tokens);
 *     int spans = mesh_seq_spans(&seq, me.ring, me.ulysses, span); */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mesh {
    int world;   /* data * ring * ulysses */
    int data;    /* data-parallel degree */
    int ring;    /* R */
    int ulysses; /* C */
};
struct mesh_place {
    int data;    /* 0 .. data-1 */
    int ring;    /* 0 .. ring-1 */
    int ulysses; /* 0 .. ulysses-1 */
};
/* ring * ulysses must divide world. */
struct mesh mesh_make(int world, int ring, int ulysses);
struct mesh_place mesh_place(const struct mesh *mesh, int rank);

/* Ranks that communicate. */
enum mesh_group {
    MESH_GROUP_ULYSSES, /* same data and ring index: exchanges heads for tokens */
    MESH_GROUP_RING,    /* same data and Ulysses index: passes K/V on */
    MESH_GROUP_CONTEXT, /* same data index: shares a sequence; in order of (ring, ulysses) */
    MESH_GROUP_DATA,    /* same ring and Ulysses index: same shard of different sequences */
    MESH_GROUP_WORLD,   /* all: FSDP, sums of loss and counts */
    MESH_GROUP_COUNT
};
struct mesh_ranks {
    int first;  /* member m is rank first + m * stride; `first` also names the group in its kind */
    int stride; /* 1 or more */
    int count;  /* members */
    int index;  /* the asking rank's own member number */
};
struct mesh_ranks mesh_group(const struct mesh *mesh, enum mesh_group group, int rank);

/* Whether Ulysses degree C can share H query and K key/value heads: C divides H, and C divides K or
 * K divides C. And whether u query heads a stage are possible then: u divides H/C, and with g' =
 * min(H/K, H/C), u divides g' or g' divides u. */
bool mesh_ulysses_legal(int64_t heads, int64_t kv_heads, int64_t ulysses);
bool mesh_stage_legal(int64_t heads, int64_t kv_heads, int64_t ulysses, int64_t heads_per_stage);
/* The legal values in words, "1, 2, 4 or 8": ring degrees (divisors of `ranks`); Ulysses degrees
 * that divide `ranks`; heads per stage. 1 is always among them. */
enum { MESH_LIST_BYTES = 256 };
void mesh_ring_list(int64_t ranks, char ret_text[MESH_LIST_BYTES]);
void mesh_ulysses_list(int64_t heads, int64_t kv_heads, int64_t ranks,
                       char ret_text[MESH_LIST_BYTES]);
void mesh_stage_list(int64_t heads, int64_t kv_heads, int64_t ulysses,
                     char ret_text[MESH_LIST_BYTES]);

/* Ownership and stages; all ranks have the same numbers. Ulysses rank c owns query heads from
 * c * owned on; ranks c and c' read the same K/V heads when c / sharers == c' / sharers. "Local"
 * heads count from the first that a rank owns. */
struct mesh_heads {
    int64_t heads;     /* H */
    int64_t kv_heads;  /* K */
    int64_t owned;     /* query heads a rank: H/C */
    int64_t kv_owned;  /* K/V heads a rank: max(1, K/C) */
    int64_t sharers;   /* ranks that read one K/V head: max(1, C/K) */
    int64_t per_stage; /* u */
    int64_t stages;    /* H/C/u */
    int64_t kv_stages; /* consecutive stages that use the same K/V heads */
    int64_t kv_staged; /* K/V heads a stage uses, at once in memory */
};
struct mesh_heads mesh_heads_make(int64_t heads, int64_t kv_heads, int64_t ulysses,
                                  int64_t heads_per_stage);

struct mesh_stage {
    int64_t head;  /* first local query head; the stage has per_stage of them */
    int64_t kv;    /* first local K/V head; the stage reads kv_staged of them */
    bool kv_first; /* its K/V heads are new: project and send them */
    bool kv_last;  /* no later stage reads them: dk and dv are complete, return them */
};
/* Query head head+i of the stage reads K/V head kv + i * kv_staged / per_stage. */
struct mesh_stage mesh_stage_at(const struct mesh_heads *heads, int64_t stage);

/* One sequence (or several packed ones) over a context group. */
struct mesh_seq {
    int64_t tokens; /* real ones, 0 or more */
    int64_t padded; /* with padding: tokens .. padded-1 belong to no document */
    int64_t chunk;  /* tokens of a chunk */
    int chunks;     /* 2R; 1 when R is 1 */
    int ring;       /* R */
    int ulysses;    /* C */
    int64_t rows;   /* ring rows: padded / R */
    int64_t shard;  /* tokens a rank, T: padded / (R*C) */
};
struct mesh_seq mesh_seq_make(const struct mesh *mesh, int64_t tokens);
/* Position in the sequence of a row of ring index `ring`, 0 <= row < rows. Row t of Ulysses rank
 * c's shard is ring row c * shard + t. */
int64_t mesh_seq_position(const struct mesh_seq *seq, int ring, int64_t row);
/* How many ring rows of `ring` lie before a position, 0 <= position <= padded: where a document
 * that begins there begins for this rank. */
int64_t mesh_seq_rows_before(const struct mesh_seq *seq, int ring, int64_t position);

struct mesh_span {
    int64_t position; /* first token in the sequence */
    int64_t row;      /* first row in the rank's shard */
    int64_t count;    /* consecutive tokens, above 0; the last may be padding */
};
/* The shard of (ring, ulysses) as runs of consecutive tokens, in order of row and of position.
 * Returns their number: 0 (shard is 0), 1 or 2. */
int mesh_seq_spans(const struct mesh_seq *seq, int ring, int ulysses, struct mesh_span ret[2]);

/* Ring attention, arXiv 2310.01889. In step 0 .. R-1 ring rank i holds the K/V rows of `from` = (i
 * - step) mod R; between steps it sends them to i+1 and receives from i-1 (mod R). dk and dv travel
 * with them and are home after one more hop. By the zigzag a step is one call: step 0 causal over
 * all ring rows; else every query with every key of a rectangle. Every ring rank has as many pairs
 * in a step as any other. */
struct mesh_ring_step {
    int from;      /* ring index whose K/V is held */
    bool causal;   /* step 0 */
    int64_t q_row; /* queries: first ring row of the rank ... */
    int64_t q_rows;
    int64_t k_row; /* keys: first ring row of `from` ... */
    int64_t k_rows;
};
struct mesh_ring_step mesh_ring_step(const struct mesh_seq *seq, int ring, int step);

/* Packing: after step 0 only the document of the step's first query has keys in it, and its pairs
 * are again a rectangle. Cuts the step down to the document at positions doc_first .. doc_end-1
 * (padding may count as one); false when no pairs are left. */
bool mesh_ring_clip(const struct mesh_seq *seq, int ring, int64_t doc_first, int64_t doc_end,
                    struct mesh_ring_step *step);
