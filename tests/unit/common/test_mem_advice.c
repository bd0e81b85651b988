/* mem_advice: what a refusal proposes, job by job. Each set of changes that a row names makes the
 * job fit by itself (checked by the plan with them), with the need that is said. */
#include "common/mem_advice.h"

#include "common/mem.h"
#include "tests/lib/long_job.h"

#include <stdlib.h>
#include <string.h>

#define GIB ((int64_t)1 << 30)

/* Does what the words of a change say, and no more. */
static void follow(char *words, struct job_spec *spec)
{
    static const char every[] = ", keep_input_every \"auto\"";
    static const char degrees[] = ", ulysses and ring \"auto\"";
    char *comma = strchr(words, ',');
    if (comma != NULL && strcmp(comma, every) == 0)
        spec->keep_input_every = JOB_AUTO;
    else if (comma != NULL && strcmp(comma, degrees) == 0)
        spec->ulysses = spec->ring = JOB_AUTO;
    else
        assert_null(comma);
    if (comma != NULL)
        *comma = '\0';
    if (strcmp(words, "fsdp true") == 0)
        spec->fsdp = true;
    else if (strcmp(words, "batch.grad_accum \"auto\"") == 0)
        spec->grad_accum = JOB_AUTO;
    else if (strcmp(words, "tile_mlp and tile_loss \"auto\"") == 0)
        spec->tile_mlp = spec->tile_loss = JOB_AUTO;
    else if (strcmp(words, "recompute input_and_attention") == 0)
        spec->recompute = JOB_recompute_INPUT_AND_ATTENTION;
    else if (strcmp(words, "recompute input") == 0)
        spec->recompute = JOB_recompute_INPUT;
    else if (strcmp(words, "recompute attention") == 0)
        spec->recompute = JOB_recompute_ATTENTION;
    else if (strcmp(words, "offload host") == 0)
        spec->offload = JOB_offload_HOST;
    else if (strcmp(words, "offload none") == 0)
        spec->offload = JOB_offload_NONE;
    else if (strcmp(words, "offload file") == 0)
        spec->offload = JOB_offload_FILE;
    else if (strcmp(words, "states host_optimizer") == 0)
        spec->states = JOB_states_HOST_OPTIMIZER;
    else if (strcmp(words, "states host") == 0)
        spec->states = JOB_states_HOST;
    else if (strcmp(words, "states device") == 0)
        spec->states = JOB_states_DEVICE;
    else if (strcmp(words, "stream_residual true") == 0)
        spec->stream_residual = JOB_toggle_ON;
    else if (strcmp(words, "context_parallel.kind upipe with heads_per_stage 1") == 0)
        spec->context_kind = JOB_context_kind_UPIPE, spec->heads_per_stage = 1;
    else
        fail_msg("\"%s\" is no change", words);
}

/* "a and b gives 12.3 GiB", or "seq_len N fits with all else as asked". */
static void check_proposal(const struct mem_ask *ask, char *proposal)
{
    struct err err = {0};
    struct job_spec spec = *ask->spec;
    struct mem_ask changed = *ask;
    struct mem_estimate estimate;
    double need = -1;
    changed.spec = &spec;
    char *gives = strstr(proposal, " gives ");
    if (gives == NULL) {
        long long seq_len = 0;
        assert_int_equal(sscanf(proposal, "seq_len %lld fits with all else as asked", &seq_len), 1);
        spec.seq_len = seq_len;
    } else {
        assert_int_equal(sscanf(gives, " gives %lf GiB", &need), 1);
        *gives = '\0';
        for (char *at = proposal, *next; at != NULL; at = next) {
            next = strstr(at, " and ");
            if (next != NULL && (strncmp(next, " and tile_loss", 14) == 0 ||
                                 strncmp(next, " and ring", 9) == 0)) /* of one change's words */
                next = strstr(next + 1, " and ");
            if (next != NULL) {
                *next = '\0';
                next += strlen(" and ");
            }
            follow(at, &spec);
        }
    }
    if (mem_estimate_make(&changed, &estimate, &err) != 0)
        fail_msg("%s: %s", proposal, err.text);
    assert_true(estimate.fits);
    double is = (double)estimate.plan.peak_device_bytes / (double)GIB;
    if (need >= 0 && !(is > need * 0.999 && is < need * 1.001))
        fail_msg("%s gives %g GiB", proposal, is);
    mem_estimate_done(&estimate);
    if (gives == NULL) { /* the longest: what is a little longer does not fit */
        spec.seq_len += spec.seq_len / 50 + 8192;
        if (mem_estimate_make(&changed, &estimate, &err) == 0) {
            assert_false(estimate.fits);
            mem_estimate_done(&estimate);
        }
    }
}

static const struct {
    const char *model;
    struct job_spec spec;
    int64_t device_gib, host_gib;
    const char *advice;
} rows[] = {
    /* A row is a job, its devices and its host, what is said. */
    /* clang-format off */
    {"llama3-8b",
     {.gpus = 8, .sequences = 1, .seq_len = 4096, .grad_accum = 1, .ulysses = 1, .ring = 1,
      .recompute = JOB_recompute_INPUT, .context_kind = JOB_context_kind_NONE,
      .heads_per_stage = JOB_AUTO, .keep_input_every = JOB_AUTO, .offload = JOB_offload_NONE,
      .states = JOB_states_DEVICE, .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF,
      .tile_mlp = 8192, .tile_loss = 1024},
     80, 0,
     "fsdp true gives 22.03 GiB; "
     "states host_optimizer gives 35.24 GiB; "
     "states host gives 7.372 GiB"},
    {"llama3.2-1b",
     {.gpus = 8, .fsdp = true, .sequences = 8, .seq_len = 262144, .grad_accum = 1, .ulysses = 1,
      .ring = 1, .tile_mlp = 4096, .tile_loss = 1024, .recompute = JOB_recompute_INPUT,
      .context_kind = JOB_context_kind_NONE, .heads_per_stage = JOB_AUTO,
      .keep_input_every = JOB_AUTO, .offload = JOB_offload_NONE, .states = JOB_states_DEVICE,
      .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF},
     30, 200,
     "offload host gives 19.38 GiB; "
     "stream_residual true gives 17.48 GiB; "
     "offload file gives 19.35 GiB; "
     "seq_len 224256 fits with all else as asked"},
    {"llama3.2-1b",
     {.gpus = 1, .fsdp = true, .sequences = 1, .seq_len = 65536, .grad_accum = 1, .ulysses = 1,
      .ring = 1, .tile_mlp = 65536, .tile_loss = 65536, .recompute = JOB_recompute_INPUT,
      .context_kind = JOB_context_kind_NONE, .heads_per_stage = JOB_AUTO,
      .keep_input_every = JOB_AUTO, .offload = JOB_offload_NONE, .states = JOB_states_DEVICE,
      .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF},
     70, 0,
     "tile_mlp and tile_loss \"auto\" gives 26.89 GiB; "
     "offload host gives 67.84 GiB; "
     "states host_optimizer gives 58.07 GiB; "
     "seq_len 62464 fits with all else as asked"},
    {"llama3-8b",
     {.gpus = 8, .fsdp = true, .sequences = 1, .seq_len = 1048576, .grad_accum = 1,
      .context_kind = JOB_context_kind_ULYSSES, .ulysses = 8, .ring = 1, .tile_mlp = 8192,
      .tile_loss = 1024, .recompute = JOB_recompute_INPUT, .heads_per_stage = JOB_AUTO,
      .keep_input_every = JOB_AUTO, .offload = JOB_offload_NONE, .states = JOB_states_DEVICE,
      .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF},
     58, 1000,
     "context_parallel.kind upipe with heads_per_stage 1 gives 56.77 GiB; "
     "offload host gives 30.3 GiB; "
     "states host_optimizer gives 50.07 GiB; "
     "seq_len 962560 fits with all else as asked"},
    {"llama3-8b",
     {.gpus = 8, .fsdp = true, .sequences = 1, .seq_len = 262144, .grad_accum = 1, .ulysses = 1,
      .ring = 1, .tile_mlp = 8192, .tile_loss = 1024, .recompute = JOB_recompute_INPUT,
      .context_kind = JOB_context_kind_NONE, .heads_per_stage = JOB_AUTO,
      .keep_input_every = JOB_AUTO, .offload = JOB_offload_NONE, .states = JOB_states_DEVICE,
      .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF},
     80, 1000,
     "context_parallel.kind upipe with heads_per_stage 1, ulysses and ring \"auto\" gives "
     "31.05 GiB; "
     "offload host gives 48.31 GiB; "
     "stream_residual true gives 44.69 GiB; "
     "seq_len 176128 fits with all else as asked"},
    {"llama3-8b",
     {.gpus = 8, .fsdp = true, .sequences = 8, .seq_len = 65536, .grad_accum = 1, .ulysses = 1,
      .ring = 1, .tile_mlp = 8192, .tile_loss = 1024, .recompute = JOB_recompute_NONE,
      .context_kind = JOB_context_kind_NONE, .heads_per_stage = JOB_AUTO,
      .keep_input_every = JOB_AUTO, .offload = JOB_offload_NONE, .states = JOB_states_DEVICE,
      .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF},
     80, 0,
     "recompute input_and_attention gives 56.83 GiB; "
     "recompute attention gives 46.33 GiB; "
     "recompute input gives 41.09 GiB; "
     "seq_len 51200 fits with all else as asked"},
    {"llama3-8b",
     {.gpus = 1, .fsdp = true, .sequences = 1, .seq_len = 4096, .grad_accum = 1, .ulysses = 1,
      .ring = 1, .tile_mlp = 4096, .tile_loss = 1024, .recompute = JOB_recompute_INPUT,
      .context_kind = JOB_context_kind_NONE, .heads_per_stage = JOB_AUTO,
      .keep_input_every = JOB_AUTO, .offload = JOB_offload_NONE, .states = JOB_states_DEVICE,
      .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF},
     80, 500,
     "states host_optimizer gives 34.49 GiB; "
     "states host gives 6.622 GiB"},
    {"llama3-8b",
     {.gpus = 1, .fsdp = true, .sequences = 1, .seq_len = 32768, .grad_accum = 1, .ulysses = 1,
      .ring = 1, .tile_mlp = 4096, .tile_loss = 1024, .recompute = JOB_recompute_INPUT,
      .states = JOB_states_HOST_OPTIMIZER, .context_kind = JOB_context_kind_NONE,
      .heads_per_stage = JOB_AUTO, .keep_input_every = JOB_AUTO, .offload = JOB_offload_NONE,
      .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF},
     42, 500,
     "context_parallel.kind upipe with heads_per_stage 1, ulysses and ring \"auto\" gives "
     "41.93 GiB; "
     "offload host gives 35.44 GiB; "
     "states host gives 14.38 GiB; "
     "seq_len 28672 fits with all else as asked"},
    {"llama3-8b",
     {.gpus = 8, .fsdp = true, .sequences = 1, .seq_len = 8388608, .grad_accum = 1,
      .context_kind = JOB_context_kind_UPIPE, .ulysses = 8, .ring = 1, .heads_per_stage = 1,
      .tile_mlp = 8192, .tile_loss = 1024, .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 8, .offload = JOB_offload_HOST, .states = JOB_states_DEVICE,
      .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF},
     60, 4000,
     "states host_optimizer gives 55.15 GiB; "
     "states host gives 51.45 GiB; "
     "stream_residual true gives 50.72 GiB; "
     "seq_len 7247872 fits with all else as asked"},
    {"llama3-8b",
     {.gpus = 8, .fsdp = true, .sequences = 1, .seq_len = 1048576, .grad_accum = 1,
      .context_kind = JOB_context_kind_UPIPE, .ulysses = 8, .ring = 1, .heads_per_stage = 1,
      .tile_mlp = 8192, .tile_loss = 1024, .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 1, .offload = JOB_offload_HOST, .states = JOB_states_DEVICE,
      .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF},
     40, 100,
     "offload file gives 25.77 GiB; "
     "seq_len 463872 fits with all else as asked"},
    {"llama3.2-1b",
     {.gpus = 1, .fsdp = true, .sequences = 1, .seq_len = 8192, .grad_accum = 1, .ulysses = 1,
      .ring = 1, .tile_mlp = 4096, .tile_loss = 1024, .recompute = JOB_recompute_INPUT,
      .offload = JOB_offload_HOST, .states = JOB_states_HOST,
      .context_kind = JOB_context_kind_NONE, .heads_per_stage = JOB_AUTO,
      .keep_input_every = JOB_AUTO, .stream_residual = JOB_toggle_OFF,
      .overlap = JOB_overlap_OFF},
     80, 15,
     "states host_optimizer gives 6.918 GiB; "
     "states device gives 20.67 GiB"},
    {"llama3.2-1b",
     {.gpus = 1, .fsdp = true, .sequences = 1, .seq_len = 32768, .grad_accum = 1, .ulysses = 1,
      .ring = 1, .tile_mlp = 4096, .tile_loss = 1024, .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 1, .offload = JOB_offload_HOST, .context_kind = JOB_context_kind_NONE,
      .heads_per_stage = JOB_AUTO, .states = JOB_states_DEVICE, .stream_residual = JOB_toggle_OFF,
      .overlap = JOB_overlap_OFF},
     22, 1,
     "offload file gives 21.26 GiB; "
     "seq_len 16384 fits with all else as asked"},
    {"llama3.2-1b",
     {.gpus = 1, .fsdp = true, .sequences = 1, .seq_len = 8192, .grad_accum = 1, .ulysses = 1,
      .ring = 1, .tile_mlp = 4096, .tile_loss = 1024, .recompute = JOB_recompute_INPUT,
      .context_kind = JOB_context_kind_NONE, .heads_per_stage = JOB_AUTO,
      .keep_input_every = JOB_AUTO, .offload = JOB_offload_NONE, .states = JOB_states_DEVICE,
      .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF},
     1, 1,
     ""},
    {"llama3-8b",
     {.fsdp = true, .ring = 1, .tile_mlp = 4096, .tile_loss = 1024,
      .context_kind = JOB_context_kind_NONE, .heads_per_stage = JOB_AUTO,
      .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF, .ulysses = 1, .gpus = 8,
      .sequences = 8, .grad_accum = 1, .seq_len = 524288, .recompute = JOB_recompute_INPUT,
      .keep_input_every = JOB_AUTO, .offload = JOB_offload_HOST, .states = JOB_states_HOST},
     60, 3000,
     "batch.grad_accum \"auto\" and context_parallel.kind upipe with heads_per_stage 1, "
     "ulysses and ring \"auto\" gives 8.654 GiB; "
     "seq_len 523264 fits with all else as asked"},
    {"llama3.2-1b",
     {.fsdp = true, .ring = 1, .tile_mlp = 4096, .tile_loss = 1024,
      .context_kind = JOB_context_kind_NONE, .heads_per_stage = JOB_AUTO,
      .stream_residual = JOB_toggle_OFF, .overlap = JOB_overlap_OFF, .ulysses = 1, .gpus = 1,
      .sequences = 1, .grad_accum = 1, .seq_len = 16384, .recompute = JOB_recompute_ATTENTION,
      .keep_input_every = 1, .offload = JOB_offload_HOST, .offload_layers = 16,
      .states = JOB_states_DEVICE},
     80, 1,
     "recompute input, keep_input_every \"auto\" gives 20.73 GiB; "
     "offload file gives 20.8 GiB; "
     "seq_len 7168 fits with all else as asked"},
    /* clang-format on */
};

static void test_rows(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err err = {0};
        struct model_shape shape;
        CLEANUP(buf_done) struct buf advice;
        buf_init(&advice, 4096);
        assert_int_equal(model_shape_build(model_published_find(rows[i].model), &shape, &err), 0);
        const struct mem_ask ask = {.shape = &shape,
                                    .spec = &rows[i].spec,
                                    .backend = MEM_BACKEND_CUDA,
                                    .ranks_max = 8,
                                    .device_bytes = rows[i].device_gib * GIB,
                                    .host_bytes = rows[i].host_gib * GIB};
        if (mem_advice_write(&ask, &advice, &err) != 0)
            fail_msg("row %zu: %s", i, err.text);
        if (strcmp(buf_str(&advice), rows[i].advice) != 0)
            fail_msg("row %zu is\n%s\n", i, buf_str(&advice));
        CLEANUP(mem_free_ptr) char *text = mem_strdup(buf_str(&advice));
        for (char *each = text, *next; *each != '\0'; each = next) {
            next = each + strcspn(each, ";");
            if (*next != '\0') {
                *next = '\0';
                next += strlen("; ");
            }
            check_proposal(&ask, each);
        }
        model_shape_done(&shape);
    }
}

static void test_no_memory(void **state)
{
    struct err err = {0};
    struct model_shape shape;
    long_job_shape(&shape);
    const struct job_spec spec = long_job(16 << 20);
    const struct mem_ask ask = {.shape = &shape,
                                .spec = &spec,
                                .backend = MEM_BACKEND_CUDA,
                                .ranks_max = 8,
                                .device_bytes = 80 * GIB,
                                .host_bytes = 1000 * GIB};
    CLEANUP(buf_done) struct buf small;
    buf_init(&small, 8);
    assert_int_equal(mem_advice_write(&ask, &small, &err), -ERR_TOO_LARGE);
    model_shape_done(&shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
