/* cmd_compare: asks three things about each job, and shows them side by side (compare.h). */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "clients/cli/compare.h"
#include "clients/cli/terminal.h"
#include "common/clock.h"
#include "common/edit_distance.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/metric.h"

#include <stdio.h>

enum { COMPARE_POINTS = 400, COMPARE_TEXT_BYTES = 16 << 20 };

struct compare_asked {
    const char *ids[COMPARE_JOBS_MAX];
    struct compare_answers answers[COMPARE_JOBS_MAX]; /* references of their own */
    size_t count;
};

static void compare_asked_done(struct compare_asked *asked)
{
    for (size_t i = 0; i < asked->count; i++) {
        json_decref(asked->answers[i].job);
        json_decref(asked->answers[i].metrics);
        json_decref(asked->answers[i].memory);
    }
}

static int compare_ask(struct client *client, const char *metric, struct compare_asked *asked,
                       struct err *err)
{
    char metrics[LIMIT_NAME_BYTES + 128], memory[64];
    (void)snprintf(metrics, sizeof metrics,
                   "/metrics?keys=%s,valid_loss,tokens_per_s,mfu_causal,step_time_s&max_points=%d",
                   metric, COMPARE_POINTS);
    (void)snprintf(memory, sizeof memory, "/memory?max_points=%d", COMPARE_POINTS);
    for (size_t i = 0; i < asked->count; i++) {
        struct compare_answers *answers = &asked->answers[i];
        TRY(client_job(client, NULL, asked->ids[i], "", NULL, &answers->job, err));
        TRY(client_job(client, NULL, asked->ids[i], metrics, NULL, &answers->metrics, err));
        TRY(client_job(client, NULL, asked->ids[i], memory, NULL, &answers->memory, err));
    }
    return 0;
}

static int compare_print(const struct cli *cli, const json_t *comparison, bool csv, struct err *err)
{
    size_t columns = 0, rows = 0;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, COMPARE_TEXT_BYTES);
    if (cli->json)
        return cli_print_json(comparison, err);
    (void)terminal_size(&columns, &rows); /* 0: it is none */
    if (csv)
        compare_csv(comparison, &text);
    else
        TRY(compare_text(comparison, columns, &text, err));
    return cli_print_text(&text, err);
}

/* ERR_USAGE with the nearest one where there is no such metric. */
static int compare_check_metric(const char *name, struct err *err)
{
    const char *nearest = "loss";
    size_t least = edit_distance_too_far(name);
    if (metric_parse(name) != METRIC_COUNT)
        return 0;
    for (int m = 0; m < METRIC_COUNT; m++) {
        const char *known = metric_name((enum metric_id)m);
        size_t distance = edit_distance(name, known);
        if (distance < least) {
            nearest = known;
            least = distance;
        }
    }
    return err_set(err, ERR_USAGE, "--metric %s: there is no such metric; did you mean %s?", name,
                   nearest);
}

int cmd_compare(struct cli *cli, struct err *err)
{
    struct client *client = NULL;
    CLEANUP(json_unref) json_t *comparison = NULL;
    CLEANUP(compare_asked_done) struct compare_asked asked = {.count = 0};
    const bool csv = cli_take_flag(cli, "--csv");
    const char *metric = cli_take_option(cli, "--metric");
    metric = metric != NULL ? metric : "loss";
    TRY(compare_check_metric(metric, err));
    while (cli->argc > 0 && asked.count < COMPARE_JOBS_MAX)
        TRY(cli_take_argument(cli, "a job's id", &asked.ids[asked.count++], err));
    if (cli->argc > 0)
        return err_set(err, ERR_USAGE, "at most %d jobs are compared", COMPARE_JOBS_MAX);
    if (asked.count < 2)
        return err_set(err, ERR_USAGE, "the ids of two jobs or more are missing");
    TRY(cli_finish_arguments(cli, err));
    TRY(cli_client(cli, &client, err));
    TRY(compare_ask(client, metric, &asked, err));
    TRY(compare_make(asked.answers, asked.count, metric, clock_wall_ms() / 1000, &comparison, err));
    return compare_print(cli, comparison, csv, err);
}
