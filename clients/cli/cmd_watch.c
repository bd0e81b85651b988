/* cmd_watch: follows a job's stream to its end. The stream says that something happened; what a job
 * is (state, error, model) is always asked of the job itself, so a missed event cannot mislead. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "clients/cli/progress.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/mem.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WATCH_CHECK_MS = 500 };

struct watch {
    struct cli *cli;
    struct progress progress;
    bool ended; /* the stream said that the job has ended */
};

static double watch_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void watch_metrics(struct watch *watch, const json_t *data)
{
    const json_t *values = json_object_get(data, "metrics");
    double valid = watch_number(values, "valid_loss");
    if (!isnan(valid))
        watch->progress.valid_loss = valid;
    if (json_object_get(values, "loss") == NULL)
        return; /* a series of one rank */
    progress_step(&watch->progress, json_integer_value(json_object_get(data, "step")),
                  watch_number(values, "loss"), watch_number(values, "tokens_per_s"),
                  watch_number(values, "step_time_s"));
    progress_show(&watch->progress);
}

static bool watch_on_event(void *context, const char *event, const char *id, const json_t *data)
{
    struct watch *watch = context;
    watch->ended = strcmp(event, "end") == 0;
    if (watch->cli->json) {
        json_t *line = json_pack("{s:s, s:s, s:O}", "event", event, "id", id, "data", data);
        struct err ignored;
        CLEANUP(buf_done) struct buf text;
        buf_init(&text, LIMIT_JSON_BODY_BYTES);
        if (line != NULL && json_print(line, &text, &ignored) == 0)
            (void)printf("%s\n", buf_str(&text));
        (void)fflush(stdout);
        json_decref(line);
    } else if (strcmp(event, "metrics") == 0) {
        watch_metrics(watch, data);
    } else if (strcmp(event, "event") == 0) {
        const char *message = json_string_value(json_object_get(data, "message"));
        if (message != NULL)
            progress_say(&watch->progress, message);
    } else if (strcmp(event, "state") == 0) {
        int64_t total = json_integer_value(json_object_get(data, "steps_total"));
        if (total > 0)
            watch->progress.steps_total = total;
    }
    return !watch->ended;
}

static void watch_succeeded(const json_t *job, const char *id)
{
    const char *model = json_string_value(json_object_get(job, "fine_tuned_model"));
    const json_t *spec = json_object_get(json_object_get(job, "ithaca"), "spec");
    const char *export =
        json_string_value(json_object_get(json_object_get(spec, "lora"), "export"));
    bool adapters = export != NULL && strcmp(export, "adapter") == 0; /* and no model */
    if (model == NULL) { /* it only measured, and has said what */
        (void)fputs("succeeded\n", stderr);
        return;
    }
    (void)fprintf(stderr, "succeeded: %s\n", model);
    if (!adapters)
        (void)fprintf(stderr, "ask it: ithaca sample --job %s --prompt '...'\n", id);
    (void)fprintf(stderr, "fetch it: ithaca download %s --output DIR\nload it: %s\"DIR\")\n", id,
                  adapters ? "peft.PeftModel.from_pretrained(base, "
                           : "transformers.AutoModelForCausalLM.from_pretrained(");
}

/* The end of a job as a result: its error, or 0. */
static int watch_outcome(struct cli *cli, const json_t *job, struct err *err)
{
    const char *status = json_string_value(json_object_get(job, "status"));
    const char *id = json_string_value(json_object_get(job, "id"));
    const json_t *error = json_object_get(job, "error");
    if (status == NULL)
        return err_set(err, ERR_PROTOCOL, "the server's job has no status");
    if (strcmp(status, "succeeded") == 0) {
        if (!cli->json)
            watch_succeeded(job, id);
        return 0;
    }
    if (strcmp(status, "cancelled") == 0)
        return err_set(err, ERR_CANCELLED, "%s was cancelled", id);
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *code_name = json_string_value(json_object_get(error, "code"));
    enum err_code code = code_name != NULL ? err_code_parse(code_name) : ERR_NONE;
    return err_set(err, code != ERR_NONE ? code : ERR_INTERNAL, "%s %s: %s", id, status,
                   message != NULL ? message : "no reason given");
}

/* Ctrl-C ends the watching, not the job; who pressed it should know. */
static char watch_farewell[256];

static void watch_on_interrupt(int number)
{
    (void)!write(STDERR_FILENO, watch_farewell, strlen(watch_farewell));
    (void)raise(number); /* SA_RESETHAND: now it ends us */
}

static void watch_expect_interrupt(const char *job_id)
{
    struct sigaction action = {.sa_handler = watch_on_interrupt, .sa_flags = (int)SA_RESETHAND};
    (void)snprintf(watch_farewell, sizeof watch_farewell,
                   "\nthe job goes on; see it: ithaca watch %.64s, end it: ithaca cancel %.64s\n",
                   job_id, job_id);
    (void)sigaction(SIGINT, &action, NULL); /* cannot fail for SIGINT */
}

/* How far the check of the job's files is; false: that is over, or the daemon does not say. */
static bool watch_check(struct progress *progress, const json_t *job)
{
    char text[160];
    const json_t *ithaca = json_object_get(job, "ithaca");
    const json_t *at = json_object_get(json_object_get(ithaca, "data"), "preparing");
    const double all = cli_number(at, "bytes_total");
    if (strcmp(cli_text(ithaca, "state"), "validating") != 0)
        return false;
    if (at == NULL)
        return true;
    const double done = all > 0 ? fmin(cli_number(at, "bytes") / all, 1) : 0;
    int length =
        snprintf(text, sizeof text, "checking file %lld of %lld: %.0f%%, %lld rows",
                 cli_whole(at, "file"), cli_whole(at, "files"), 100 * done, cli_whole(at, "rows"));
    if (json_is_true(json_object_get(at, "waiting")))
        (void)snprintf(text, sizeof text, "file %lld of %lld: waiting for another job's tokens",
                       cli_whole(at, "file"), cli_whole(at, "files"));
    if (cli_whole(at, "bad") > 0)
        (void)snprintf(text + length, sizeof text - (size_t)length,
                       ", %lld wrong, the first in line %lld", cli_whole(at, "bad"),
                       cli_whole(json_object_get(at, "fault"), "line"));
    progress_check(progress, done, text);
    return true;
}

/* Until the job's files are checked, which is no event; its stream begins with its first one.
 * *job: as it was, and then as it is. */
static int watch_checks(struct watch *watch, struct client *client, const char *path, json_t **job,
                        struct err *err)
{
    while (!watch->cli->json && watch_check(&watch->progress, *job)) {
        clock_sleep_ms(WATCH_CHECK_MS);
        json_unref(job);
        TRY(client_json(client, NULL, path, NULL, job, err));
    }
    progress_checked(&watch->progress);
    return 0;
}

int cmd_watch_job(struct cli *cli, const char *job_id, struct err *err)
{
    struct client *client = NULL;
    struct watch watch = {.cli = cli};
    CLEANUP(json_unref) json_t *job = NULL;
    CLEANUP(json_unref) json_t *before = NULL;
    CLEANUP(mem_free_ptr) char *path = client_path("/v1/fine_tuning/jobs/", job_id, "");
    CLEANUP(mem_free_ptr) char *stream = path != NULL ? mem_printf("%s/stream", path) : NULL;
    if (stream == NULL)
        return mem_fail(err, strlen(job_id), "a path");
    TRY(cli_client(cli, &client, err));
    TRY(client_json(client, NULL, path, NULL, &before, err));
    progress_init(&watch.progress, stderr);
    watch.progress.steps_total =
        json_integer_value(json_object_get(json_object_get(before, "ithaca"), "steps_total"));
    watch_expect_interrupt(job_id);
    int rc = watch_checks(&watch, client, path, &before, err);
    if (rc == 0)
        rc = client_stream(client, stream, watch_on_event, &watch, err);
    (void)signal(SIGINT, SIG_DFL);
    progress_finish(&watch.progress);
    TRY(rc);
    TRY(client_json(client, NULL, path, NULL, &job, err));
    return watch_outcome(cli, job, err);
}

int cmd_watch(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    TRY(cli_take_last(cli, "the job's id", &id, err));
    return cmd_watch_job(cli, id, err);
}
