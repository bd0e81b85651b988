/* cmd_usage: GPU-hours and hours of CPU slots, a line a user, job, day, model or state. Columns of
 * which there is nothing at all are left out: a machine has GPUs or it has not. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "clients/cli/table.h"
#include "common/clock.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum usage_kind { USAGE_WHOLE, USAGE_NUMBER };

static const struct {
    const char *name, *label;
    enum usage_kind kind;
} usage_columns[] = {
#define X(column, of_kind, head, doc) {.name = #column, .label = head, .kind = USAGE_##of_kind},
#include "api/usage_columns.def"
#undef X
};
enum { USAGE_COLUMNS = sizeof usage_columns / sizeof usage_columns[0], USAGE_TEXTS = 3 };

static bool usage_is_shown(const json_t *usage, int column)
{
    return cli_number(json_object_get(usage, "total"), usage_columns[column].name) > 0;
}

static void usage_row(struct table *table, const json_t *usage, const json_t *row, bool is_total)
{
    const bool of_jobs = strcmp(cli_text(usage, "by"), "job") == 0;
    table_cell(table, "%s", is_total ? "all" : cli_text(row, "key"));
    if (of_jobs) {
        table_cell(table, "%s", is_total ? "" : cli_text(row, "user"));
        table_cell(table, "%s", is_total ? "" : cli_text(row, "model"));
    }
    for (int i = 0; i < USAGE_COLUMNS; i++) {
        const char *name = usage_columns[i].name;
        if (usage_is_shown(usage, i) && usage_columns[i].kind == USAGE_WHOLE)
            table_cell(table, "%lld", cli_whole(row, name));
        else if (usage_is_shown(usage, i))
            table_cell(table, "%.2f", cli_number(row, name));
    }
}

static int usage_print(const json_t *usage, struct err *err)
{
    static const char *const titles[][2] = {
        {"user", "USER"}, {"job", "JOB"}, {"day", "DAY"}, {"model", "MODEL"}, {"state", "STATE"}};
    struct table_column columns[USAGE_TEXTS + USAGE_COLUMNS] = {{.title = "WHAT"}};
    size_t count = 1, i;
    const json_t *row;
    for (i = 0; i < sizeof titles / sizeof titles[0]; i++)
        if (strcmp(cli_text(usage, "by"), titles[i][0]) == 0)
            columns[0].title = titles[i][1];
    if (strcmp(cli_text(usage, "by"), "job") == 0) {
        columns[count++] = (struct table_column){.title = "USER"};
        columns[count++] = (struct table_column){.title = "MODEL"};
    }
    for (int c = 0; c < USAGE_COLUMNS; c++)
        if (usage_is_shown(usage, c))
            columns[count++] =
                (struct table_column){.title = usage_columns[c].label, .right = true};
    CLEANUP(table_done) struct table table;
    table_init(&table, columns, count);
    json_array_foreach(json_object_get(usage, "data"), i, row) usage_row(&table, usage, row, false);
    usage_row(&table, usage, json_object_get(usage, "total"), true);
    TRY(cli_print_table(&table, err));
    if (json_is_true(json_object_get(usage, "has_more")))
        (void)printf("there are more: --limit, --after and --before say which\n");
    return 0;
}

/* A date, or Unix time. */
static int usage_parse_time(const char *option, const char *text, int64_t *ret_s, struct err *err)
{
    int64_t ms = 0;
    if (clock_parse_date(text, &ms)) {
        *ret_s = ms / 1000;
        return 0;
    }
    char *end = NULL;
    long long seconds = text[0] >= '0' && text[0] <= '9' ? strtoll(text, &end, 10) : -1;
    if (seconds < 0 || *end != '\0')
        return err_set(err, ERR_USAGE, "%s %s: write a date, such as 2026-11-30, or Unix time",
                       option, text);
    *ret_s = seconds;
    return 0;
}

/* The query of the window: "&after=...&before=...", or "". */
static int usage_window(struct cli *cli, char *ret_query, size_t bytes, struct err *err)
{
    const char *since = cli_take_option(cli, "--since");
    const char *after = cli_take_option(cli, "--after");
    const char *before = cli_take_option(cli, "--before");
    int64_t seconds = 0;
    int length = 0;
    ret_query[0] = '\0';
    if (since != NULL && after != NULL)
        return err_set(err, ERR_USAGE, "--since and --after: give one of them");
    if (since != NULL) {
        TRY(cli_parse_age("--since", since, &seconds, err));
        seconds = clock_wall_ms() / 1000 - seconds;
        seconds = seconds > 0 ? seconds : 0;
    }
    if (after != NULL)
        TRY(usage_parse_time("--after", after, &seconds, err));
    if (since != NULL || after != NULL)
        length = snprintf(ret_query, bytes, "&after=%lld", (long long)seconds);
    if (before == NULL)
        return 0;
    TRY(usage_parse_time("--before", before, &seconds, err));
    (void)snprintf(ret_query + length, bytes - (size_t)length, "&before=%lld", (long long)seconds);
    return 0;
}

int cmd_usage(struct cli *cli, struct err *err)
{
    struct client *client = NULL;
    CLEANUP(json_unref) json_t *usage = NULL;
    const char *by = cli_take_option(cli, "--by");
    const bool is_csv = cli_take_flag(cli, "--csv");
    char window[96], limit[CLI_LIMIT_BYTES], path[256];
    cli_take_limit(cli, '&', limit);
    TRY(usage_window(cli, window, sizeof window, err));
    TRY(cli_finish_arguments(cli, err));
    if (is_csv && cli->json)
        return err_set(err, ERR_USAGE, "--csv and --json: give one of them");
    (void)snprintf(path, sizeof path, "/v1/usage?by=%s%s%s%s", by != NULL ? by : "user", window,
                   limit, is_csv ? "&format=csv" : "");
    TRY(cli_client(cli, &client, err));
    if (is_csv)
        return client_download(client, path, STDOUT_FILENO, err);
    TRY(client_json(client, NULL, path, NULL, &usage, err));
    return cli->json ? cli_print_json(usage, err) : usage_print(usage, err);
}
