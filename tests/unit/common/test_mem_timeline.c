/* mem_timeline: the buffers of the peak add up to the plan's peak phase, whatever the settings and
 * however many rows; the text has a line for each phase and a mark for each phase of a buffer. */
#include "common/mem_timeline.h"

#include "common/mem.h"
#include "common/mem_estimate.h"
#include "tests/lib/long_job.h"

#include <stdio.h>
#include <string.h>

static void make(struct mem_plan *plan, bool offload)
{
    struct job_spec spec = long_job(1 << 20);
    spec.sequences = 8;
    spec.grad_accum = spec.ring = spec.tile_mlp = spec.tile_loss = JOB_AUTO;
    if (!offload) {
        spec.recompute = JOB_recompute_NONE;
        spec.keep_input_every = 1;
        spec.offload = JOB_offload_NONE;
    }
    struct model_shape shape;
    struct mem_estimate estimate;
    struct err err = {0};
    long_job_shape(&shape);
    const struct mem_ask ask = {
        .shape = &shape, .spec = &spec, .backend = MEM_BACKEND_CUDA, .ranks_max = 8};
    assert_int_equal(mem_estimate_make(&ask, &estimate, &err), 0);
    *plan = estimate.plan; /* taken over */
    model_shape_done(&shape);
}

static void check_peak(const struct mem_plan *plan, int max)
{
    CLEANUP(json_unref) json_t *peak = mem_timeline_peak_json(plan, max);
    const json_t *buffers = json_object_get(peak, "buffers");
    int64_t sum = 0, before = INT64_MAX;
    size_t rows = json_array_size(buffers);
    assert_string_equal(json_string_value(json_object_get(peak, "peak_phase")),
                        mem_phase_name(plan->peak_phase));
    assert_true(rows > 0 && rows <= (size_t)max + 1);
    for (size_t i = 0; i < rows; i++) {
        const json_t *row = json_array_get(buffers, i);
        int64_t bytes = json_integer_value(json_object_get(row, "bytes"));
        bool others = strcmp(json_string_value(json_object_get(row, "name")), "others") == 0;
        assert_true(bytes > 0 && json_integer_value(json_object_get(row, "count")) > 0);
        assert_true(others ? i == rows - 1 : bytes <= before);
        before = bytes;
        sum += bytes;
    }
    assert_int_equal(sum, plan->phase_bytes[plan->peak_phase]);
}

static void test_peak(void **state)
{
    for (int offload = 0; offload < 2; offload++) {
        struct mem_plan plan;
        make(&plan, offload != 0);
        check_peak(&plan, 1000);
        check_peak(&plan, 3);
        check_peak(&plan, 1);
        mem_plan_done(&plan);
    }
    assert_int_equal(mem_live(), 0);
}

/* The line that begins with a buffer's name: its marks, the last word. */
static const char *marks_of(const char *text, const char *name)
{
    static char marks[MEM_PHASE_COUNT + 1];
    const char *life = strstr(text, "life of each buffer");
    char key[64];
    (void)snprintf(key, sizeof key, "\n  %s ", name);
    const char *line = strstr(life, key);
    assert_non_null(line);
    const char *end = strchr(line + 1, '\n'), *begin = end;
    while (begin[-1] != ' ')
        begin--;
    (void)snprintf(marks, sizeof marks, "%.*s", (int)(end - begin), begin);
    return marks;
}

static void test_text(void **state)
{
    struct mem_plan plan;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 1 << 20);
    make(&plan, true);
    mem_timeline_text(&plan, &text);
    size_t phases = (size_t)__builtin_popcountll(plan.phases);
    for (int p = 0; p < MEM_PHASE_COUNT; p++)
        if (plan.phases >> p & 1)
            assert_non_null(strstr(buf_str(&text), mem_phase_name((enum mem_phase)p)));
    assert_non_null(strstr(buf_str(&text), "# peak\n"));
    const char *marks = marks_of(buf_str(&text), "master");
    assert_int_equal(strlen(marks), phases);
    assert_int_equal(strspn(marks, "#"), phases); /* for ever */
    marks = marks_of(buf_str(&text), "tile_logits");
    assert_int_equal(strlen(marks), phases);
    assert_int_equal(strcspn(marks, "#"), 7); /* the head is the eighth phase */
    assert_int_equal(strspn(marks + 7, "#"), 1);
    mem_plan_done(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_peak), cmocka_unit_test(test_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
