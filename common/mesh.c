/* mesh: see mesh.h. Every formula stands once here; with ring 1 and Ulysses 1 all of them are the
 * identity, so callers need no special case. Positions and rows are int64. */
#include "common/mesh.h"

#include "common/must.h"

#include <stdio.h>
#include <string.h>

struct mesh mesh_make(int world, int ring, int ulysses)
{
    must(ring >= 1 && ulysses >= 1 && world >= 1);
    must(world % (ring * ulysses) == 0);
    return (struct mesh){
        .world = world, .data = world / (ring * ulysses), .ring = ring, .ulysses = ulysses};
}

struct mesh_place mesh_place(const struct mesh *mesh, int rank)
{
    must(rank >= 0 && rank < mesh->world);
    return (struct mesh_place){.data = rank / (mesh->ring * mesh->ulysses),
                               .ring = rank / mesh->ulysses % mesh->ring,
                               .ulysses = rank % mesh->ulysses};
}

int mesh_rank(const struct mesh *mesh, struct mesh_place place)
{
    must(place.data >= 0 && place.data < mesh->data && place.ring >= 0 && place.ring < mesh->ring &&
         place.ulysses >= 0 && place.ulysses < mesh->ulysses);
    return (place.data * mesh->ring + place.ring) * mesh->ulysses + place.ulysses;
}

struct mesh_ranks mesh_group(const struct mesh *mesh, enum mesh_group group, int rank)
{
    struct mesh_place place = mesh_place(mesh, rank);
    int context = mesh->ring * mesh->ulysses;
    struct mesh_ranks ranks = {.stride = 1};
    switch (group) {
    case MESH_GROUP_ULYSSES:
        ranks.count = mesh->ulysses;
        ranks.index = place.ulysses;
        break;
    case MESH_GROUP_RING:
        ranks.stride = mesh->ulysses;
        ranks.count = mesh->ring;
        ranks.index = place.ring;
        break;
    case MESH_GROUP_CONTEXT:
        ranks.count = context;
        ranks.index = rank % context;
        break;
    case MESH_GROUP_DATA:
        ranks.stride = context;
        ranks.count = mesh->data;
        ranks.index = place.data;
        break;
    case MESH_GROUP_WORLD:
    case MESH_GROUP_COUNT:
        must(group == MESH_GROUP_WORLD);
        ranks.count = mesh->world;
        ranks.index = rank;
        break;
    }
    ranks.first = rank - ranks.index * ranks.stride;
    return ranks;
}

bool mesh_ulysses_legal(int64_t heads, int64_t kv_heads, int64_t ulysses)
{
    must(heads >= 1 && kv_heads >= 1 && heads % kv_heads == 0);
    return ulysses >= 1 && heads % ulysses == 0 &&
           (kv_heads % ulysses == 0 || ulysses % kv_heads == 0);
}

/* g': query heads of one rank that read the same K/V head. */
static int64_t mesh_kv_readers(int64_t heads, int64_t kv_heads, int64_t ulysses)
{
    int64_t group = heads / kv_heads, owned = heads / ulysses;
    return group < owned ? group : owned;
}

bool mesh_stage_legal(int64_t heads, int64_t kv_heads, int64_t ulysses, int64_t heads_per_stage)
{
    if (!mesh_ulysses_legal(heads, kv_heads, ulysses) || heads_per_stage < 1 ||
        heads / ulysses % heads_per_stage != 0)
        return false;
    int64_t readers = mesh_kv_readers(heads, kv_heads, ulysses);
    return readers % heads_per_stage == 0 || heads_per_stage % readers == 0;
}

/* Numbers into words; the caller holds one back until it knows whether it is the last. */
static void mesh_list_add(char text[MESH_LIST_BYTES], const char *glue, int64_t value)
{
    size_t length = strlen(text);
    int written = snprintf(text + length, MESH_LIST_BYTES - length, "%s%lld",
                           length > 0 ? glue : "", (long long)value);
    must(written > 0 && (size_t)written < MESH_LIST_BYTES - length);
}

void mesh_ring_list(int64_t ranks, char ret_text[MESH_LIST_BYTES])
{
    mesh_ulysses_list(ranks, ranks, ranks, ret_text); /* with as many heads, any divisor */
}

void mesh_ulysses_list(int64_t heads, int64_t kv_heads, int64_t ranks,
                       char ret_text[MESH_LIST_BYTES])
{
    int64_t found = 1;
    ret_text[0] = '\0';
    for (int64_t c = 2; c <= ranks; c++) {
        if (ranks % c != 0 || !mesh_ulysses_legal(heads, kv_heads, c))
            continue;
        mesh_list_add(ret_text, ", ", found);
        found = c;
    }
    mesh_list_add(ret_text, " or ", found);
}

void mesh_stage_list(int64_t heads, int64_t kv_heads, int64_t ulysses,
                     char ret_text[MESH_LIST_BYTES])
{
    must(mesh_ulysses_legal(heads, kv_heads, ulysses));
    int64_t found = 1;
    ret_text[0] = '\0';
    for (int64_t u = 2; u <= heads / ulysses; u++) {
        if (!mesh_stage_legal(heads, kv_heads, ulysses, u))
            continue;
        mesh_list_add(ret_text, ", ", found);
        found = u;
    }
    mesh_list_add(ret_text, " or ", found);
}

struct mesh_heads mesh_heads_make(int64_t heads, int64_t kv_heads, int64_t ulysses,
                                  int64_t heads_per_stage)
{
    must(mesh_stage_legal(heads, kv_heads, ulysses, heads_per_stage));
    int64_t readers = mesh_kv_readers(heads, kv_heads, ulysses);
    int64_t owned = heads / ulysses;
    return (struct mesh_heads){
        .heads = heads,
        .kv_heads = kv_heads,
        .owned = owned,
        .kv_owned = owned / readers,
        .sharers = ulysses > kv_heads ? ulysses / kv_heads : 1,
        .per_stage = heads_per_stage,
        .stages = owned / heads_per_stage,
        .kv_stages = readers > heads_per_stage ? readers / heads_per_stage : 1,
        .kv_staged = heads_per_stage > readers ? heads_per_stage / readers : 1};
}

int64_t mesh_heads_first(const struct mesh_heads *heads, int ulysses)
{
    must(ulysses >= 0 && ulysses * heads->owned < heads->heads);
    return ulysses * heads->owned;
}

int64_t mesh_heads_kv_first(const struct mesh_heads *heads, int ulysses)
{
    return mesh_heads_first(heads, ulysses) / (heads->heads / heads->kv_heads);
}

struct mesh_stage mesh_stage_at(const struct mesh_heads *heads, int64_t stage)
{
    must(stage >= 0 && stage < heads->stages);
    return (struct mesh_stage){.head = stage * heads->per_stage,
                               .kv = stage / heads->kv_stages * heads->kv_staged,
                               .kv_first = stage % heads->kv_stages == 0,
                               .kv_last = (stage + 1) % heads->kv_stages == 0};
}

struct mesh_seq mesh_seq_make(const struct mesh *mesh, int64_t tokens)
{
    must(tokens >= 0);
    int chunks = mesh->ring > 1 ? 2 * mesh->ring : 1;
    int64_t unit = (int64_t)chunks * mesh->ulysses;
    int64_t padded = (tokens + unit - 1) / unit * unit;
    return (struct mesh_seq){.tokens = tokens,
                             .padded = padded,
                             .chunk = padded / chunks,
                             .chunks = chunks,
                             .ring = mesh->ring,
                             .ulysses = mesh->ulysses,
                             .rows = padded / mesh->ring,
                             .shard = padded / mesh->ring / mesh->ulysses};
}

/* The chunk that is part 0 or 1 of a ring index's rows. */
static int mesh_chunk(const struct mesh_seq *seq, int ring, int part)
{
    return part == 0 ? ring : seq->chunks - 1 - ring;
}

int64_t mesh_seq_position(const struct mesh_seq *seq, int ring, int64_t row)
{
    must(ring >= 0 && ring < seq->ring && row >= 0 && row < seq->rows);
    return mesh_chunk(seq, ring, row >= seq->chunk) * seq->chunk + row % seq->chunk;
}

int mesh_seq_owner(const struct mesh_seq *seq, int64_t position, int64_t *ret_row)
{
    must(position >= 0 && position < seq->padded);
    int chunk = (int)(position / seq->chunk);
    bool second = chunk >= seq->ring; /* never with ring 1: there is one chunk */
    *ret_row = position % seq->chunk + (second ? seq->chunk : 0);
    return second ? seq->chunks - 1 - chunk : chunk;
}

int mesh_seq_spans(const struct mesh_seq *seq, int ring, int ulysses, struct mesh_span ret[2])
{
    must(ulysses >= 0 && ulysses < seq->ulysses);
    int spans = 0;
    for (int64_t row = 0; row < seq->shard;) {
        int64_t ring_row = ulysses * seq->shard + row;
        int64_t to_chunk_end = seq->chunk - ring_row % seq->chunk, left = seq->shard - row;
        must(spans < 2);
        ret[spans] = (struct mesh_span){.position = mesh_seq_position(seq, ring, ring_row),
                                        .row = row,
                                        .count = left < to_chunk_end ? left : to_chunk_end};
        row += ret[spans++].count;
    }
    return spans;
}

struct mesh_ring_step mesh_ring_step(const struct mesh_seq *seq, int ring, int step)
{
    must(ring >= 0 && ring < seq->ring && step >= 0 && step < seq->ring);
    struct mesh_ring_step out = {.from = (ring - step + seq->ring) % seq->ring};
    int parts = seq->ring > 1 ? 2 : 1;
    for (int q = 0; q < parts; q++) {
        for (int k = 0; k < parts; k++) {
            struct mesh_block block = {.q_chunk = mesh_chunk(seq, ring, q),
                                       .k_chunk = mesh_chunk(seq, out.from, k),
                                       .q_part = q,
                                       .k_part = k};
            block.causal = block.q_chunk == block.k_chunk;
            if (block.k_chunk > block.q_chunk)
                continue;
            must(out.blocks < 3);
            out.block[out.blocks++] = block;
        }
    }
    return out;
}

bool mesh_block_rectangle(const struct mesh_seq *seq, const struct mesh_block *block,
                          int64_t doc_first, int64_t doc_end, struct mesh_rectangle *ret)
{
    int64_t q_first = block->q_chunk * seq->chunk, k_first = block->k_chunk * seq->chunk;
    int64_t k_end = k_first + seq->chunk;
    must(!block->causal && doc_first < k_end && doc_end >= k_end);
    if (doc_end <= q_first)
        return false;
    int64_t k_skip = doc_first > k_first ? doc_first - k_first : 0;
    int64_t q_rows = doc_end - q_first;
    *ret = (struct mesh_rectangle){.q_row = block->q_part * seq->chunk,
                                   .q_rows = q_rows < seq->chunk ? q_rows : seq->chunk,
                                   .k_row = block->k_part * seq->chunk + k_skip,
                                   .k_rows = seq->chunk - k_skip};
    return true;
}
