/* cmd_control: cancel, delete, pause, resume, hold, release or change a job, and the checkpoints
 * that it may be resumed from. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "clients/cli/job_body.h"
#include "common/clock.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { CONTROL_CANCEL_MS = 30000, CONTROL_LOOK_MS = 250 };

/* One request about a job; method NULL: GET. New reference. */
static int control_request(struct cli *cli, const char *method, const char *id, const char *tail,
                           const json_t *body, json_t **ret, struct err *err)
{
    return cli_ask_at(cli, method, client_path("/v1/fine_tuning/jobs/", id, tail), body, ret, err);
}

static const char *control_state(const json_t *job)
{
    return cli_text(json_object_get(job, "ithaca"), "state");
}

static int control_print(const struct cli *cli, const char *id, const json_t *job, struct err *err)
{
    if (cli->json)
        return cli_print_json(job, err);
    (void)printf("%s is %s\n", id, control_state(job));
    return 0;
}

/* Sends it and prints the state that the job has then. */
static int control_send(struct cli *cli, const char *method, const char *id, const char *tail,
                        const json_t *body, struct err *err)
{
    CLEANUP(json_unref) json_t *job = NULL;
    TRY(control_request(cli, method, id, tail, body, &job, err));
    return control_print(cli, id, job, err);
}

/* The API does not wait for processes that end slowly; a script that goes on with `ithaca rm` does.
 */
int cmd_cancel(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    CLEANUP(json_unref) json_t *job = NULL;
    TRY(cli_take_last(cli, "the job's id", &id, err));
    TRY(control_request(cli, "POST", id, "/cancel", NULL, &job, err));
    const int64_t until_ms = clock_monotonic_ms() + CONTROL_CANCEL_MS;
    while (strcmp(control_state(job), "cancelling") == 0 && clock_monotonic_ms() < until_ms) {
        json_unref(&job);
        clock_sleep_ms(CONTROL_LOOK_MS);
        TRY(control_request(cli, NULL, id, "", NULL, &job, err));
    }
    return control_print(cli, id, job, err);
}

int cmd_rm(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    CLEANUP(json_unref) json_t *answer = NULL;
    TRY(cli_take_last(cli, "the job's id", &id, err));
    TRY(control_request(cli, "DELETE", id, "", NULL, &answer, err));
    if (cli->json)
        return cli_print_json(answer, err);
    double bytes = cli_number(json_object_get(answer, "ithaca"), "freed_bytes");
    (void)printf("%s is deleted: %.1f MiB are freed\n", id, bytes / 0x1p20);
    return 0;
}

int cmd_pause(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    TRY(cli_take_last(cli, "the job's id", &id, err));
    return control_send(cli, "POST", id, "/pause", NULL, err);
}

int cmd_resume(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    const char *checkpoint = cli_take_option(cli, "--checkpoint");
    CLEANUP(json_unref) json_t *body = NULL;
    TRY(cli_take_last(cli, "the job's id", &id, err));
    if (checkpoint != NULL && (body = json_pack("{s:s}", "checkpoint", checkpoint)) == NULL)
        return err_set(err, ERR_USAGE, "--checkpoint: not UTF-8");
    return control_send(cli, "POST", id, "/resume", body, err);
}

static int control_set_hold(struct cli *cli, bool hold, struct err *err)
{
    const char *id = NULL;
    TRY(cli_take_last(cli, "the job's id", &id, err));
    CLEANUP(json_unref) json_t *body = json_pack("{s:{s:b}}", "ithaca", "hold", hold);
    if (body == NULL)
        return mem_fail(err, 0, "the change");
    return control_send(cli, "PATCH", id, "", body, err);
}

int cmd_hold(struct cli *cli, struct err *err)
{
    return control_set_hold(cli, true, err);
}

int cmd_release(struct cli *cli, struct err *err)
{
    return control_set_hold(cli, false, err);
}

int cmd_update(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    CLEANUP(json_unref) json_t *body = json_object();
    TRY(job_body_sets(cli, body, err));
    TRY(cli_take_last(cli, "the job's id", &id, err));
    return control_send(cli, "PATCH", id, "", body, err);
}

static void control_print_checkpoint(const json_t *checkpoint)
{
    const json_t *metrics = json_object_get(checkpoint, "metrics");
    const json_t *valid = json_object_get(metrics, "valid_loss");
    char when[CLOCK_ISO_BYTES];
    clock_iso(json_integer_value(json_object_get(checkpoint, "created_at")) * 1000, when);
    (void)printf("%s  %.19sZ  step %-8lld  loss %.4f", cli_text(checkpoint, "id"), when,
                 cli_whole(checkpoint, "step_number"), cli_number(metrics, "train_loss"));
    if (json_is_number(valid))
        (void)printf("  valid %.4f", json_number_value(valid));
    (void)printf("\n");
}

int cmd_checkpoints(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    CLEANUP(json_unref) json_t *list = NULL;
    TRY(cli_take_last(cli, "the job's id", &id, err));
    TRY(control_request(cli, NULL, id, "/checkpoints?limit=10000", NULL, &list, err));
    return cli_print_list(cli, list, control_print_checkpoint, err);
}
