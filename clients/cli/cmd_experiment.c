/* cmd_experiment: make, list, show and cancel experiments; their results as tables and charts. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "clients/cli/table.h"
#include "clients/cli/terminal.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EXPERIMENT_POLL_MS = 1000, EXPERIMENT_TEXT_BYTES = 1 << 20 };

static const char experiment_folder[] = "/v1/experiments/";

/* ---- for people ---- */

static void experiment_line(const json_t *experiment)
{
    const json_t *points = json_object_get(experiment, "points");
    static const char *const shown[] = {"succeeded", "failed", "not_run", "unfinished", "waiting"};
    (void)printf("%s  %-10s  %s:  %lld points", cli_text(experiment, "id"),
                 cli_text(experiment, "status"), cli_text(experiment, "name"),
                 cli_whole(points, "all"));
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        long long count = cli_whole(points, shown[i]);
        if (count > 0)
            (void)printf(", %lld %s", count,
                         strcmp(shown[i], "not_run") == 0 ? "not run" : shown[i]);
    }
    (void)printf("\n");
}

/* A number of a row in its scale, or nothing. */
static void experiment_cell(struct table *table, const json_t *row, const char *column,
                            const char *format, double scale)
{
    const json_t *value = json_object_get(row, column);
    char text[64] = "";
    if (json_is_number(value))
        (void)snprintf(text, sizeof text, format, json_number_value(value) * scale);
    table_cell(table, "%s", text);
}

static int experiment_table(const json_t *rows, struct err *err)
{
    static const struct table_column columns[] = {
        {.title = "#", .right = true},
        {.title = "CONTEXT", .right = true},
        {.title = "POINT", .cut = true},
        {.title = "STATUS"},
        {.title = "TOKENS/S/GPU", .right = true},
        {.title = "MFU %", .right = true, .dropped = 3},
        {.title = "GIB", .right = true},
        {.title = "PLANNED", .right = true, .dropped = 4},
        {.title = "HOST", .right = true, .dropped = 2},
        {.title = "JOB", .dropped = 1},
    };
    size_t i, width = 0, height = 0;
    const json_t *row;
    struct table table;
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, EXPERIMENT_TEXT_BYTES);
    table_init(&table, columns, sizeof columns / sizeof columns[0]);
    json_array_foreach(rows, i, row)
    {
        bool rehearsed = json_is_true(json_object_get(row, "rehearsed"));
        experiment_cell(&table, row, "number", "%.0f", 1);
        experiment_cell(&table, row, "seq_len", "%.0f", 1);
        table_cell(&table, "%s%s",
                   json_is_string(json_object_get(row, "label")) ? cli_text(row, "label") : "",
                   rehearsed ? " (rehearsed)" : "");
        table_cell(&table, "%s", cli_text(row, "status"));
        experiment_cell(&table, row, "tokens_per_s_gpu", "%.5g", 1);
        experiment_cell(&table, row, "mfu_causal", "%.1f", 100);
        experiment_cell(&table, row, "device_bytes", "%.3g", 0x1p-30);
        experiment_cell(&table, row, "planned_device_bytes", "%.3g", 0x1p-30);
        experiment_cell(&table, row, "host_bytes", "%.3g", 0x1p-30);
        table_cell(&table, "%s", cli_text(row, "job"));
    }
    (void)terminal_size(&width, &height); /* 0: it is none */
    table_fit(&table, width);
    table_print(&table, &out);
    int rc = buf_error(&table.text, err);
    table_done(&table);
    TRY(rc);
    return cli_print_text(&out, err);
}

/* The table, and why points are not run or failed. */
static int experiment_points(const json_t *rows, struct err *err)
{
    size_t i;
    const json_t *row;
    TRY(experiment_table(rows, err));
    json_array_foreach(rows, i, row)
    {
        if (json_is_string(json_object_get(row, "note")))
            (void)printf("#%zu %s: %s\n", i, cli_text(row, "status"), cli_text(row, "note"));
    }
    return 0;
}

static int experiment_show(const json_t *experiment, struct err *err)
{
    const char *label;
    json_t *longest;
    experiment_line(experiment);
    json_object_foreach(json_object_get(experiment, "longest"), label, longest)
    {
        (void)printf("longest that runs%s%s: %lld\n", label[0] != '\0' ? ", " : "", label,
                     (long long)json_integer_value(longest));
    }
    return experiment_points(json_object_get(experiment, "results"), err);
}

/* ---- verbs ---- */

/* Asks for one, or does something to it. New reference. */
static int experiment_ask(struct cli *cli, const char *method, const char *tail, json_t **ret,
                          struct err *err)
{
    const char *id = NULL;
    struct client *client = NULL;
    TRY(cli_take_argument(cli, "the experiment's id", &id, err));
    TRY(cli_finish_arguments(cli, err));
    TRY(cli_client(cli, &client, err));
    CLEANUP(mem_free_ptr) char *path = client_path(experiment_folder, id, tail);
    if (path == NULL)
        return mem_fail(err, LIMIT_ID_BYTES, "a path");
    return client_json(client, method, path, NULL, ret, err);
}

/* Says how far it is whenever that changes, until it has ended. */
static int experiment_follow(struct client *client, const char *path, json_t **ret, struct err *err)
{
    long long told = -1;
    for (;;) {
        CLEANUP(json_unref) json_t *experiment = NULL;
        TRY(client_json(client, NULL, path, NULL, &experiment, err));
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

/* Sends the file that is named. *ret_client: for what follows. */
static int experiment_send(struct cli *cli, const char *path, struct client **ret_client,
                           json_t **ret, struct err *err)
{
    const char *file = NULL;
    CLEANUP(json_unref) json_t *body = NULL;
    TRY(cli_take_argument(cli, "the experiment's file", &file, err));
    TRY(cli_finish_arguments(cli, err));
    TRY(json_parse_file(file, LIMIT_JSON_BODY_BYTES, &body, err));
    TRY(cli_client(cli, ret_client, err));
    return client_json(*ret_client, "POST", path, body, ret, err);
}

static int experiment_estimate(struct cli *cli, struct err *err)
{
    struct client *client = NULL;
    CLEANUP(json_unref) json_t *planned = NULL;
    TRY(experiment_send(cli, "/v1/experiments/estimate", &client, &planned, err));
    return cli->json ? cli_print_json(planned, err)
                     : experiment_points(json_object_get(planned, "data"), err);
}

static int experiment_run(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    struct client *client = NULL;
    CLEANUP(json_unref) json_t *made = NULL;
    CLEANUP(json_unref) json_t *ended = NULL;
    bool follow = cli_take_flag(cli, "--follow");
    TRY(experiment_send(cli, "/v1/experiments", &client, &made, err));
    TRY(json_get_string(made, "id", ERR_PROTOCOL, &id, err));
    CLEANUP(mem_free_ptr) char *path = client_path(experiment_folder, id, "");
    if (path == NULL)
        return mem_fail(err, LIMIT_ID_BYTES, "a path");
    if (follow)
        TRY(experiment_follow(client, path, &ended, err));
    const json_t *shown = follow ? ended : made;
    return cli->json ? cli_print_json(shown, err) : experiment_show(shown, err);
}

static int experiment_list(struct cli *cli, struct err *err)
{
    struct client *client = NULL;
    CLEANUP(json_unref) json_t *list = NULL;
    size_t i;
    const json_t *experiment;
    TRY(cli_finish_arguments(cli, err));
    TRY(cli_client(cli, &client, err));
    TRY(client_list(client, "/v1/experiments", &list, err));
    if (cli->json)
        return cli_print_json(list, err);
    json_array_foreach(json_object_get(list, "data"), i, experiment) experiment_line(experiment);
    return 0;
}

/* Into a file where one is named, else to stdout. */
static int experiment_results(struct cli *cli, struct err *err)
{
    const char *id = NULL, *format = cli_take_option(cli, "--format");
    const char *chart = cli_take_option(cli, "--chart");
    struct client *client = NULL;
    char tail[64];
    TRY(cli_take_argument(cli, "the experiment's id", &id, err));
    TRY(cli_finish_arguments(cli, err));
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

int cmd_experiment(struct cli *cli, struct err *err)
{
    const char *verb = NULL;
    CLEANUP(json_unref) json_t *answer = NULL;
    TRY(cli_take_verb(cli, &verb, err));
    if (strcmp(verb, "run") == 0)
        return experiment_run(cli, err);
    if (strcmp(verb, "plan") == 0)
        return experiment_estimate(cli, err);
    if (strcmp(verb, "results") == 0)
        return experiment_results(cli, err);
    if (strcmp(verb, "show") == 0)
        TRY(experiment_ask(cli, NULL, "", &answer, err));
    else if (strcmp(verb, "cancel") == 0)
        TRY(experiment_ask(cli, "POST", "/cancel", &answer, err));
    else if (strcmp(verb, "rm") == 0)
        TRY(experiment_ask(cli, "DELETE", "", &answer, err));
    else
        return experiment_list(cli, err);
    if (cli->json)
        return cli_print_json(answer, err);
    if (strcmp(verb, "show") == 0)
        return experiment_show(answer, err);
    if (strcmp(verb, "cancel") == 0)
        experiment_line(answer);
    else
        (void)printf("deleted %s\n", cli_text(answer, "id"));
    return 0;
}
