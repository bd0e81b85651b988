/* cmd_experiment: make, list, show and cancel experiments; their results as tables and charts. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "clients/cli/plan_experiment.h"
#include "clients/cli/table.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    EXPERIMENT_POLL_MS = 1000,
    EXPERIMENT_PATIENCE_MS = 300000 /* without an answer: a daemon may be restarted meanwhile */
};

static const char experiment_folder[] = "/v1/experiments/";

/* ---- for people ---- */

static void experiment_line(const json_t *experiment)
{
    const json_t *points = json_object_get(experiment, "points");
    static const char *const shown[] = {"succeeded", "failed", "not_run", "unfinished", "waiting"};
    const char *name = json_string_value(json_object_get(experiment, "name"));
    (void)printf("%s  %-10s  %s%s%lld points", cli_text(experiment, "id"),
                 cli_text(experiment, "status"), name != NULL ? name : "",
                 name != NULL ? ":  " : "", cli_whole(points, "all"));
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        long long count = cli_whole(points, shown[i]);
        if (count > 0)
            (void)printf(", %lld %s", count,
                         strcmp(shown[i], "not_run") == 0 ? "not run" : shown[i]);
    }
    (void)printf("\n");
}

static int experiment_table(const json_t *rows, struct err *err)
{
    static const struct table_column columns[] = {
        {.title = "#", .right = true},
        {.title = "CONTEXT", .right = true},
        {.title = "POINT", .cut = true},
        {.title = "STATUS"},
        {.title = "TOKENS/S/GPU", .right = true},
        {.title = "MFU %", .right = true, .dropped = 4},
        {.title = "FULL %", .right = true, .dropped = 3},
        {.title = "DEVICE GIB", .right = true},
        {.title = "PLANNED", .right = true, .dropped = 5},
        {.title = "HOST GIB", .right = true, .dropped = 2},
        {.title = "JOB", .dropped = 1},
    };
    size_t i;
    const json_t *row;
    CLEANUP(table_done) struct table table;
    table_init(&table, columns, sizeof columns / sizeof columns[0]);
    json_array_foreach(rows, i, row)
    {
        bool rehearsed = json_is_true(json_object_get(row, "rehearsed"));
        plan_experiment_cell(&table, row, "number", 15, 1);
        plan_experiment_cell(&table, row, "seq_len", 15, 1);
        table_cell(&table, "%s%s",
                   json_is_string(json_object_get(row, "label")) ? cli_text(row, "label") : "",
                   rehearsed ? " (rehearsed)" : "");
        table_cell(&table, "%s", cli_text(row, "status"));
        plan_experiment_cell(&table, row, "tokens_per_s_gpu", 5, 1);
        plan_experiment_cell(&table, row, "mfu_causal", 3, 100);
        plan_experiment_cell(&table, row, "mfu_full", 3, 100);
        plan_experiment_cell(&table, row, "device_bytes", 3, 0x1p-30);
        plan_experiment_cell(&table, row, "planned_device_bytes", 3, 0x1p-30);
        plan_experiment_cell(&table, row, "host_bytes", 3, 0x1p-30);
        table_cell(&table, "%s", cli_text(row, "job"));
    }
    return cli_print_table(&table, err);
}

/* What was found for each label, whose first row is the longest that there may be. */
static void experiment_print_longest(const json_t *experiment)
{
    const json_t *longest = json_object_get(experiment, "longest"), *row;
    long long most = cli_whole(json_object_get(experiment, "spec"), "seq_len_max");
    bool ended = !json_is_null(json_object_get(experiment, "finished_at"));
    CLEANUP(json_unref) json_t *told = json_object();
    size_t i;
    json_array_foreach(json_object_get(experiment, "results"), i, row)
    {
        const char *label = json_string_value(json_object_get(row, "label"));
        if (longest == NULL || label == NULL || json_object_get(told, label) != NULL ||
            json_object_set_new(told, label, json_true()) != 0)
            continue;
        long long found = cli_whole(longest, label), first = cli_whole(row, "seq_len");
        (void)printf("longest that runs%s%s: ", label[0] != '\0' ? ", " : "", label);
        if (found == 0)
            (void)printf("none%s\n", ended ? "" : " yet");
        else if (found < first)
            (void)printf("%lld (%lld was tried first)\n", found, first);
        else
            (void)printf("%lld (%s)\n", found,
                         found == most ? "seq_len_max" : "all that the plan promises");
    }
}

/* Whether a point is still to run, or runs. */
static bool experiment_is_open(const json_t *row)
{
    static const char *const ends[] = {"succeeded", "failed", "cancelled", "does_not_fit",
                                       "refused"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (strcmp(cli_text(row, "status"), ends[i]) == 0)
            return false;
    return true;
}

/* How long what has not ended runs, by the plan. */
static void experiment_print_left(const json_t *experiment)
{
    const json_t *row;
    size_t i;
    double seconds = 0;
    char text[CLOCK_DURATION_BYTES];
    if (!json_is_null(json_object_get(experiment, "finished_at")))
        return;
    json_array_foreach(json_object_get(experiment, "results"), i, row)
    {
        seconds += experiment_is_open(row) ? cli_number(row, "planned_run_s") : 0;
    }
    clock_duration((int64_t)(seconds + 0.5), text);
    (void)printf("steps that are still to run: %s by the plan, one point after another\n", text);
}

/* The line, the table, and why points were not run or failed. */
static int experiment_show(const json_t *experiment, struct err *err)
{
    const json_t *rows = json_object_get(experiment, "results"), *row;
    size_t i;
    experiment_line(experiment);
    experiment_print_longest(experiment);
    TRY(experiment_table(rows, err));
    json_array_foreach(rows, i, row)
    {
        if (json_is_string(json_object_get(row, "note")))
            (void)printf("#%zu %s: %s\n", i, cli_text(row, "status"), cli_text(row, "note"));
    }
    experiment_print_left(experiment);
    return 0;
}

/* ---- verbs ---- */

/* Asks for one, or does something to it. New reference. */
static int experiment_ask(struct cli *cli, const char *method, const char *tail, json_t **ret,
                          struct err *err)
{
    const char *id = NULL;
    TRY(cli_take_last(cli, "the experiment's id", &id, err));
    return cli_ask_at(cli, method, client_path(experiment_folder, id, tail), NULL, ret, err);
}

/* Says how far it is whenever that changes, until it has ended. A daemon that is gone may come
 * back, elsewhere too. */
static int experiment_follow(struct cli *cli, const char *id, json_t **ret, struct err *err)
{
    long long told = -1;
    int64_t heard_ms = clock_monotonic_ms();
    (void)fprintf(stderr, "following %s: Ctrl-C ends this, not the experiment\n", id);
    for (;;) {
        CLEANUP(json_unref) json_t *experiment = NULL;
        int rc =
            cli_ask_at(cli, NULL, client_path(experiment_folder, id, ""), NULL, &experiment, err);
        if (rc == -ERR_UNAVAILABLE && clock_monotonic_ms() - heard_ms < EXPERIMENT_PATIENCE_MS) {
            client_free(cli->client);
            cli->client = NULL;
            clock_sleep_ms(EXPERIMENT_POLL_MS);
            continue;
        }
        TRY(rc);
        heard_ms = clock_monotonic_ms();
        const json_t *points = json_object_get(experiment, "points");
        long long all = cli_whole(points, "all");
        long long ended = all - cli_whole(points, "waiting") - cli_whole(points, "unfinished");
        if (ended != told)
            (void)fprintf(stderr, "%lld of %lld points\n", ended, all);
        told = ended;
        if (!json_is_null(json_object_get(experiment, "finished_at"))) {
            *ret = json_incref(experiment);
            return 0;
        }
        clock_sleep_ms(EXPERIMENT_POLL_MS);
    }
}

/* An experiment as it is, or as it has ended. */
static int experiment_tell(struct cli *cli, const json_t *experiment, bool follow, struct err *err)
{
    const char *id = NULL;
    CLEANUP(json_unref) json_t *ended = NULL;
    TRY(json_get_string(experiment, "id", ERR_PROTOCOL, &id, err));
    if (follow)
        TRY(experiment_follow(cli, id, &ended, err));
    const json_t *told = follow ? ended : experiment;
    return cli->json ? cli_print_json(told, err) : experiment_show(told, err);
}

static int experiment_run(struct cli *cli, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    CLEANUP(json_unref) json_t *made = NULL;
    bool follow = cli_take_flag(cli, "--follow");
    TRY(plan_experiment_file(cli, &body, err));
    TRY(cli_finish_arguments(cli, err));
    TRY(cli_ask(cli, "POST", "/v1/experiments", body, &made, err));
    return experiment_tell(cli, made, follow, err);
}

static int experiment_list(struct cli *cli, struct err *err)
{
    struct client *client = NULL;
    CLEANUP(json_unref) json_t *list = NULL;
    TRY(cli_finish_arguments(cli, err));
    TRY(cli_client(cli, &client, err));
    TRY(client_list(client, "/v1/experiments", &list, err));
    return cli_print_list(cli, list, experiment_line, err);
}

/* Into a file where one is named, else to stdout. */
static int experiment_results(struct cli *cli, struct err *err)
{
    const char *id = NULL, *format = cli_take_option(cli, "--format");
    const char *chart = cli_take_option(cli, "--chart");
    struct client *client = NULL;
    char tail[64];
    TRY(cli_take_last(cli, "the experiment's id", &id, err));
    if (chart != NULL && format != NULL)
        return err_set(err, ERR_USAGE, "--format and --chart: give one of them");
    if (format == NULL)
        format = cli->json ? "json" : "markdown";
    (void)snprintf(tail, sizeof tail, "/results?format=%s", chart != NULL ? "svg" : format);
    CLEANUP(mem_free_ptr) char *path = client_path(experiment_folder, id, tail);
    if (path == NULL)
        return mem_fail(err, LIMIT_ID_BYTES, "a path");
    TRY(cli_client(cli, &client, err));
    return chart != NULL ? client_file(client, path, chart, err)
                         : client_download(client, path, STDOUT_FILENO, err);
}

static int experiment_show_one(struct cli *cli, struct err *err)
{
    bool follow = cli_take_flag(cli, "--follow");
    CLEANUP(json_unref) json_t *now = NULL;
    TRY(experiment_ask(cli, NULL, "", &now, err));
    return experiment_tell(cli, now, follow, err);
}

int cmd_experiment(struct cli *cli, struct err *err)
{
    const char *verb = NULL;
    CLEANUP(json_unref) json_t *answer = NULL;
    TRY(cli_take_verb(cli, &verb, err));
    if (strcmp(verb, "run") == 0)
        return experiment_run(cli, err);
    if (strcmp(verb, "plan") == 0)
        return plan_experiment(cli, err);
    if (strcmp(verb, "results") == 0)
        return experiment_results(cli, err);
    if (strcmp(verb, "show") == 0)
        return experiment_show_one(cli, err);
    if (strcmp(verb, "cancel") == 0)
        TRY(experiment_ask(cli, "POST", "/cancel", &answer, err));
    else if (strcmp(verb, "rm") == 0)
        TRY(experiment_ask(cli, "DELETE", "", &answer, err));
    else
        return experiment_list(cli, err);
    if (cli->json)
        return cli_print_json(answer, err);
    if (strcmp(verb, "cancel") == 0)
        experiment_line(answer);
    else
        (void)printf("deleted %s\n", cli_text(answer, "id"));
    return 0;
}
