/* profile_sums, profile_spans: a profile made by hand, of which every figure is known. */
#include "worker/profile_sums.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"
#include "worker/profile_spans.h"

enum { NAMES = 7, STEP = 0, FORWARD, BACKWARD, GEMM, ADD, GATHER, COPY };
static char names[NAMES][PROFILE_NAME_BYTES] = {"step", "forward",       "backward", "gemm",
                                                "add",  "gather_wait_s", "copy"};

#define EVENT(of, called, from, to)                                                \
    {                                                                              \
        .kind = PROFILE_##of, .name = (called), .begin_ns = (from), .end_ns = (to) \
    }

/* A step of 100: a gemm under a collective and a copy, then a wait for it, then nothing. */
static struct profile_event first[] = {
    {.kind = PROFILE_STEP, .name = STEP, .begin_ns = 1000, .end_ns = 1100, .number = 7},
    EVENT(PHASE, FORWARD, 1000, 1060),
    EVENT(KERNEL, GEMM, 1000, 1030),
    EVENT(COLLECTIVE, GATHER, 1010, 1050),
    EVENT(COPY, COPY, 1020, 1040),
    EVENT(WAIT, GATHER, 1030, 1050),
    EVENT(KERNEL, ADD, 1055, 1060),
    EVENT(PHASE, BACKWARD, 1060, 1100)};
/* Another of 80, all of it gemms, two of them at once. */
static struct profile_event second[] = {
    {.kind = PROFILE_STEP, .name = STEP, .begin_ns = 1010, .end_ns = 1090, .number = 7},
    EVENT(KERNEL, GEMM, 1010, 1060),
    EVENT(KERNEL, GEMM, 1050, 1090)};

static struct profile_file files[2] = {
    {.head = {.rank = 0, .world = 2, .name_count = NAMES, .count = 8},
     .names = names,
     .events = first},
    {.head = {.rank = 1, .world = 2, .name_count = NAMES, .count = 3},
     .names = names,
     .events = second}};
static const struct profile_job job = {.world = 2, .files = files, .began_ns = 1000};

static void test_spans(void **state)
{
    struct profile_spans any, kernels, none;
    struct err err = {0};
    assert_int_equal(
        profile_spans_of(&files[0], PROFILE_BIT(KERNEL) | PROFILE_BIT(COPY), &any, &err), 0);
    assert_int_equal(any.count, 2); /* 1000 to 1040, 1055 to 1060 */
    assert_int_equal(profile_spans_ns(&any), 45);
    assert_int_equal(profile_spans_of(&files[1], PROFILE_BIT(KERNEL), &kernels, &err), 0);
    assert_int_equal(profile_spans_ns(&kernels), 80); /* once, not 90 */
    assert_int_equal(profile_spans_shared_ns(&any, &kernels), 35);
    assert_int_equal(profile_spans_shared_ns(&kernels, &any), 35);
    assert_int_equal(profile_spans_of(&files[1], PROFILE_BIT(COPY), &none, &err), 0);
    assert_int_equal(profile_spans_ns(&none) + profile_spans_shared_ns(&none, &any), 0);
    profile_spans_done(&any);
    profile_spans_done(&kernels);
    profile_spans_done(&none);
}

static void test_figures(void **state)
{
    struct profile_sums sums;
    struct err err = {0};
    assert_int_equal(profile_sums_make(&job, &sums, &err), 0);
    assert_int_equal(sums.steps, 1);
    assert_int_equal(sums.all.step_ns, 180);
    const struct profile_figures *kernels = &sums.kinds[PROFILE_KERNEL];
    assert_int_equal(kernels->count, 2);
    assert_string_equal(kernels->list[0].name, "gemm");
    assert_int_equal(kernels->list[0].count, 3);
    assert_int_equal(kernels->list[0].ns, 30 + 50 + 40);
    assert_int_equal(profile_sums_ns(&sums, PROFILE_KERNEL, "add"), 5);
    assert_int_equal(profile_sums_ns(&sums, PROFILE_WAIT, "gather_wait_s"), 20);
    assert_int_equal(profile_sums_ns(&sums, PROFILE_WAIT, "ring_wait_s"), 0);
    assert_true(profile_sums_share(&sums, 45) == 0.25);
    const struct profile_busy *one = &sums.ranks[0], *two = &sums.ranks[1];
    assert_int_equal(one->kernel_ns, 35);
    assert_int_equal(one->wait_ns, 20);
    assert_int_equal(one->collective_ns, 40);
    assert_int_equal(one->collective_hidden_ns, 20); /* under the gemm */
    assert_int_equal(one->copy_ns, 20);
    assert_int_equal(one->copy_hidden_ns, 10);
    assert_int_equal(one->idle_ns, 45); /* 1050 to 1055, 1060 to 1100 */
    assert_int_equal(two->kernel_ns, 80);
    assert_int_equal(two->idle_ns, 0);
    assert_int_equal(sums.all.idle_ns, 45);
    assert_int_equal(sums.gap_count, 2);
    assert_int_equal(sums.gaps[0].end_ns - sums.gaps[0].begin_ns, 40);
    assert_string_equal(sums.gaps[0].phase, "backward");
    assert_int_equal(sums.gaps[0].step, 7);
    assert_int_equal(sums.gaps[1].begin_ns, 1050);
    assert_string_equal(sums.gaps[1].phase, "forward");
    profile_sums_done(&sums);
    assert_int_equal(mem_live(), 0);
}

/* Of more gaps the longest are told, of alike ones the first. */
static void test_longest_gaps(void **state)
{
    static const int64_t gaps_ns[] = {5, 20, 10, 20, 1, 15}, wanted_ns[PROFILE_GAPS] = {20, 20, 15};
    enum { GAPS = sizeof gaps_ns / sizeof gaps_ns[0] };
    struct profile_event events[1 + GAPS] = {EVENT(STEP, STEP, 0, 0)};
    struct profile_file file = {.head = {.world = 1, .name_count = NAMES, .count = 1 + GAPS},
                                .names = names,
                                .events = events};
    const struct profile_job gapped = {.world = 1, .files = &file};
    struct profile_sums sums;
    struct err err = {0};
    int64_t end_ns = 0;
    for (int i = 0; i < GAPS; i++) { /* a gap, then a kernel */
        int64_t begin_ns = end_ns + gaps_ns[i];
        end_ns = begin_ns + 3;
        events[1 + i] = (struct profile_event)EVENT(KERNEL, GEMM, begin_ns, end_ns);
    }
    events[0].end_ns = end_ns;
    assert_int_equal(profile_sums_make(&gapped, &sums, &err), 0);
    assert_int_equal(sums.all.idle_ns, 71);
    assert_int_equal(sums.gap_count, PROFILE_GAPS);
    for (int g = 0; g < PROFILE_GAPS; g++)
        assert_int_equal(sums.gaps[g].end_ns - sums.gaps[g].begin_ns, wanted_ns[g]);
    assert_int_equal(sums.gaps[0].begin_ns, 5 + 3);
    assert_int_equal(sums.gaps[1].begin_ns, 5 + 20 + 10 + 3 * 3);
    profile_sums_done(&sums);
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spans), cmocka_unit_test(test_figures),
                                       cmocka_unit_test(test_longest_gaps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
