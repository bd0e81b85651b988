/* job_body: see job_body.h. This only puts values where they belong; whoever takes the body judges
 * them. */
#include "clients/cli/job_body.h"

#include "common/limits.h"
#include "common/mem.h"

#include <string.h>

int job_body_set(json_t *object, const char *assignment, struct err *err)
{
    struct err not_json;
    const char *equals = strchr(assignment, '=');
    if (equals == NULL)
        return err_set(err, ERR_USAGE, "--set %s: write FIELD=VALUE", assignment);
    CLEANUP(mem_free_ptr) char *path = mem_strndup(assignment, (size_t)(equals - assignment));
    if (path == NULL)
        return mem_fail(err, strlen(assignment), "a field");
    json_t *value = NULL;
    if (json_parse(equals + 1, strlen(equals + 1), path, &value, &not_json) != 0)
        value = json_string(equals + 1);
    if (value == NULL)
        return err_set(err, ERR_USAGE, "--set %s: the value is not UTF-8", assignment);
    int rc = json_set_path(object, path, value, ERR_USAGE, err);
    return rc == 0 ? 0 : err_wrap(err, rc, "--set: ");
}

int job_body_set_string(json_t *job, const char *key, const char *value, struct err *err)
{
    if (json_object_set_new(job, key, json_string(value)) != 0)
        return err_set(err, ERR_USAGE, "%s: not UTF-8", key);
    return 0;
}

int job_body_options(struct cli *cli, json_t *job, struct err *err)
{
    static const char *const plain[][2] = {{"--model", "model"}, {"--suffix", "suffix"}};
    for (size_t i = 0; i < 2; i++) {
        const char *value = cli_take_option(cli, plain[i][0]);
        if (value != NULL)
            TRY(job_body_set_string(job, plain[i][1], value, err));
    }
    const char *text = cli_take_option(cli, "--seed");
    if (text != NULL) {
        json_t *seed = NULL;
        TRY(json_parse(text, strlen(text), "--seed", &seed, err));
        if (json_object_set_new(job, "seed", seed) != 0)
            return mem_fail(err, strlen(text), "the seed");
    }
    return job_body_sets(cli, job, err);
}

int job_body_sets(struct cli *cli, json_t *job, struct err *err)
{
    if (json_object_get(job, "ithaca") == NULL)
        (void)json_object_set_new(job, "ithaca", json_object()); /* checked by the next line */
    json_t *ithaca = json_object_get(job, "ithaca");
    if (!json_is_object(ithaca))
        return err_set_field(err, ERR_INVALID_VALUE, "ithaca", "\"ithaca\" must be an object");
    return job_body_sets_into(cli, ithaca, err);
}

int job_body_sets_into(struct cli *cli, json_t *object, struct err *err)
{
    const char *assignment;
    while ((assignment = cli_take_option(cli, "--set")) != NULL)
        TRY(job_body_set(object, assignment, err));
    return 0;
}

int job_body_start(struct cli *cli, json_t **ret_job, struct err *err)
{
    if (cli->argc == 0) {
        *ret_job = json_object();
        return *ret_job != NULL ? 0 : mem_fail(err, 0, "the job");
    }
    const char *path = NULL;
    struct err why;
    TRY(cli_take_argument(cli, "the job", &path, err));
    int rc = json_parse_file(path, LIMIT_JSON_BODY_BYTES, ret_job, &why);
    if (rc == 0 && json_is_object(*ret_job))
        return 0;
    json_unref(ret_job);
    if (rc == 0 || rc == -ERR_BAD_JSON) /* likely the training file */
        return err_set(err, ERR_BAD_JSON,
                       "%s: a job is one JSON object; its rows are given by --training-file",
                       rc == 0 ? path : why.text);
    *err = why;
    return rc;
}
