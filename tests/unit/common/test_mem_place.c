/* mem_place: on random buffers no byte is needed by two at once, judged byte range by byte range
 * and phase by phase; blocks are no larger than they must be where that is known. */
#include "common/mem_place.h"

#include "common/mem.h"
#include "common/rng.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/testing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS_MAX = 40, UNIT = MEM_ALIGN_BYTES, UNITS_MAX = 4096 };

static uint64_t draw(uint64_t stream, uint64_t index, uint64_t bound)
{
    return rng_u64(testing_seed(), stream, index) % bound;
}

/* Every unit of the block, in every phase, is needed by at most one buffer. */
static void check_bytes(const struct mem_buffer *buffers, int64_t count, int64_t bytes)
{
    static uint8_t used[UNITS_MAX];
    assert_true(bytes / UNIT <= UNITS_MAX);
    for (int phase = 0; phase < 64; phase++) {
        memset(used, 0, sizeof used);
        for (int64_t i = 0; i < count; i++) {
            if ((buffers[i].phases >> phase & 1) == 0 || buffers[i].arena != MEM_ARENA_DEVICE)
                continue;
            assert_int_equal(buffers[i].offset % MEM_ALIGN_BYTES, 0);
            for (int64_t at = buffers[i].offset / UNIT;
                 at * UNIT < buffers[i].offset + buffers[i].bytes; at++) {
                assert_true(at * UNIT < bytes);
                if (used[at]++ != 0)
                    fail_msg("phase %d, buffer %" PRId64 ", ITHACA_TEST_SEED=%" PRIu64, phase, i,
                             testing_seed());
            }
        }
    }
}

/* The most that is needed in one phase: no block can be smaller. */
static int64_t least(const struct mem_buffer *buffers, int64_t count)
{
    int64_t most = 0;
    for (int phase = 0; phase < 64; phase++) {
        int64_t sum = 0;
        for (int64_t i = 0; i < count; i++)
            if (buffers[i].phases >> phase & 1 && buffers[i].arena == MEM_ARENA_DEVICE)
                sum += mem_buffer_room(&buffers[i]);
        most = sum > most ? sum : most;
    }
    return most;
}

static uint64_t random_phases(uint64_t round, uint64_t i)
{
    uint64_t first = draw(1, round * 1000 + i, 64), length = 1 + draw(2, round * 1000 + i, 20);
    uint64_t phases = UINT64_C(1) << first;
    for (uint64_t p = first; p < first + length && p < 64; p++)
        phases |= UINT64_C(1) << p;
    if (draw(3, round * 1000 + i, 4) == 0) /* used again later */
        phases |= UINT64_C(1) << draw(4, round * 1000 + i, 64);
    return phases;
}

static void test_random(void **state)
{
    struct err err = {0};
    double waste = 0;
    enum { ROUNDS = 300 };
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct mem_buffer buffers[BUFFERS_MAX] = {0};
        int64_t count = (int64_t)draw(5, round, BUFFERS_MAX + 1), bytes = -1;
        for (int64_t i = 0; i < count; i++)
            buffers[i] = (struct mem_buffer){
                .index = (int32_t)i,
                .arena =
                    draw(6, round * 1000 + (uint64_t)i, 8) == 0 ? MEM_ARENA_HOST : MEM_ARENA_DEVICE,
                .phases = random_phases(round, (uint64_t)i),
                .bytes = (int64_t)draw(7, round * 1000 + (uint64_t)i, 100 * UNIT),
                .offset = -1};
        assert_int_equal(mem_place(buffers, count, MEM_ARENA_DEVICE, &bytes, &err), 0);
        check_bytes(buffers, count, bytes);
        assert_true(mem_place_check(buffers, count, MEM_ARENA_DEVICE, bytes));
        for (int64_t i = 0; i < count; i++)
            assert_true((buffers[i].arena == MEM_ARENA_HOST) == (buffers[i].offset == -1));
        int64_t need = least(buffers, count);
        assert_true(bytes >= need);
        waste += need > 0 ? (double)(bytes - need) / (double)need : 0;
    }
    print_message("blocks are %.1f%% above the least possible\n", 100 * waste / ROUNDS);
}

#define BUFFER(units, phases_)                   \
    {                                            \
        .bytes = (units)*UNIT, .phases = phases_ \
    }

static void test_small(void **state)
{
    struct err err = {0};
    int64_t bytes = -1;
    /* Needed one after the other: all in the largest's place. */
    struct mem_buffer chain[] = {BUFFER(3, 1), BUFFER(5, 2), BUFFER(4, 4)};
    assert_int_equal(mem_place(chain, 3, MEM_ARENA_DEVICE, &bytes, &err), 0);
    assert_int_equal(bytes, 5 * UNIT);
    /* Two in one phase beside each other, both upon a third. */
    struct mem_buffer pair[] = {BUFFER(6, 1), BUFFER(2, 2), BUFFER(4, 2)};
    assert_int_equal(mem_place(pair, 3, MEM_ARENA_DEVICE, &bytes, &err), 0);
    assert_int_equal(bytes, 6 * UNIT);
    /* All at once: their sum, whatever their order. */
    struct mem_buffer sum[] = {BUFFER(1, 7), BUFFER(3, 7), BUFFER(2, 7)};
    assert_int_equal(mem_place(sum, 3, MEM_ARENA_DEVICE, &bytes, &err), 0);
    assert_int_equal(bytes, 6 * UNIT);
    /* Sizes are rounded up, empty buffers take nothing. */
    struct mem_buffer odd[] = {
        {.bytes = 1, .phases = 1}, {.bytes = UNIT + 1, .phases = 1}, {.bytes = 0, .phases = 1}};
    assert_int_equal(mem_place(odd, 3, MEM_ARENA_DEVICE, &bytes, &err), 0);
    assert_int_equal(bytes, 3 * UNIT);
    assert_int_equal(mem_place(odd, 0, MEM_ARENA_DEVICE, &bytes, &err), 0);
    assert_int_equal(bytes, 0);
}

/* What mem_place_check() is for. */
static void test_check_finds(void **state)
{
    struct mem_buffer buffers[] = {BUFFER(2, 1), BUFFER(2, 3)};
    buffers[1].offset = 2 * UNIT;
    assert_true(mem_place_check(buffers, 2, MEM_ARENA_DEVICE, 4 * UNIT));
    assert_false(mem_place_check(buffers, 2, MEM_ARENA_DEVICE, 4 * UNIT - 1));
    buffers[1].offset = UNIT;
    assert_false(mem_place_check(buffers, 2, MEM_ARENA_DEVICE, 4 * UNIT));
    buffers[1].phases = 2; /* not needed at once */
    assert_true(mem_place_check(buffers, 2, MEM_ARENA_DEVICE, 4 * UNIT));
    buffers[1].offset = UNIT / 2;
    assert_false(mem_place_check(buffers, 2, MEM_ARENA_DEVICE, 4 * UNIT));
}

static void test_no_memory(void **state)
{
    struct err err = {0};
    int64_t bytes = 0, live = mem_live();
    struct mem_buffer buffers[] = {BUFFER(2, 1), BUFFER(2, 3)};
    for (int64_t n = 1; n <= 2; n++) {
        mem_fault_after(n);
        assert_int_equal(mem_place(buffers, 2, MEM_ARENA_DEVICE, &bytes, &err), -ERR_NOMEM);
        assert_int_equal(mem_live(), live);
    }
    mem_fault_after(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_small),
                                       cmocka_unit_test(test_check_finds),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
