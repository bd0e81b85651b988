/* cmd_submit: builds the job's JSON from a file, or from what an older job asked for, and options;
 * lets the daemon judge it, uploads local files, posts it. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "clients/cli/job_body.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

/* The files of a job: options, and keys of its body. */
static const char *const submit_files[][2] = {{"--training-file", "training_file"},
                                              {"--validation-file", "validation_file"}};
enum { SUBMIT_FILES = sizeof submit_files / sizeof submit_files[0] };

/* Takes the options of a job over `job`. */
static int submit_options(struct cli *cli, json_t *job, struct err *err)
{
    TRY(job_body_options(cli, job, err));
    for (size_t i = 0; i < SUBMIT_FILES; i++) {
        const char *given = cli_take_option(cli, submit_files[i][0]);
        if (given != NULL)
            TRY(job_body_set_string(job, submit_files[i][1], given, err));
    }
    return 0;
}

/* A job that is refused anyway is refused before its files are sent: as one of files that have some
 * id already. */
static int submit_check(struct client *client, const json_t *job, struct err *err)
{
    CLEANUP(json_unref) json_t *sent = json_copy((json_t *)(uintptr_t)job);
    CLEANUP(json_unref) json_t *estimate = NULL;
    bool any = false, local = false;
    for (size_t i = 0; i < SUBMIT_FILES; i++) {
        const char *key = submit_files[i][1], *given = json_string_value(json_object_get(job, key));
        if (given != NULL)
            TRY(cmd_files_check(given, &local, err));
        if (given != NULL && local)
            TRY(job_body_set_string(sent, key, "file-local", err));
        any |= given != NULL && local;
    }
    if (!any)
        return 0;
    TRY(client_json(client, "POST", "/v1/fine_tuning/estimate", sent, &estimate, err));
    const char *message = json_string_value(json_object_get(estimate, "message"));
    return message != NULL ? err_set(err, ERR_DOES_NOT_FIT, "%s", message) : 0;
}

/* A local file is uploaded, and its id takes its place; *ret_sent: its id, of the body. */
static int submit_file(struct cli *cli, json_t *job, const char *key, const char **ret_sent,
                       struct err *err)
{
    const char *given = json_string_value(json_object_get(job, key));
    CLEANUP(mem_free_ptr) char *id = NULL;
    if (given == NULL)
        return 0;
    TRY(cmd_files_resolve(cli, given, &id, err));
    const bool sent = strcmp(given, id) != 0;
    TRY(job_body_set_string(job, key, id, err));
    if (sent)
        *ret_sent = json_string_value(json_object_get(job, key));
    return 0;
}

static int submit_post(struct cli *cli, struct client *client, json_t *job,
                       const char *sent[SUBMIT_FILES], json_t **ret, struct err *err)
{
    for (size_t i = 0; i < SUBMIT_FILES; i++)
        TRY(submit_file(cli, job, submit_files[i][1], &sent[i], err));
    return client_json(client, "POST", "/v1/fine_tuning/jobs", job, ret, err);
}

static int submit_send(struct cli *cli, json_t *job, bool follow, struct err *err)
{
    CLEANUP(json_unref) json_t *answer = NULL;
    struct client *client = NULL;
    const char *id = NULL, *sent[SUBMIT_FILES] = {NULL};
    TRY(cli_client(cli, &client, err));
    TRY(submit_check(client, job, err));
    int rc = submit_post(cli, client, job, sent, &answer, err);
    for (size_t i = 0; rc != 0 && i < SUBMIT_FILES; i++)
        if (sent[i] != NULL)
            (void)fprintf(stderr, "%s stays: submit with %s %s, or remove it: ithaca files rm %s\n",
                          sent[i], submit_files[i][0], sent[i], sent[i]);
    TRY(rc);
    TRY(json_get_string(answer, "id", ERR_PROTOCOL, &id, err));
    if (cli->json && !follow)
        return cli_print_json(answer, err);
    if (!cli->json)
        (void)printf("%s\n", id);
    (void)fflush(stdout); /* the id is there before the watching begins */
    return follow ? cmd_watch_job(cli, id, err) : 0;
}

int cmd_submit(struct cli *cli, struct err *err)
{
    CLEANUP(json_unref) json_t *job = NULL;
    bool follow = cli_take_flag(cli, "--follow");
    TRY(job_body_start(cli, &job, err));
    TRY(submit_options(cli, job, err));
    TRY(cli_finish_arguments(cli, err));
    return submit_send(cli, job, follow, err);
}

/* Steps asked for now stand against epochs asked for then: the newer wish counts. */
static void submit_drop_epochs(json_t *job, const json_t *changes)
{
    const json_t *steps = json_object_get(json_object_get(changes, "ithaca"), "max_steps");
    const json_t *supervised = json_object_get(json_object_get(job, "method"), "supervised");
    if (json_is_integer(steps))
        (void)json_object_del(json_object_get(supervised, "hyperparameters"), "n_epochs");
}

/* The job starts from a checkpoint: the one of an id, or the newest of the job. */
static int submit_set_checkpoint(struct client *client, const char *job_id, const char *given,
                                 json_t *changes, struct err *err)
{
    CLEANUP(json_unref) json_t *list = NULL;
    if (json_object_get(changes, "model") != NULL)
        return err_set(err, ERR_USAGE, "--model and --from-checkpoint: give one of them");
    if (strcmp(given, "newest") != 0)
        return job_body_set_string(changes, "model", given, err);
    TRY(client_job(client, NULL, job_id, "/checkpoints?limit=1", NULL, &list, err));
    const char *id = json_string_value(json_object_get(list, "first_id"));
    if (id == NULL)
        return err_set(err, ERR_NOT_FOUND,
                       "%s has no checkpoint; its tuned model, where it has one: --model %s",
                       job_id, job_id);
    return job_body_set_string(changes, "model", id, err);
}

int cmd_resubmit(struct cli *cli, struct err *err)
{
    CLEANUP(json_unref) json_t *changes = json_object();
    CLEANUP(json_unref) json_t *job = NULL;
    struct client *client = NULL;
    const char *id = NULL;
    bool follow = cli_take_flag(cli, "--follow");
    const char *checkpoint = cli_take_option(cli, "--from-checkpoint");
    TRY(submit_options(cli, changes, err));
    TRY(cli_take_last(cli, "the job's id", &id, err));
    TRY(cli_client(cli, &client, err));
    if (checkpoint != NULL)
        TRY(submit_set_checkpoint(client, id, checkpoint, changes, err));
    TRY(client_job(client, NULL, id, "/request", NULL, &job, err));
    if (json_object_update_recursive(job, changes) != 0)
        return mem_fail(err, 0, "the job");
    submit_drop_epochs(job, changes);
    return submit_send(cli, job, follow, err);
}
