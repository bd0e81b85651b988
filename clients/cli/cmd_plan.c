/* cmd_plan: what a job would take of memory, and the ladder of techniques. No daemon is asked:
 * shapes come from the table of published models, from a model folder, or are built in. Legal
 * values that are not served yet are planned, and said to be. */
#include "clients/cli/cli.h"
#include "clients/cli/job_body.h"
#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/mem_card.h"
#include "common/mem_estimate.h"
#include "common/mem_ladder.h"
#include "common/mem_report.h"
#include "common/model_published.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN_TEXT_BYTES = 1 << 20 };

struct plan_command {
    json_t *job;
    struct job_spec spec;
    struct model_shape shape;
    struct mem_ask ask;
    bool longest; /* --max-seq-len */
    bool buffers; /* --buffers */
};

static void plan_command_done(struct plan_command *command)
{
    job_spec_done(&command->spec);
    model_shape_done(&command->shape);
    json_decref(command->job);
}

/* 3145728, 3072K or 3M. */
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

/* An option that is a field of `ithaca`. */
static int plan_field(struct cli *cli, json_t *job, const char *option, const char *field,
                      struct err *err)
{
    const char *text = NULL;
    int64_t count = 0;
    TRY(cli_take_option(cli, option, &text, err));
    if (text == NULL)
        return 0;
    TRY(plan_count(option, text, &count, err));
    json_t *ithaca = json_object_get(job, "ithaca");
    return json_object_set_new(ithaca, field, json_integer(count)) == 0
               ? 0
               : mem_fail(err, 0, "the job");
}

static int plan_memory(struct cli *cli, struct mem_ask *ask, struct err *err)
{
    const char *text = NULL;
    TRY(cli_take_option(cli, "--memory", &text, err));
    if (text != NULL)
        TRY(mem_card_bytes(text, &ask->device_bytes, err));
    TRY(cli_take_option(cli, "--host-memory", &text, err));
    return text != NULL ? mem_card_bytes(text, &ask->host_bytes, err) : 0;
}

static int plan_backend(struct cli *cli, struct mem_ask *ask, struct err *err)
{
    const char *text = NULL;
    ask->backend = MEM_BACKEND_CUDA;
    TRY(cli_take_option(cli, "--backend", &text, err));
    for (int i = 0; text != NULL; i++) {
        if (i == MEM_BACKEND_COUNT)
            return err_set(err, ERR_USAGE, "--backend %s: write cpu, cuda or cuda_own", text);
        ask->backend = (enum mem_backend)i;
        if (strcmp(text, mem_backend_name(ask->backend)) == 0)
            return 0;
    }
    return 0;
}

/* A published model, the built-in one, or a folder with a config.json, which is no name of a model
 * for a job: there it is called "folder". */
static int plan_shape(json_t *job, const char *name, struct model_shape *ret, struct err *err)
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
    TRY(model_shape_build(&config, ret, err));
    return job_body_set_string(job, "model", "folder", err);
}

/* A plan needs no data. */
static int plan_without_file(json_t *job, struct err *err)
{
    if (json_object_get(job, "training_file") != NULL)
        return 0;
    return job_body_set_string(job, "training_file", "none", err);
}

static int plan_read(struct cli *cli, struct plan_command *command, struct err *err)
{
    command->longest = cli_take_flag(cli, "--max-seq-len");
    command->buffers = cli_take_flag(cli, "--buffers");
    TRY(job_body_start(cli, &command->job, err));
    TRY(job_body_options(cli, command->job, err));
    TRY(plan_field(cli, command->job, "--seq-len", "seq_len", err));
    TRY(plan_field(cli, command->job, "--gpus", "gpus", err));
    TRY(plan_memory(cli, &command->ask, err));
    TRY(plan_backend(cli, &command->ask, err));
    TRY(cli_finish_arguments(cli, err));
    const char *model = json_string_value(json_object_get(command->job, "model"));
    if (model == NULL)
        return err_set(err, ERR_USAGE, "--model is missing");
    TRY(plan_shape(command->job, model, &command->shape, err));
    TRY(plan_without_file(command->job, err));
    TRY(job_spec_parse_legal(command->job, &command->spec, err));
    command->ask.shape = &command->shape;
    command->ask.spec = &command->spec;
    command->ask.ranks_max = LIMIT_RANKS;
    command->ask.planned = true;
    return 0;
}

static int plan_print(const struct buf *text, struct err *err)
{
    TRY(buf_error(text, err));
    (void)fputs(buf_str(text), stdout); /* main looks at stdout's state */
    return 0;
}

static int plan_run(struct cli *cli, struct plan_command *command, struct err *err)
{
    struct mem_estimate estimate;
    if (command->longest) {
        TRY(mem_estimate_longest(&command->ask, &command->spec.seq_len, err));
        if (command->spec.seq_len == 0)
            return err_set(err, ERR_DOES_NOT_FIT, "no length fits");
    }
    TRY(mem_estimate_make(&command->ask, &estimate, err));
    CLEANUP(buf_done) struct buf text;
    CLEANUP(json_unref) json_t *json = NULL;
    buf_init(&text, PLAN_TEXT_BYTES);
    int rc = 0;
    if (cli->json) {
        json = mem_report_json(&estimate, command->buffers);
        rc = json == NULL ? mem_fail(err, 0, "the plan") : cli_print_json(json, err);
    } else {
        mem_report_text(&estimate, &text);
        rc = plan_print(&text, err);
    }
    if (rc == 0 && !cli->json)
        rc = mem_estimate_check(&command->ask, &estimate, err);
    mem_estimate_done(&estimate);
    return rc;
}

static int ladder_run(struct cli *cli, struct plan_command *command, struct err *err)
{
    struct mem_ladder ladder;
    TRY(mem_ladder_make(&command->ask, &ladder, err));
    CLEANUP(buf_done) struct buf text;
    CLEANUP(json_unref) json_t *json = NULL;
    buf_init(&text, PLAN_TEXT_BYTES);
    int rc = 0;
    if (cli->json) {
        json = mem_ladder_json(&ladder);
        rc = json == NULL ? mem_fail(err, 0, "the ladder") : cli_print_json(json, err);
    } else {
        mem_ladder_text(&ladder, &text);
        rc = plan_print(&text, err);
    }
    mem_ladder_done(&ladder);
    return rc;
}

typedef int plan_command_fn(struct cli *cli, struct plan_command *command, struct err *err);

static int plan_command_do(struct cli *cli, plan_command_fn *run, struct err *err)
{
    struct plan_command command = {0};
    int rc = plan_read(cli, &command, err);
    if (rc == 0)
        rc = run(cli, &command, err);
    plan_command_done(&command);
    return rc;
}

int cmd_plan(struct cli *cli, struct err *err)
{
    return plan_command_do(cli, plan_run, err);
}

int cmd_ladder(struct cli *cli, struct err *err)
{
    return plan_command_do(cli, ladder_run, err);
}
