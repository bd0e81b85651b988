/* cmd_jobs: list, show, events, logs, models: one request, a few lines out. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "common/clock.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/number.h"

#include <stdio.h>

static void jobs_print_row(const json_t *job)
{
    const json_t *ithaca = json_object_get(job, "ithaca");
    char progress[48];
    (void)snprintf(progress, sizeof progress, "%lld/%lld", cli_whole(ithaca, "steps_done"),
                   cli_whole(ithaca, "steps_total"));
    char when[CLOCK_ISO_BYTES];
    clock_iso(json_integer_value(json_object_get(job, "created_at")) * 1000, when);
    (void)printf("%s  %.19sZ  %-10s  %-11s  %s\n", cli_text(job, "id"), when,
                 cli_text(ithaca, "state"), progress, cli_text(job, "model"));
}

/* Says that a page was not all there is. */
static void jobs_print_more(const json_t *list, const char *what)
{
    size_t shown = json_array_size(json_object_get(list, "data"));
    if (json_is_true(json_object_get(list, "has_more")))
        (void)fprintf(stderr,
                      "these are the newest %zu; there are older %s: --limit N shows more\n", shown,
                      what);
}

int cmd_ls(struct cli *cli, struct err *err)
{
    CLEANUP(json_unref) json_t *list = NULL;
    char query[CLI_LIMIT_BYTES];
    cli_take_limit(cli, '?', query);
    TRY(cli_finish_arguments(cli, err));
    TRY(cli_ask_at(cli, NULL, mem_printf("/v1/fine_tuning/jobs%s", query), NULL, &list, err));
    if (cli->json)
        return cli_print_json(list, err);
    size_t i;
    const json_t *job;
    json_array_foreach(json_object_get(list, "data"), i, job) jobs_print_row(job);
    jobs_print_more(list, "jobs");
    return 0;
}

static void jobs_print_measured(const json_t *report)
{
    if (!json_is_object(report))
        return;
    if (!json_is_true(json_object_get(report, "rehearsed"))) {
        (void)printf("measured: a step %s s, %s tokens/s a rank; %.2f GiB of each device held, "
                     "%.2f planned\n",
                     number_plain(cli_number(report, "step_s"), 4).text,
                     number_plain(cli_number(report, "tokens_per_s_gpu"), 5).text,
                     cli_number(report, "device_bytes") * 0x1p-30,
                     cli_number(report, "planned_device_bytes") * 0x1p-30);
        return;
    }
    (void)printf("rehearsed: rank 0 of %.0f, %.0f of %.0f layers; %.2f GiB of the device held; a "
                 "whole step, predicted: %s s, %s s of it for the network (modelled)\n",
                 cli_number(report, "world"), cli_number(report, "layers_worked"),
                 cli_number(report, "layers"), cli_number(report, "device_bytes") * 0x1p-30,
                 number_plain(cli_number(report, "predicted_step_s"), 4).text,
                 number_plain(cli_number(report, "network_wait_s"), 4).text);
}

/* How far the check of the training file is. */
static void jobs_print_preparing(const json_t *preparing)
{
    const json_t *fault = json_object_get(preparing, "fault");
    if (json_is_true(json_object_get(preparing, "waiting"))) {
        (void)printf("file %.0f of %.0f: another job makes the same tokens; this one waits for "
                     "them\n",
                     cli_number(preparing, "file"), cli_number(preparing, "files"));
        return;
    }
    (void)printf("checked: %.0f of %.0f bytes of file %.0f of %.0f, %.0f rows\n",
                 cli_number(preparing, "bytes"), cli_number(preparing, "bytes_total"),
                 cli_number(preparing, "file"), cli_number(preparing, "files"),
                 cli_number(preparing, "rows"));
    char column[32] = ""; /* 0: of no column */
    if (cli_whole(fault, "column") > 0)
        (void)snprintf(column, sizeof column, " column %lld", cli_whole(fault, "column"));
    if (json_is_object(fault))
        (void)printf("  wrong so far: %.0f; the first is line %.0f%s: %s: %s\n",
                     cli_number(preparing, "bad"), cli_number(fault, "line"), column,
                     cli_text(fault, "code"), cli_text(fault, "message"));
}

/* What became of the training file, and how long its examples are. */
static void jobs_print_data(const json_t *data)
{
    const char *code;
    const json_t *value;
    size_t i;
    const json_t *preparing = json_object_get(data, "preparing");
    if (preparing != NULL)
        jobs_print_preparing(preparing);
    if (!json_is_object(data) || preparing != NULL)
        return;
    (void)printf("data: %.0f of %.0f lines kept: %.0f examples of %.0f tokens, %.0f with loss\n",
                 cli_number(data, "kept"), cli_number(data, "lines"), cli_number(data, "examples"),
                 cli_number(data, "tokens"), cli_number(data, "trained_tokens"));
    json_object_foreach(json_object_get(data, "codes"), code, value)(void)
        printf("  dropped: %.0f %s\n", json_number_value(value), code);
    json_array_foreach(json_object_get(data, "histogram"), i, value)(void)
        printf("  up to %.0f tokens: %.0f\n", json_number_value(json_array_get(value, 0)),
               json_number_value(json_array_get(value, 1)));
    if (cli_number(data, "overlength") > 0)
        (void)printf("  longer than seq_len: %.0f (%s%%), the longest %.0f tokens; %.0f tokens "
                     "unused\n",
                     cli_number(data, "overlength"),
                     number_plain(100 * cli_number(data, "overlength_share"), 3).text,
                     cli_number(data, "longest"), cli_number(data, "tokens_cut"));
}

int cmd_show(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    CLEANUP(json_unref) json_t *job = NULL;
    TRY(cli_take_last(cli, "the job's id", &id, err));
    TRY(cli_ask_at(cli, NULL, client_path("/v1/fine_tuning/jobs/", id, ""), NULL, &job, err));
    if (cli->json)
        return cli_print_json(job, err);
    const json_t *ithaca = json_object_get(job, "ithaca");
    const json_t *error = json_object_get(job, "error");
    jobs_print_row(job);
    if (json_is_string(json_object_get(ithaca, "pending_reason")))
        (void)printf("waits: %s\n", cli_text(ithaca, "pending_reason"));
    if (json_is_object(error))
        (void)printf("failed: %s (%s)\n", cli_text(error, "message"), cli_text(error, "code"));
    if (json_is_string(json_object_get(ithaca, "resumed_from")))
        (void)printf("attempt %lld began with %s\n", cli_whole(ithaca, "attempt"),
                     cli_text(ithaca, "resumed_from"));
    if (json_is_string(json_object_get(job, "fine_tuned_model")))
        (void)printf("model: %s\n", cli_text(job, "fine_tuned_model"));
    jobs_print_data(json_object_get(ithaca, "data"));
    jobs_print_measured(json_object_get(ithaca, "measured"));
    return 0;
}

int cmd_events(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    char query[CLI_LIMIT_BYTES];
    CLEANUP(json_unref) json_t *list = NULL;
    cli_take_limit(cli, '?', query);
    TRY(cli_take_last(cli, "the job's id", &id, err));
    char tail[96];
    (void)snprintf(tail, sizeof tail, "/events%s", query[0] != '\0' ? query : "?limit=100");
    TRY(cli_ask_at(cli, NULL, client_path("/v1/fine_tuning/jobs/", id, tail), NULL, &list, err));
    if (cli->json)
        return cli_print_json(list, err);
    const json_t *events = json_object_get(list, "data");
    for (size_t i = json_array_size(events); i > 0; i--) { /* the API gives the newest first */
        const json_t *event = json_array_get(events, i - 1);
        char when[CLOCK_ISO_BYTES];
        clock_iso(json_integer_value(json_object_get(event, "created_at")) * 1000, when);
        const char *who =
            json_string_value(json_object_get(json_object_get(event, "data"), "user"));
        (void)printf("%.19sZ  %-5s  %s%s%s\n", when, cli_text(event, "level"),
                     cli_text(event, "message"), who != NULL ? "  by " : "",
                     who != NULL ? who : "");
    }
    jobs_print_more(list, "events");
    return 0;
}

int cmd_logs(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    const char *rank = cli_take_option(cli, "--rank");
    const char *attempt = cli_take_option(cli, "--attempt");
    CLEANUP(json_unref) json_t *logs = NULL;
    TRY(cli_take_last(cli, "the job's id", &id, err));
    CLEANUP(mem_free_ptr)
    char *tail = mem_printf("/logs?rank=%s%s%s", rank != NULL ? rank : "0",
                            attempt != NULL ? "&attempt=" : "", attempt != NULL ? attempt : "");
    if (tail == NULL)
        return mem_fail(err, LIMIT_ID_BYTES, "a path");
    TRY(cli_ask_at(cli, NULL, client_path("/v1/fine_tuning/jobs/", id, tail), NULL, &logs, err));
    if (cli->json)
        return cli_print_json(logs, err);
    (void)fputs(json_string_value(json_object_get(logs, "text")) ? cli_text(logs, "text") : "",
                stdout);
    return 0;
}

/* "8.03B": a number of parameters in three digits or so. */
static void jobs_short_count(double count, char ret_text[16])
{
    static const char units[] = {' ', 'K', 'M', 'B', 'T'};
    size_t unit = 0;
    for (; count >= 999.5 && unit + 1 < sizeof units; unit++)
        count /= 1000;
    int digits = unit == 0 || count >= 99.95 ? 0 : count >= 9.995 ? 1 : 2;
    (void)snprintf(ret_text, 16, "%.*f%c", digits, count, units[unit]);
}

/* One line: can it be used, how large is it, how may its heads be shared. */
static void jobs_print_model(const json_t *model)
{
    const json_t *card = json_object_get(model, "ithaca"); /* tuned ones have none */
    const json_t *reason = json_object_get(card, "reason");
    char parameters[16];
    size_t i;
    const json_t *degree;
    if (json_is_string(reason)) {
        printf("%s: cannot be used: %s\n", cli_text(model, "id"), json_string_value(reason));
        return;
    }
    if (card == NULL) {
        printf("%s\n", cli_text(model, "id"));
        return;
    }
    jobs_short_count(cli_number(card, "parameters"), parameters);
    printf("%-40s %-6s %6s parameters, context %lld, ulysses", cli_text(model, "id"),
           cli_text(card, "family"), parameters, cli_whole(card, "context_length"));
    json_array_foreach(json_object_get(card, "ulysses"), i, degree)
        printf(" %lld", (long long)json_integer_value(degree));
    printf("\n");
}

int cmd_models(struct cli *cli, struct err *err)
{
    CLEANUP(json_unref) json_t *list = NULL;
    TRY(cli_finish_arguments(cli, err));
    TRY(cli_ask(cli, NULL, "/v1/models", NULL, &list, err));
    return cli_print_list(cli, list, jobs_print_model, err);
}
