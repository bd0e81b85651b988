/* plan_command: see plan_command.h. */
#include "clients/cli/plan_command.h"

#include "clients/cli/address.h"
#include "clients/cli/job_body.h"
#include "clients/cli/local_measure.h"
#include "common/host_memory.h"
#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/mem_card.h"
#include "common/mem_report.h"
#include "common/model_published.h"

#include <stdlib.h>
#include <string.h>

void plan_command_done(struct plan_command *command)
{
    job_spec_done(&command->spec);
    model_shape_done(&command->shape);
    json_decref(command->job);
}

static int plan_count(const char *option, const char *text, int64_t *ret, struct err *err)
{
    char *end = NULL;
    long long count = strtoll(text, &end, 10);
    int64_t unit = *end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : 1;
    bool whole = end != text && end[unit > 1] == '\0';
    if (!whole || count < 1 || count > LIMIT_SEQ_LEN / unit)
        return err_set(err, ERR_USAGE, "%s %s: write a number from 1 to %lld, or one with K or M",
                       option, text, LIMIT_SEQ_LEN);
    *ret = count * unit;
    return 0;
}

int plan_command_number(struct cli *cli, const char *option, int64_t *ret, struct err *err)
{
    const char *text = cli_take_option(cli, option);
    return text == NULL ? 0 : plan_count(option, text, ret, err);
}

/* An option that is a field of `ithaca`. */
static int plan_field(struct cli *cli, json_t *job, const char *option, const char *field,
                      struct err *err)
{
    int64_t count = 0; /* given, it is 1 or more */
    TRY(plan_command_number(cli, option, &count, err));
    if (count == 0)
        return 0;
    json_t *ithaca = json_object_get(job, "ithaca");
    return json_object_set_new(ithaca, field, json_integer(count)) == 0
               ? 0
               : mem_fail(err, 0, "the job");
}

int plan_command_memory(struct cli *cli, struct mem_ask *ask, const char **ret_card,
                        struct err *err)
{
    const char *text = cli_take_option(cli, "--memory");
    if (text != NULL)
        TRY(mem_card_bytes(text, &ask->device_bytes, err));
    *ret_card = text != NULL ? text : "";
    text = cli_take_option(cli, "--host-memory");
    return text != NULL ? mem_card_host_bytes(text, &ask->host_bytes, err) : 0;
}

void plan_command_backend(struct cli *cli, enum mem_backend *ret)
{
    const char *text = cli_take_option(cli, "--backend"); /* one of the names */
    for (int i = 0; text != NULL && i < MEM_BACKEND_COUNT; i++)
        if (strcmp(text, mem_backend_name((enum mem_backend)i)) == 0)
            *ret = (enum mem_backend)i;
}

int plan_command_shape(const char *name, struct model_shape *ret, struct err *err)
{
    const struct model_config *known = model_published_find(name);
    struct model_config config;
    if (known == NULL)
        known = model_config_builtin(name);
    if (known != NULL)
        return model_shape_build(known, ret, err);
    if (!io_exists(name)) {
        CLEANUP(buf_done) struct buf names;
        buf_init(&names, LIMIT_PATH_BYTES);
        for (size_t i = 0; i < model_published_count; i++)
            buf_printf(&names, "%s, ", model_published[i].name);
        return err_set_field(err, ERR_NOT_FOUND, "model",
                             "no shape is known of \"%s\"; give %sor a model's folder", name,
                             buf_str(&names));
    }
    TRY(model_config_load(name, &config, err));
    return model_shape_build(&config, ret, err);
}

/* A folder's path is no name of a model for a job: there it is called "folder". */
static int plan_name_folder(json_t *job, const char *name, struct err *err)
{
    if (model_published_find(name) != NULL || model_config_builtin(name) != NULL)
        return 0;
    return job_body_set_string(job, "model", "folder", err);
}

/* A plan needs no data. */
static int plan_without_file(json_t *job, struct err *err)
{
    if (json_object_get(job, "training_file") != NULL)
        return 0;
    return job_body_set_string(job, "training_file", "none", err);
}

static int plan_rates(struct cli *cli, struct plan_command *command, const char *card,
                      struct err *err)
{
    CLEANUP(mem_free_ptr) char *data_dir = address_data_dir(cli->data_dir);
    if (data_dir == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    command->ask.rates = &command->rates;
    return time_rates_find(data_dir, command->ask.backend, command->spec.gpus, card,
                           &command->rates, err);
}

static int plan_options(struct cli *cli, struct plan_command *command, const char **ret_card,
                        struct err *err)
{
    struct mem_ask *ask = &command->ask;
    command->run = cli_take_flag(cli, "--run");
    TRY(job_body_start(cli, &command->job, err));
    TRY(job_body_options(cli, command->job, err));
    TRY(plan_field(cli, command->job, "--seq-len", "seq_len", err));
    TRY(plan_field(cli, command->job, "--gpus", "gpus", err));
    TRY(plan_command_memory(cli, ask, ret_card, err));
    TRY(plan_command_number(cli, "--document-tokens", &ask->document_tokens, err));
    command->steps = LOCAL_MEASURE_STEPS;
    TRY(plan_command_number(cli, "--steps", &command->steps, err));
    if (command->steps > LOCAL_MEASURE_STEPS_MAX)
        return err_set(err, ERR_USAGE, "--steps: at most %d", LOCAL_MEASURE_STEPS_MAX);
    ask->backend = command->run ? local_run_backend() : MEM_BACKEND_CUDA;
    plan_command_backend(cli, &ask->backend);
    return cli_finish_arguments(cli, err);
}

int plan_command_read(struct cli *cli, struct plan_command *command, struct err *err)
{
    const char *card;
    TRY(plan_options(cli, command, &card, err));
    const char *model = json_string_value(json_object_get(command->job, "model"));
    if (model == NULL)
        return err_set(err, ERR_USAGE, "--model is missing");
    TRY(plan_command_shape(model, &command->shape, err));
    TRY(plan_name_folder(command->job, model, err));
    TRY(plan_without_file(command->job, err));
    TRY(job_spec_parse_legal(command->job, &command->spec, err));
    command->ask.shape = &command->shape;
    command->ask.spec = &command->spec;
    command->ask.ranks_max = LIMIT_RANKS;
    command->ask.planned = true;
    if (command->run && command->ask.host_bytes == 0)
        command->ask.host_bytes = host_memory_read().total;
    return plan_rates(cli, command, card, err);
}
