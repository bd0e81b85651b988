/* A device's call fails, any of a step and an evaluation: the step ends with its error, whatever
 * stands between, and the rank can be closed. On the CPU no call fails by itself. */
#include "tests/lib/failing_device.h"
#include "tests/lib/rank_scene.h"
#include "worker/eval.h"
#include "worker/step.h"

#define FIELDS "\"seq_len\":64,\"max_steps\":5,\"batch\":{\"sequences\":2,\"grad_accum\":2}"

static int step_and_evaluate(struct rank *rank, struct err *err)
{
    struct step_result step;
    struct eval_result eval;
    TRY(step_run(rank, 1, &step, err));
    return eval_run(rank, &eval, err);
}

static void every_call_fails_once(struct rank_scene *s)
{
    int runs = 0;
    train_scene_many(&s->scene, "valid.tok");
    do {
        rank_scene_begin(s);
        failing_device_wrap(s->rank.device);
        s->err = (struct err){0};
        int rc = step_and_evaluate(&s->rank, &s->err);
        rank_close(&s->rank);
        const char *failed = failing_device_failed;
        if (failed == NULL ? rc != 0 : rc != -ERR_DEVICE || strstr(s->err.text, failed) == NULL)
            fail_msg("%s failed: rc %d: %s", failed != NULL ? failed : "nothing", rc, s->err.text);
        runs++;
    } while (failing_device_failed != NULL);
    print_message("%d calls have failed\n", runs - 1);
    assert_true(runs > 5);
    train_scene_close(&s->scene);
    (void)testing_free(NULL);
    assert_int_equal(mem_live(), 0);
}

static void test_plain(void **state)
{
    struct rank_scene s;
    rank_scene_prepare(&s, FIELDS);
    every_call_fails_once(&s);
}

/* Of the memory stack what one rank has. */
static void test_stack(void **state)
{
    static const struct job_spec stacks[] = {
        {.recompute = JOB_recompute_INPUT, .offload = JOB_offload_HOST, .states = JOB_states_HOST},
        {.recompute = JOB_recompute_ATTENTION,
         .keep_input_every = 2,
         .offload = JOB_offload_FILE,
         .stream_residual = JOB_toggle_ON},
        {.recompute = JOB_recompute_ATTENTION,
         .keep_input_every = 1,
         .offload = JOB_offload_HOST,
         .offload_layers = 1,
         .lora = true,
         .lora_r = 3,
         .lora_dropout = 0.2,
         .lora_modules = (1 << JOB_lora_module_COUNT) - 1}};
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++) {
        struct rank_scene s;
        rank_scene_prepare(&s, FIELDS);
        struct job_spec *spec = &s.scene.plan.spec;
        spec->recompute = stacks[i].recompute;
        spec->keep_input_every = stacks[i].keep_input_every;
        spec->tile_mlp = 24;
        spec->tile_loss = 16;
        spec->offload = stacks[i].offload;
        spec->offload_layers = stacks[i].offload_layers;
        spec->stream_residual = stacks[i].stream_residual;
        spec->states = stacks[i].states;
        spec->lora = stacks[i].lora;
        spec->lora_r = stacks[i].lora_r;
        spec->lora_dropout = stacks[i].lora_dropout;
        spec->lora_modules = stacks[i].lora_modules;
        every_call_fails_once(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plain), cmocka_unit_test(test_stack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
