/* plan_experiment: see plan_experiment.h. */
#include "clients/cli/plan_experiment.h"

#include "clients/cli/address.h"
#include "clients/cli/client.h"
#include "clients/cli/job_body.h"
#include "clients/cli/plan_command.h"
#include "clients/cli/table.h"
#include "common/clock.h"
#include "common/experiment_plan.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/number.h"

#include <stdio.h>
#include <string.h>

/* A machine that is not the daemon's. */
struct plan_experiment {
    struct experiment_spec spec;
    struct mem_ask machine; /* without a job */
    const char *card;       /* as --memory says it, or "" */
    char *data_dir;         /* where this machine's calibration is; owned */
    json_t *rows;           /* as the daemon has them, but columns that no plan has; owned */
};

static void plan_done(struct plan_experiment *plan)
{
    experiment_spec_done(&plan->spec);
    mem_free(plan->data_dir);
    json_unref(&plan->rows);
}

/* The next argument. New reference. */
static int plan_read(struct cli *cli, const char **ret_path, json_t **ret, struct err *err)
{
    TRY(cli_take_argument(cli, "the experiment's file", ret_path, err));
    TRY(json_parse_file(*ret_path, LIMIT_JSON_BODY_BYTES, ret, err));
    if (json_is_object(*ret))
        return 0;
    json_unref(ret);
    return err_set(err, ERR_BAD_JSON, "%s: an experiment is an object", *ret_path);
}

int plan_experiment_file(struct cli *cli, json_t **ret, struct err *err)
{
    const char *path = NULL;
    CLEANUP(json_unref) json_t *body = NULL;
    TRY(plan_read(cli, &path, &body, err));
    TRY(job_body_sets_into(cli, body, err));
    *ret = json_incref(body);
    return 0;
}

/* Every argument, each with every --set, into {path: body}. */
static int plan_files(struct cli *cli, json_t *files, struct err *err)
{
    const char *path, *assignment;
    json_t *body;
    do {
        body = NULL;
        TRY(plan_read(cli, &path, &body, err));
        if (json_object_set_new(files, path, body) != 0)
            return err_set(err, ERR_USAGE, "a file's name is not UTF-8");
    } while (cli->argc > 0);
    while ((assignment = cli_take_option(cli, "--set")) != NULL)
        json_object_foreach(files, path, body) TRY(job_body_set(body, assignment, err));
    return 0;
}

/* *ret_other: whether options say of another machine. */
static int plan_machine(struct cli *cli, struct plan_experiment *plan, bool *ret_other,
                        struct err *err)
{
    struct mem_ask *machine = &plan->machine;
    *machine = (struct mem_ask){.backend = MEM_BACKEND_COUNT};
    TRY(plan_command_number(cli, "--gpus", &machine->ranks_max, err));
    TRY(plan_command_memory(cli, machine, &plan->card, err));
    plan_command_backend(cli, &machine->backend);
    *ret_other = machine->backend != MEM_BACKEND_COUNT || machine->ranks_max > 0 ||
                 machine->device_bytes > 0 || machine->host_bytes > 0;
    if (machine->ranks_max == 0)
        machine->ranks_max = LIMIT_RANKS;
    if (machine->backend == MEM_BACKEND_COUNT)
        machine->backend = MEM_BACKEND_CUDA;
    return cli_finish_arguments(cli, err);
}

/* ---- points of another machine ---- */

static int plan_job(struct plan_experiment *plan, struct experiment_job *job,
                    struct experiment_plan *ret, struct err *err)
{
    CLEANUP(model_shape_done) struct model_shape shape = {0};
    struct time_rates rates;
    struct mem_ask ask = plan->machine;
    TRY(plan_command_shape(job->spec.model, &shape, err));
    TRY(time_rates_find(plan->data_dir, ask.backend, job->spec.gpus, plan->card, &rates, err));
    ask.spec = &job->spec;
    ask.shape = &shape;
    ask.rates = &rates;
    return experiment_plan_make(&plan->spec, job, &ask, experiment_spec_searches(&plan->spec), ret,
                                err);
}

static int plan_point(struct plan_experiment *plan, int64_t number, struct err *err)
{
    static const char *const statuses[] = {[EXPERIMENT_FITS] = "waiting",
                                           [EXPERIMENT_NO_ROOM] = "does_not_fit",
                                           [EXPERIMENT_REFUSED] = "refused"};
    CLEANUP(experiment_job_done) struct experiment_job job = {.number = number};
    CLEANUP(experiment_plan_done) struct experiment_plan one = {.facts = NULL};
    TRY(experiment_job_read(&plan->spec, number, 0, &job, err));
    int rc = plan_job(plan, &job, &one, err);
    if (rc != 0)
        return experiment_job_wrap(&job, rc, err);
    if (json_object_set_new(one.facts, "status", json_string(statuses[one.fit])) != 0 ||
        json_object_set_new(one.facts, "note",
                            one.note[0] != '\0' ? json_string(one.note) : json_null()) != 0 ||
        json_array_append(plan->rows, one.facts) != 0)
        return mem_fail(err, 0, "a plan");
    return 0;
}

static int plan_elsewhere(struct cli *cli, struct plan_experiment *plan, const json_t *body,
                          json_t **ret, struct err *err)
{
    TRY(experiment_spec_parse(body, &plan->spec, err));
    plan->data_dir = address_data_dir(cli->data_dir);
    plan->rows = json_array();
    if (plan->data_dir == NULL || plan->rows == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a plan");
    for (int64_t number = 0; number < plan->spec.points; number++)
        TRY(plan_point(plan, number, err));
    *ret = json_pack("{s:s, s:O}", "object", "experiment.estimate", "data", plan->rows);
    return *ret != NULL ? 0 : mem_fail(err, 0, "a plan");
}

/* ---- for people ---- */

static bool plan_fits(const json_t *row)
{
    return strcmp(cli_text(row, "status"), "waiting") == 0;
}

void plan_experiment_cell(struct table *table, const json_t *row, const char *column, int digits,
                          double scale)
{
    const json_t *value = json_object_get(row, column);
    table_cell(table, "%s",
               json_is_number(value) ? number_plain(json_number_value(value) * scale, digits).text
                                     : "");
}

static int plan_print_table(const json_t *rows, struct err *err)
{
    static const struct table_column columns[] = {
        {.title = "#", .right = true},          {.title = "CONTEXT", .right = true},
        {.title = "POINT", .cut = true},        {.title = "PLAN"},
        {.title = "DEVICE GIB", .right = true}, {.title = "HOST GIB", .right = true, .dropped = 2},
        {.title = "STEP S", .right = true},     {.title = "TOKENS/S/GPU", .right = true},
        {.title = "RUN", .right = true},
    };
    CLEANUP(table_done) struct table table;
    size_t i;
    const json_t *row;
    table_init(&table, columns, sizeof columns / sizeof columns[0]);
    json_array_foreach(rows, i, row)
    {
        char run[CLOCK_DURATION_BYTES];
        bool rehearsed = json_is_true(json_object_get(row, "rehearsed"));
        table_cell(&table, "%zu", i);
        table_cell(&table, "%lld", cli_whole(row, "seq_len"));
        table_cell(&table, "%s%s", cli_text(row, "label"), rehearsed ? " (rehearsed)" : "");
        table_cell(&table, "%s", plan_fits(row) ? "fits" : cli_text(row, "status"));
        plan_experiment_cell(&table, row, "planned_device_bytes", 3, 0x1p-30);
        plan_experiment_cell(&table, row, "planned_host_bytes", 3, 0x1p-30);
        plan_experiment_cell(&table, row, "planned_step_s", 4, 1);
        plan_experiment_cell(&table, row, "planned_tokens_per_s_gpu", 4, 1);
        clock_duration((int64_t)(cli_number(row, "planned_run_s") + 0.5), run);
        table_cell(&table, "%s", plan_fits(row) ? run : "");
    }
    return cli_print_table(&table, err);
}

/* The table, why points do not fit, and how long the others run. */
static int plan_print(const json_t *rows, struct err *err)
{
    char run[CLOCK_DURATION_BYTES];
    const json_t *row;
    double run_s = 0;
    size_t fitting = 0, i;
    TRY(plan_print_table(rows, err));
    json_array_foreach(rows, i, row)
    {
        fitting += plan_fits(row);
        run_s += plan_fits(row) ? cli_number(row, "planned_run_s") : 0;
        if (json_is_string(json_object_get(row, "note")))
            (void)printf("#%zu %s: %s\n", i, cli_text(row, "status"), cli_text(row, "note"));
    }
    clock_duration((int64_t)(run_s + 0.5), run);
    (void)printf("%zu of %zu points fit; their steps take %s, one after another, their starts not "
                 "included\n",
                 fitting, json_array_size(rows), run);
    return 0;
}

/* By the daemon, or for the machine that is not its. */
static int plan_one(struct cli *cli, const struct plan_experiment *elsewhere, const json_t *body,
                    struct err *err)
{
    CLEANUP(json_unref) json_t *planned = NULL;
    struct client *client = NULL;
    if (elsewhere != NULL) {
        CLEANUP(plan_done) struct plan_experiment plan = *elsewhere;
        TRY(plan_elsewhere(cli, &plan, body, &planned, err));
    } else {
        TRY(cli_client(cli, &client, err));
        TRY(client_json(client, "POST", "/v1/experiments/estimate", body, &planned, err));
    }
    return cli->json ? cli_print_json(planned, err)
                     : plan_print(json_object_get(planned, "data"), err);
}

int plan_experiment(struct cli *cli, struct err *err)
{
    struct plan_experiment plan = {.card = ""};
    CLEANUP(json_unref) json_t *files = json_object();
    const char *path, *before = "";
    const json_t *body;
    bool other = false;
    if (files == NULL)
        return mem_fail(err, 0, "a plan");
    TRY(plan_files(cli, files, err));
    TRY(plan_machine(cli, &plan, &other, err));
    json_object_foreach(files, path, body)
    {
        if (json_object_size(files) > 1 && !cli->json)
            (void)printf("%s%s\n", before, path);
        int rc = plan_one(cli, other ? &plan : NULL, body, err);
        if (rc != 0)
            return json_object_size(files) > 1 ? err_wrap(err, rc, "%s: ", path) : rc;
        before = "\n";
    }
    return 0;
}
