/* cmd_sample: asks a model one question, greedily. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

/* The tuned model of a job; an error while it has none. */
static int sample_job_model(struct client *client, const char *job_id, char **ret_model,
                            struct err *err)
{
    CLEANUP(json_unref) json_t *job = NULL;
    TRY(client_job(client, NULL, job_id, "", NULL, &job, err));
    const char *model = json_string_value(json_object_get(job, "fine_tuned_model"));
    if (model == NULL)
        return err_set(err, ERR_BAD_STATE, "%s is %s: it has no tuned model", job_id,
                       json_string_value(json_object_get(job, "status")));
    *ret_model = mem_strdup(model);
    return *ret_model != NULL ? 0 : mem_fail(err, strlen(model), "a name");
}

static int sample_request(const char *model, const char *system, const char *prompt,
                          const char *max_tokens, json_t **ret, struct err *err)
{
    CLEANUP(json_unref) json_t *messages = json_array();
    if (system != NULL)
        (void)json_array_append_new(messages,
                                    json_pack("{s:s, s:s}", "role", "system", "content", system));
    (void)json_array_append_new(messages,
                                json_pack("{s:s, s:s}", "role", "user", "content", prompt));
    if (json_array_size(messages) != (system != NULL ? 2u : 1u))
        return err_set(err, ERR_USAGE, "--prompt: not UTF-8");
    *ret = json_pack("{s:s, s:O, s:i}", "model", model, "messages", messages, "temperature", 0);
    if (*ret == NULL)
        return err_set(err, ERR_USAGE, "--model: not UTF-8");
    if (max_tokens == NULL)
        return 0;
    json_t *limit = NULL;
    TRY(json_parse(max_tokens, strlen(max_tokens), "--max-tokens", &limit, err));
    return json_object_set_new(*ret, "max_tokens", limit) == 0 ? 0
                                                               : mem_fail(err, 0, "the request");
}

int cmd_sample(struct cli *cli, struct err *err)
{
    const char *job_id = cli_take_option(cli, "--job");
    const char *model = cli_take_option(cli, "--model");
    const char *prompt = cli_take_option(cli, "--prompt");
    const char *system = cli_take_option(cli, "--system");
    const char *max_tokens = cli_take_option(cli, "--max-tokens");
    TRY(cli_finish_arguments(cli, err));
    if (prompt == NULL)
        return err_set(err, ERR_USAGE, "--prompt TEXT is missing");
    if ((job_id == NULL) == (model == NULL))
        return err_set(err, ERR_USAGE, "give one of --job JOB and --model NAME");
    struct client *client = NULL;
    CLEANUP(mem_free_ptr) char *tuned = NULL;
    CLEANUP(json_unref) json_t *request = NULL;
    CLEANUP(json_unref) json_t *answer = NULL;
    TRY(cli_client(cli, &client, err));
    if (job_id != NULL)
        TRY(sample_job_model(client, job_id, &tuned, err));
    TRY(sample_request(tuned != NULL ? tuned : model, system, prompt, max_tokens, &request, err));
    TRY(client_json(client, "POST", "/v1/chat/completions", request, &answer, err));
    if (cli->json)
        return cli_print_json(answer, err);
    const json_t *message =
        json_object_get(json_array_get(json_object_get(answer, "choices"), 0), "message");
    const char *text = json_string_value(json_object_get(message, "content"));
    if (text == NULL)
        return err_set(err, ERR_PROTOCOL, "the server's answer has no message");
    (void)printf("%s\n", text);
    return 0;
}
