/* mesh: every value of ranks, heads and stages up to H = 128 and C = 64 against what legality means
 * (said here by looking at each head, not by divisibility); sequence shards and ring steps against
 * the plain sequence and the plain causal triangle. */
#include "common/mesh.h"

#include "common/limits.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tests/lib/cmocka.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS_MAX = 128, DEGREE_MAX = 64, SEED = 4321 };

/* ---- ranks */

/* Whether b is in a's group, by coordinates. */
static bool is_peer(enum mesh_group group, struct mesh_place a, struct mesh_place b)
{
    switch (group) {
    case MESH_GROUP_ULYSSES:
        return a.data == b.data && a.ring == b.ring;
    case MESH_GROUP_RING:
        return a.data == b.data && a.ulysses == b.ulysses;
    case MESH_GROUP_CONTEXT:
        return a.data == b.data;
    case MESH_GROUP_DATA:
        return a.ring == b.ring && a.ulysses == b.ulysses;
    case MESH_GROUP_WORLD:
        return true;
    case MESH_GROUP_COUNT:
        break;
    }
    fail();
    return false;
}

/* The group of a rank lists its peers in rising order, each once, itself at `index`. */
static void check_group(const struct mesh *mesh, enum mesh_group group, int rank)
{
    struct mesh_ranks ranks = mesh_group(mesh, group, rank);
    struct mesh_place me = mesh_place(mesh, rank);
    int member = 0;
    for (int peer = 0; peer < mesh->world; peer++) {
        if (!is_peer(group, me, mesh_place(mesh, peer)))
            continue;
        if (ranks.first + member * ranks.stride != peer)
            fail_msg("world %d ring %d ulysses %d group %d rank %d", mesh->world, mesh->ring,
                     mesh->ulysses, (int)group, rank);
        if (peer == rank)
            assert_int_equal(ranks.index, member);
        member++;
    }
    assert_int_equal(ranks.count, member);
}

static void test_ranks(void **state)
{
    for (int world = 1; world <= LIMIT_RANKS; world += world < 16 ? 1 : 8) {
        for (int context = 1; context <= world; context++) {
            for (int ring = 1; ring <= context; ring++) {
                if (world % context != 0 || context % ring != 0)
                    continue;
                struct mesh mesh = mesh_make(world, ring, context / ring);
                assert_int_equal(mesh.data * mesh.ring * mesh.ulysses, world);
                for (int rank = 0; rank < world; rank++) {
                    struct mesh_place place = mesh_place(&mesh, rank);
                    assert_int_equal(
                        (place.data * ring + place.ring) * mesh.ulysses + place.ulysses, rank);
                    assert_int_equal(mesh_group(&mesh, MESH_GROUP_CONTEXT, rank).index,
                                     place.ring * mesh.ulysses + place.ulysses);
                    for (int group = 0; group < MESH_GROUP_COUNT; group++)
                        check_group(&mesh, (enum mesh_group)group, rank);
                }
            }
        }
    }
}

/* ---- heads */

/* Heads first .. first+count-1 in K/V groups of `group` heads and in parts of `part` heads: whether
 * a part reads two K/V heads while a K/V head is read by two parts. Then parts would read unequal
 * K/V heads. */
static bool is_ragged(int64_t first, int64_t count, int64_t group, int64_t part)
{
    bool part_straddles = false, group_split = false;
    for (int64_t h = first + 1; h < first + count; h++) {
        bool same_group = h / group == (h - 1) / group;
        bool same_part = (h - first) / part == (h - 1 - first) / part;
        part_straddles |= same_part && !same_group;
        group_split |= same_group && !same_part;
    }
    return part_straddles && group_split;
}

/* First K/V head (of all) that a Ulysses rank reads: its first query head's. */
static int64_t heads_kv_first(const struct mesh_heads *heads, int c)
{
    return c * heads->owned / (heads->heads / heads->kv_heads);
}

/* All stages of one Ulysses rank: which K/V heads are there, read, returned. Counts reads of each
 * query head by the whole group into seen. */
static void check_stages(const struct mesh_heads *heads, int c, uint8_t *seen)
{
    int64_t group = heads->heads / heads->kv_heads;
    int64_t first = c * heads->owned, kv_first = heads_kv_first(heads, c);
    uint8_t sent[HEADS_MAX] = {0}, back[HEADS_MAX] = {0};
    int64_t there = -1; /* first local K/V head in memory */
    for (int64_t s = 0; s < heads->stages; s++) {
        struct mesh_stage stage = mesh_stage_at(heads, s);
        if (stage.kv_first) {
            there = stage.kv;
            for (int64_t k = 0; k < heads->kv_staged; k++)
                assert_int_equal(sent[stage.kv + k]++, 0); /* each exchanged once */
        }
        assert_int_equal(stage.kv, there);
        for (int64_t i = 0; i < heads->per_stage; i++) {
            int64_t head = first + stage.head + i;
            int64_t kv = stage.kv + i * heads->kv_staged / heads->per_stage;
            assert_int_equal(head / group, kv_first + kv);
            assert_true(kv >= there && kv < there + heads->kv_staged);
            assert_int_equal(back[kv], 0); /* not read after its gradient went home */
            assert_int_equal(seen[head]++, 0);
        }
        for (int64_t k = 0; stage.kv_last && k < heads->kv_staged; k++)
            assert_int_equal(back[stage.kv + k]++, 0);
    }
    for (int64_t k = 0; k < heads->kv_owned; k++)
        assert_true(sent[k] == 1 && back[k] == 1);
    assert_true(kv_first + heads->kv_owned <= heads->kv_heads);
}

static void check_heads(int64_t h, int64_t k, int64_t c, int64_t u)
{
    struct mesh_heads heads = mesh_heads_make(h, k, c, u);
    uint8_t seen[HEADS_MAX] = {0}, readers[HEADS_MAX] = {0};
    for (int rank = 0; rank < c; rank++) {
        check_stages(&heads, rank, seen);
        int64_t first = heads_kv_first(&heads, rank);
        for (int64_t kv = 0; kv < heads.kv_owned; kv++)
            readers[first + kv]++;
        assert_int_equal(first, rank / heads.sharers * heads.kv_owned); /* as mesh.h says */
    }
    for (int64_t i = 0; i < h; i++)
        assert_int_equal(seen[i], 1);
    for (int64_t i = 0; i < k; i++)
        assert_int_equal(readers[i], heads.sharers);
    assert_int_equal(heads.kv_owned, k > c ? k / c : 1);
}

/* The list as numbers, in order; 0 ends. */
static void read_list(const char *text, int64_t *ret_values)
{
    int64_t count = 0;
    for (const char *at = text; *at != '\0';) {
        char *end;
        ret_values[count++] = strtoll(at, &end, 10);
        assert_true(end > at);
        at = end + strspn(end, ", or");
    }
    ret_values[count] = 0;
}

static void test_heads(void **state)
{
    int64_t legal_c = 0, legal_u = 0, checked = 0;
    for (int64_t h = 1; h <= HEADS_MAX; h++) {
        for (int64_t k = 1; k <= h; k++) {
            if (h % k != 0)
                continue;
            for (int64_t c = 1; c <= DEGREE_MAX; c++) {
                bool legal = h % c == 0 && !is_ragged(0, h, h / k, h / c);
                if (mesh_ulysses_legal(h, k, c) != legal)
                    fail_msg("H %d K %d C %d", (int)h, (int)k, (int)c);
                legal_c += legal;
                for (int64_t u = -1; u <= h; u++) {
                    bool fits = legal && u >= 1 && u <= h / c && h / c % u == 0;
                    for (int64_t rank = 0; fits && rank < c; rank++)
                        fits = !is_ragged(rank * (h / c), h / c, h / k, u);
                    if (mesh_stage_legal(h, k, c, u) != fits)
                        fail_msg("H %d K %d C %d u %d", (int)h, (int)k, (int)c, (int)u);
                    legal_u += fits;
                    checked++;
                    if (fits)
                        check_heads(h, k, c, u);
                }
            }
        }
    }
    print_message("%lld (H, K, C, u), %lld legal (H, K, C), %lld legal with u\n",
                  (long long)checked, (long long)legal_c, (long long)legal_u);
    assert_true(legal_u > legal_c && !mesh_ulysses_legal(8, 8, 0));
}

static void test_lists(void **state)
{
    char text[MESH_LIST_BYTES];
    int64_t values[MESH_LIST_BYTES];
    for (int64_t h = 1; h <= HEADS_MAX; h++) {
        for (int64_t k = 1; k <= h; k++) {
            for (int64_t c = 1; h % k == 0 && c <= DEGREE_MAX; c++) {
                mesh_ulysses_list(h, k, c, text); /* c as the number of ranks */
                read_list(text, values);
                int64_t at = 0;
                for (int64_t d = 1; d <= c; d++)
                    if (c % d == 0 && mesh_ulysses_legal(h, k, d))
                        assert_int_equal(values[at++], d);
                assert_int_equal(values[at], 0);
                if (!mesh_ulysses_legal(h, k, c))
                    continue;
                mesh_stage_list(h, k, c, text);
                read_list(text, values);
                at = 0;
                for (int64_t u = 1; u <= h; u++)
                    if (mesh_stage_legal(h, k, c, u))
                        assert_int_equal(values[at++], u);
                assert_int_equal(values[at], 0);
            }
        }
    }
    mesh_ulysses_list(28, 4, 8, text);
    assert_string_equal(text, "1, 2 or 4");
    mesh_ring_list(12, text);
    assert_string_equal(text, "1, 2, 3, 4, 6 or 12");
    mesh_ulysses_list(5, 5, 8, text);
    assert_string_equal(text, "1");
    mesh_stage_list(32, 8, 8, text);
    assert_string_equal(text, "1, 2 or 4");
    mesh_ulysses_list(LIMIT_HEADS, LIMIT_HEADS, LIMIT_RANKS, text);
    assert_string_equal(text, "1, 2, 4, 8, 16, 32 or 64");
    for (int64_t h = 1; h <= LIMIT_HEADS; h++)
        mesh_stage_list(h, h, 1, text); /* the longest lists fit */
}

/* Shapes that people met (R23, R25): 28/4 on 8 ranks is refused, 40/8 on 8 takes any of five. */
static void test_known_shapes(void **state)
{
    assert_false(mesh_ulysses_legal(28, 4, 8));
    assert_true(mesh_ulysses_legal(28, 4, 28));
    assert_false(mesh_ulysses_legal(28, 4, 7));
    assert_true(mesh_ulysses_legal(40, 8, 8));
    assert_true(mesh_stage_legal(40, 8, 8, 1) && mesh_stage_legal(40, 8, 8, 5));
    assert_false(mesh_stage_legal(40, 8, 8, 2));
    assert_false(mesh_ulysses_legal(14, 2, 4));
    assert_true(mesh_ulysses_legal(16, 2, 8));  /* K/V heads are shared by four ranks each */
    assert_false(mesh_ulysses_legal(12, 4, 6)); /* divides H, straddles K/V heads */
    assert_true(mesh_ulysses_legal(12, 4, 12));
    struct mesh_heads heads = mesh_heads_make(12, 12, 4, 3);
    assert_int_equal(heads.kv_owned, 3);  /* 3 each, not 4, 4, 4, 0 */
    heads = mesh_heads_make(32, 2, 8, 2); /* four ranks share a K/V head */
    assert_int_equal(heads.sharers, 4);
    assert_int_equal(heads.kv_stages, 2);
}

/* ---- sequence */

static void check_seq(int ring, int ulysses, int64_t tokens)
{
    struct mesh mesh = mesh_make(ring * ulysses, ring, ulysses);
    struct mesh_seq seq = mesh_seq_make(&mesh, tokens);
    int64_t unit = ring > 1 ? 2 * ring * ulysses : ulysses;
    assert_true(seq.padded % unit == 0 && seq.padded >= tokens && seq.padded < tokens + unit);
    assert_int_equal(seq.shard * ring * ulysses, seq.padded);
    assert_int_equal(seq.chunk * seq.chunks, seq.padded);
    CLEANUP(mem_free_ptr) uint8_t *owner = mem_new((size_t)seq.padded + 1, 1); /* ring index + 1 */
    for (int rank = 0; rank < mesh.world; rank++) {
        struct mesh_place place = mesh_place(&mesh, rank);
        struct mesh_span span[2];
        int64_t row = 0, last = -1;
        int spans = mesh_seq_spans(&seq, place.ring, place.ulysses, span);
        for (int s = 0; s < spans; s++) {
            assert_true(span[s].row == row && span[s].count > 0 && span[s].position > last);
            for (int64_t i = 0; i < span[s].count; i++, row++) {
                int64_t position = span[s].position + i;
                int64_t ring_row = place.ulysses * seq.shard + row;
                assert_int_equal(owner[position], 0);
                owner[position] = (uint8_t)(place.ring + 1);
                assert_int_equal(mesh_seq_position(&seq, place.ring, ring_row), position);
                last = position;
            }
        }
        assert_int_equal(row, seq.shard);
    }
    assert_true(seq.padded == 0 || memchr(owner, 0, (size_t)seq.padded) == NULL);
    for (int r = 0; r < ring; r++) {
        int64_t before = 0;
        for (int64_t position = 0; position < seq.padded; position++) {
            assert_int_equal(mesh_seq_rows_before(&seq, r, position), before);
            before += owner[position] == r + 1;
        }
        assert_int_equal(mesh_seq_rows_before(&seq, r, seq.padded), seq.rows);
    }
}

static void test_sequence(void **state)
{
    for (int ring = 1; ring <= 16; ring++)
        for (int ulysses = 1; ulysses * ring <= DEGREE_MAX; ulysses++)
            for (int64_t tokens = 0; tokens <= 4 * ring * ulysses + 3;
                 tokens += 1 + tokens / 3 * (ring > 4))
                check_seq(ring, ulysses, tokens);
    check_seq(4, 2, 100003);
    check_seq(3, 3, 5 * 18); /* odd degree: the middle slice has two spans */
    struct mesh mesh = mesh_make(2, 1, 2);
    struct mesh_seq seq = mesh_seq_make(&mesh, 7);
    struct mesh_span span[2];
    assert_int_equal(mesh_seq_spans(&seq, 0, 1, span), 1); /* Ulysses alone: contiguous */
    assert_true(span[0].position == 4 && span[0].count == 4);
}

/* Positions beyond 2^32: nothing is cut to 32 bits. */
static void test_long_sequence(void **state)
{
    struct mesh mesh = mesh_make(64, 8, 8);
    struct mesh_seq seq = mesh_seq_make(&mesh, (1LL << 40) + 5);
    for (uint64_t i = 0; i < 10000; i++) {
        int ring = (int)(i % 8);
        int64_t row = (int64_t)rng_below(SEED, RNG_STREAM_TEST, i, (uint64_t)seq.rows);
        int64_t position = mesh_seq_position(&seq, ring, row);
        assert_true(mesh_seq_rows_before(&seq, ring, position) == row);
    }
    assert_true(seq.padded == (1LL << 40) + 128);
}

/* ---- ring */

enum { RING_TOKENS_MAX = 256 };

struct triangle {
    uint8_t seen[RING_TOKENS_MAX][RING_TOKENS_MAX]; /* [query][key] positions: times computed */
};

static void triangle_add(struct triangle *triangle, const struct mesh_seq *seq, int ring, int from,
                         int64_t q_row, int64_t k_row)
{
    triangle->seen[mesh_seq_position(seq, ring, q_row)][mesh_seq_position(seq, from, k_row)]++;
}

/* Document of a position: ends[d] are one past the last; -1 for padding. */
static int64_t document_of(const int64_t *ends, int64_t documents, int64_t position)
{
    for (int64_t d = 0; d < documents; d++)
        if (position < ends[d])
            return d;
    return -1;
}

/* One step as the worker takes it with documents: step 0 masked, else one rectangle. */
static void add_packed(struct triangle *triangle, const struct mesh_seq *seq, int ring,
                       struct mesh_ring_step step, const int64_t *ends, int64_t documents)
{
    int64_t d = document_of(ends, documents, mesh_seq_position(seq, ring, step.q_row));
    bool causal = step.causal;
    if (!causal && (d < 0 || !mesh_ring_clip(seq, ring, d > 0 ? ends[d - 1] : 0, ends[d], &step)))
        return;
    assert_true(step.q_rows > 0 && step.k_rows > 0 && step.k_row >= 0);
    for (int64_t q = step.q_row; q < step.q_row + step.q_rows; q++) {
        int64_t q_document = document_of(ends, documents, mesh_seq_position(seq, ring, q));
        for (int64_t k = step.k_row; k < step.k_row + step.k_rows && (!causal || k <= q); k++) {
            int64_t k_position = mesh_seq_position(seq, step.from, k);
            if (!causal ||
                (q_document >= 0 && q_document == document_of(ends, documents, k_position)))
                triangle_add(triangle, seq, ring, step.from, q, k);
        }
    }
}

/* Without documents. Returns the pairs. */
static int64_t add_plain(struct triangle *triangle, const struct mesh_seq *seq, int ring,
                         const struct mesh_ring_step *step)
{
    int64_t pairs = 0;
    for (int64_t q = step->q_row; q < step->q_row + step->q_rows; q++)
        for (int64_t k = step->k_row; k < step->k_row + step->k_rows && (!step->causal || k <= q);
             k++, pairs++)
            triangle_add(triangle, seq, ring, step->from, q, k);
    return pairs;
}

/* Runs all ring ranks and steps, *packed with documents, *plain without. */
static void run_ring(const struct mesh_seq *seq, const int64_t *ends, int64_t documents,
                     struct triangle *packed, struct triangle *plain)
{
    int64_t pairs_of_step[DEGREE_MAX];
    for (int ring = 0; ring < seq->ring; ring++) {
        int held = ring;
        for (int number = 0; number < seq->ring; number++) {
            struct mesh_ring_step step = mesh_ring_step(seq, ring, number);
            assert_int_equal(step.from, held);
            assert_int_equal(step.causal, number == 0);
            held = (held + seq->ring - 1) % seq->ring; /* received from ring - 1, who held that */
            add_packed(packed, seq, ring, step, ends, documents);
            int64_t pairs = add_plain(plain, seq, ring, &step);
            assert_true(ring == 0 || pairs == pairs_of_step[number]); /* nobody waits */
            pairs_of_step[number] = pairs;
        }
        assert_int_equal(held, ring); /* dk, dv are home after one more hop */
    }
}

static void check_ring(int ring, int ulysses, int64_t tokens, uint64_t round)
{
    struct mesh mesh = mesh_make(ring * ulysses, ring, ulysses);
    struct mesh_seq seq = mesh_seq_make(&mesh, tokens);
    assert_true(seq.padded <= RING_TOKENS_MAX);
    int64_t ends[RING_TOKENS_MAX], documents = 0;
    uint64_t most = round % 2 == 0 ? 5 : (uint64_t)tokens; /* shorter than the ranks, or long */
    for (int64_t at = 0; at < tokens; documents++) {
        at += 1 + (int64_t)rng_below(SEED, RNG_STREAM_TEST + 1,
                                     round * RING_TOKENS_MAX + (uint64_t)at, most);
        ends[documents] = at < tokens ? at : tokens;
        at = ends[documents];
    }
    CLEANUP(mem_free_ptr) struct triangle *packed = mem_new(1, sizeof *packed);
    CLEANUP(mem_free_ptr) struct triangle *plain = mem_new(1, sizeof *plain);
    run_ring(&seq, ends, documents, packed, plain);
    for (int64_t q = 0; q < seq.padded; q++) {
        int64_t d = document_of(ends, documents, q);
        for (int64_t k = 0; k < seq.padded; k++) {
            bool same = d >= 0 && d == document_of(ends, documents, k);
            if (packed->seen[q][k] != (same && k <= q) || plain->seen[q][k] != (k <= q))
                fail_msg("round %llu ring %d ulysses %d tokens %lld query %lld key %lld",
                         (unsigned long long)round, ring, ulysses, (long long)tokens, (long long)q,
                         (long long)k);
        }
    }
}

static void test_ring(void **state)
{
    print_message("seed %d\n", SEED);
    uint64_t round = 0;
    for (int ring = 1; ring <= 9; ring++)
        for (int ulysses = 1; ulysses <= 3; ulysses++)
            for (int64_t tokens = 1; tokens <= 3 * 2 * ring * ulysses && tokens <= 200;
                 tokens += 1 + tokens / 6)
                check_ring(ring, ulysses, tokens, round++);
    check_ring(64, 1, 100, round++);
    check_ring(64, 1, 256, round++);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),    cmocka_unit_test(test_heads),
        cmocka_unit_test(test_lists),    cmocka_unit_test(test_known_shapes),
        cmocka_unit_test(test_sequence), cmocka_unit_test(test_long_sequence),
        cmocka_unit_test(test_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
