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

static int64_t mesh_between(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

int64_t mesh_seq_rows_before(const struct mesh_seq *seq, int ring, int64_t position)
{
    must(ring >= 0 && ring < seq->ring && position >= 0 && position <= seq->padded);
    if (seq->ring == 1)
        return position;
    return mesh_between(position - ring * seq->chunk, 0, seq->chunk) +
           mesh_between(position - (seq->chunks - 1 - ring) * seq->chunk, 0, seq->chunk);
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
    struct mesh_ring_step out = {.from = (ring - step + seq->ring) % seq->ring,
                                 .causal = step == 0,
                                 .q_rows = seq->rows,
                                 .k_rows = seq->rows};
    if (out.from < ring) { /* its first chunk comes before all queries, its second after them */
        out.k_rows = seq->chunk;
    } else if (out.from > ring) { /* both come after the first chunk, before the second */
        out.q_row = seq->chunk;
        out.q_rows = seq->chunk;
    }
    return out;
}

bool mesh_ring_clip(const struct mesh_seq *seq, int ring, int64_t doc_first, int64_t doc_end,
                    struct mesh_ring_step *step)
{
    must(!step->causal);
    if (seq->rows == 0)
        return false;
    int64_t query = mesh_seq_position(seq, ring, step->q_row);
    must(doc_first <= query && query < doc_end);
    int64_t k_end = step->k_row + step->k_rows;
    step->k_row = mesh_seq_rows_before(seq, step->from, doc_first);
    step->k_rows = k_end - step->k_row;
    step->q_rows = mesh_seq_rows_before(seq, ring, doc_end) - step->q_row;
    return step->k_rows > 0;
}
