/* cmd_submit: builds the job's JSON from a file and options, uploads local files, posts it. The
 * daemon alone judges values. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "clients/cli/job_body.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

static int submit_file(struct cli *cli, json_t *job, const char *option, const char *key,
                       struct err *err)
{
    const char *given = NULL;
    CLEANUP(mem_free_ptr) char *id = NULL;
    TRY(cli_take_option(cli, option, &given, err));
    if (given == NULL)
        given = json_string_value(json_object_get(job, key));
    if (given == NULL)
        return 0;
    TRY(cmd_files_resolve(cli, given, &id, err));
    return job_body_set_string(job, key, id, err);
}

int cmd_submit(struct cli *cli, struct err *err)
{
    CLEANUP(json_unref) json_t *job = NULL;
    CLEANUP(json_unref) json_t *answer = NULL;
    struct client *client = NULL;
    const char *id = NULL;
    bool follow = cli_take_flag(cli, "--follow");
    TRY(job_body_start(cli, &job, err));
    TRY(job_body_options(cli, job, err));
    TRY(cli_client(cli, &client, err));
    TRY(submit_file(cli, job, "--training-file", "training_file", err));
    TRY(submit_file(cli, job, "--validation-file", "validation_file", err));
    TRY(cli_finish_arguments(cli, err));
    TRY(client_json(client, "POST", "/v1/fine_tuning/jobs", job, &answer, err));
    TRY(json_get_string(answer, "id", ERR_PROTOCOL, &id, err));
    if (cli->json && !follow)
        return cli_print_json(answer, err);
    if (!cli->json)
        (void)printf("%s\n", id);
    (void)fflush(stdout); /* the id is there before the watching begins */
    return follow ? cmd_watch_job(cli, id, err) : 0;
}
