/* Every command while memory runs out: each of its allocations fails in turn. It says so or does
 * what was asked, and leaves nothing. */
#include "tests/lib/fake_server.h"

/* An answer that suits every question. */
#define ANSWER                                                                              \
    "{\"id\":\"file-1\",\"data\":[{\"id\":\"a\",\"bytes\":0,\"created_at\":1,\"status\":"   \
    "\"processed\",\"filename\":\"f\"}],\"bytes\":1,\"status\":\"succeeded\",\"filename\":" \
    "\"f\",\"choices\":[{\"message\":{\"content\":\"hi\"}}],\"text\":\"t\",\"ithaca\":"     \
    "{\"state\":\"queued\"},\"fine_tuned_model\":\"ft:x\"}"

struct line {
    cli_run_fn *command;
    const char *words[6];
};

static void walk(struct scene *s, const struct line *line)
{
    int failed = 0, good = 0;
    for (s->fault_after = 1; good < 2 && s->fault_after < 500; s->fault_after++) {
        int64_t kept = mem_live();
        CLEANUP(mem_free_ptr) char *out = s->out;       /* of the run before: counted in kept */
        CLEANUP(mem_free_ptr) char *errors = s->errors; /* likewise */
        s->out = s->errors = NULL;
        scene_run(s, line->command, line->words[0], line->words[1], line->words[2], line->words[3],
                  line->words[4], line->words[5], NULL);
        good = s->rc == 0 ? good + 1 : 0;
        failed += s->rc != 0;
        if (s->rc != 0 && s->err.text[0] == '\0')
            fail_msg("%s: %d without a word", line->words[0], s->rc);
        if (mem_live() - kept > 2) /* what this run printed */
            fail_msg("%s, allocation %lld: %lld blocks are left", line->words[0],
                     (long long)s->fault_after, (long long)(mem_live() - kept - 2));
    }
    s->fault_after = 0;
    if (good < 2 || failed == 0)
        fail_msg("%s: %d failed, %d good: %s", line->words[0], failed, good, s->err.text);
}

static void test_commands(void **state)
{
    struct scene *s = *state;
    CLEANUP(mem_free_ptr) char *file = scene_path(s, "train.jsonl");
    CLEANUP(mem_free_ptr) char *job = scene_path(s, "job.json");
    CLEANUP(mem_free_ptr) char *grid = scene_path(s, "grid.json");
    scene_put(s, "grid.json", "{\"base\":{\"model\":\"tiny-llama\"},\"grid\":{\"seq_len\":[64]}}");
    scene_put(s, "train.jsonl", "{}\n");
    scene_put(s, "job.json", "{\"model\":\"m\",\"training_file\":\"file-1\"}");
    scene_put(s, "admin.token", "secret\n");
    scene_reply(s, 200, ANSWER);
    s->server.always = true;
    const struct line lines[] = {
        {cmd_files, {"upload", file}},
        {cmd_files, {"ls"}},
        {cmd_files, {"show", "file-1"}},
        {cmd_files, {"get", "file-1"}},
        {cmd_files, {"rm", "file-1"}},
        {cmd_ls, {"--limit=3"}},
        {cmd_show, {"ftjob-a"}},
        {cmd_events, {"ftjob-a"}},
        {cmd_logs, {"ftjob-a", "--rank=1"}},
        {cmd_models, {NULL}},
        {cmd_cancel, {"ftjob-a"}},
        {cmd_resume, {"ftjob-a", "--checkpoint=b"}},
        {cmd_checkpoints, {"ftjob-a"}},
        {cmd_sample, {"--job=ftjob-a", "--prompt=p"}},
        {cmd_submit, {job, "--set=a.b=1", "--validation-file", file}},
        {cmd_fields, {NULL}},
        {cmd_top, {"--once"}},
        {cmd_compare, {"ftjob-a", "ftjob-b"}},
        {cmd_compare, {"ftjob-a", "ftjob-b", "--csv"}},
        {cmd_resubmit, {"ftjob-a", "--set=gpus=2"}},
        {cmd_profile, {"ftjob-a"}},
        {cmd_du, {"--limit=3"}},
        {cmd_prune, {"--kind=logs", "--older-than=1d"}},
        {cmd_webhooks, {"show"}},
        {cmd_queue, {NULL}},
        {cmd_gpus, {NULL}},
        {cmd_tokens, {"list"}},
        {cmd_help, {"submit"}},
        {cmd_experiment, {"plan", grid}},
        {cmd_experiment, {"plan", grid, "--gpus=1", "--memory=80GB", "--host-memory=100"}},
        {cmd_experiment, {"run", grid, "--set=steps=1"}},
        {cmd_experiment, {"list"}},
        {cmd_experiment, {"show", "exp-1"}},
        {cmd_experiment, {"cancel", "exp-1"}},
        {cmd_man, {"ithaca-job"}},
        {cmd_man, {"ithaca-experiment"}},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        walk(s, &lines[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_commands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
