/* cmd_profile: a job's profile on one page, and its trace as a file. Where there is none yet, or
 * --steps is given, a running job is asked for one, and waited for. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROFILE_POLL_MS = 500,
    PROFILE_ROWS = 10 /* of each list */
};

struct profile_command {
    struct client *client;
    const char *id; /* of the job */
};

/* ---- taking it --------------------------------------------------------------------------- */

/* NULL where there is none, or no such job, which the next request tells. */
static int profile_get(const struct profile_command *command, json_t **ret, struct err *err)
{
    *ret = NULL;
    int rc = client_job(command->client, NULL, command->id, "/profile", NULL, ret, err);
    return rc == -ERR_NOT_FOUND ? 0 : rc;
}

/* What tells one profile from the next. */
static bool profile_is_same(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"attempt", "first_step", "last_step", "taken_at"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i])))
            return false;
    return true;
}

static int profile_check_running(const struct profile_command *command, struct err *err)
{
    CLEANUP(json_unref) json_t *job = NULL;
    TRY(client_job(command->client, NULL, command->id, "", NULL, &job, err));
    const char *state = cli_text(json_object_get(job, "ithaca"), "state");
    if (strcmp(state, "running") == 0)
        return 0;
    return err_set(err, ERR_BAD_STATE, "the job is %s and has left no such profile", state);
}

/* Until there is another than `before`, or the job does not run any more. */
static int profile_await(const struct profile_command *command, const json_t *before, json_t **ret,
                         struct err *err)
{
    for (;;) {
        struct err ended;
        int rc = profile_check_running(command, &ended);
        TRY(profile_get(command, ret, err));
        if (*ret != NULL && (before == NULL || !profile_is_same(*ret, before)))
            return 0;
        json_decref(*ret);
        *ret = NULL;
        if (rc != 0) {
            *err = ended;
            return rc;
        }
        clock_sleep_ms(PROFILE_POLL_MS);
    }
}

static int profile_take(const struct profile_command *command, const char *steps, json_t **ret,
                        struct err *err)
{
    CLEANUP(json_unref) json_t *before = NULL;
    CLEANUP(json_unref) json_t *asked = NULL;
    CLEANUP(json_unref) json_t *body = NULL;
    TRY(profile_get(command, &before, err));
    if (before != NULL && steps == NULL) {
        *ret = json_incref(before);
        return 0;
    }
    if (steps != NULL &&
        (body = json_pack("{s:I}", "steps", (json_int_t)strtoll(steps, NULL, 10))) == NULL)
        return mem_fail(err, 0, "a request");
    TRY(client_job(command->client, "POST", command->id, "/profile", body, &asked, err));
    (void)fprintf(stderr, "profiling %lld steps ...\n", cli_whole(asked, "steps"));
    return profile_await(command, before, ret, err);
}

static int profile_save(const struct profile_command *command, const char *output, struct err *err)
{
    CLEANUP(mem_free_ptr)
    char *path = client_path("/v1/fine_tuning/jobs/", command->id, "/trace");
    return path != NULL ? client_file(command->client, path, output, err)
                        : mem_fail(err, strlen(command->id), "a path");
}

/* ---- text -------------------------------------------------------------------------------- */

/* Steps of all ranks: what sums are divided by. */
static double profile_steps(const json_t *profile)
{
    return (cli_number(profile, "last_step") - cli_number(profile, "first_step") + 1) *
           cli_number(profile, "ranks");
}

/* A list of figures: milliseconds a rank and step. */
static void profile_print_list(const json_t *profile, const char *key)
{
    const json_t *list = json_object_get(profile, key);
    const double each = profile_steps(profile);
    if (json_array_size(list) == 0)
        return;
    (void)printf("\n%-48s %10s %7s %8s\n", key, "ms a step", "share", "count");
    size_t i;
    const json_t *figure;
    json_array_foreach(list, i, figure)
    {
        if (i < PROFILE_ROWS)
            (void)printf("  %-46.46s %10.3f %6.1f%% %8.0f\n", cli_text(figure, "name"),
                         cli_number(figure, "total_ms") / each, cli_number(figure, "share") * 100,
                         cli_number(figure, "count") / each);
    }
}

/* "collectives 12.3 ms a step, 45 % of it under kernels" */
static void profile_print_hidden(const json_t *profile, const char *what)
{
    const json_t *overlap = json_object_get(profile, "overlap");
    char ms[32], hidden[32];
    (void)snprintf(ms, sizeof ms, "%s_ms", what);
    (void)snprintf(hidden, sizeof hidden, "%s_hidden", what);
    if (json_is_number(json_object_get(overlap, hidden)))
        (void)printf("  %-12s %10.3f ms a step, %.1f %% of it while a kernel ran\n", what,
                     cli_number(overlap, ms) / profile_steps(profile),
                     cli_number(overlap, hidden) * 100);
}

static void profile_print_idle(const json_t *profile)
{
    const json_t *idle = json_object_get(profile, "idle");
    size_t i;
    const json_t *gap;
    if (!json_is_object(idle))
        return;
    (void)printf("\noverlap and idle time\n");
    profile_print_hidden(profile, "collectives");
    profile_print_hidden(profile, "copies");
    (void)printf("  %-12s %9.1f%% of the steps\n", "idle", cli_number(idle, "share") * 100);
    json_array_foreach(json_object_get(idle, "longest"), i, gap)(void)
        printf("    %.3f ms on rank %.0f in step %.0f, %s, %.3f ms after the first step began\n",
               cli_number(gap, "ms"), cli_number(gap, "rank"), cli_number(gap, "step"),
               cli_text(gap, "phase"), cli_number(gap, "at_ms"));
}

static void profile_print_ranks(const json_t *profile)
{
    size_t i;
    const json_t *rank;
    (void)printf("\nrank     ms a step   kernels   waits    idle\n");
    json_array_foreach(json_object_get(profile, "by_rank"), i, rank)(void) printf(
        json_is_number(json_object_get(rank, "idle")) ? "  %-4.0f %12.3f %8.1f%% %6.1f%% %6.1f%%\n"
                                                      : "  %-4.0f %12.3f %8.1f%% %6.1f%%\n",
        cli_number(rank, "rank"), cli_number(rank, "step_ms"), cli_number(rank, "kernels") * 100,
        cli_number(rank, "waits") * 100, cli_number(rank, "idle") * 100);
}

static void profile_print_bytes(const char *name, double bytes)
{
    bool large = bytes >= 0x1p30;
    (void)printf("  %-30s %10.1f %s\n", name, bytes * (large ? 0x1p-30 : 0x1p-20),
                 large ? "GiB" : "MiB");
}

static void profile_print_memory(const json_t *profile)
{
    const json_t *memory = json_object_get(profile, "memory");
    size_t i;
    const json_t *buffer;
    (void)printf("\nmemory of a rank's device in the peak, \"%s\"\n",
                 cli_text(memory, "peak_phase"));
    profile_print_bytes("in all", cli_number(memory, "peak_device_bytes"));
    json_array_foreach(json_object_get(memory, "buffers"), i, buffer)
    {
        if (i < PROFILE_ROWS)
            profile_print_bytes(cli_text(buffer, "name"), cli_number(buffer, "bytes"));
    }
}

/* How a suggestion is followed. */
static void profile_print_set(const json_t *profile, json_t *set)
{
    const char *field;
    const json_t *value;
    char text[64];
    if (json_object_size(set) == 0)
        return;
    (void)printf("     ithaca resubmit %s", cli_text(profile, "job_id"));
    json_object_foreach(set, field, value)
    {
        json_brief(value, text, sizeof text);
        (void)printf(" --set %s=%s", field, text);
    }
    (void)printf("\n");
}

static void profile_print(const json_t *profile)
{
    size_t i;
    const json_t *one;
    (void)printf("steps %.0f to %.0f of %s on %.0f ranks (%s): %.3f ms a step\n",
                 cli_number(profile, "first_step"), cli_number(profile, "last_step"),
                 cli_text(profile, "job_id"), cli_number(profile, "ranks"),
                 cli_text(profile, "device"), cli_number(profile, "step_ms"));
    if (cli_number(profile, "left_out_steps") > 0)
        (void)printf("%.0f steps more found no room\n", cli_number(profile, "left_out_steps"));
    if (cli_number(profile, "dropped_events") > 0)
        (void)printf("%.0f events found no room: figures are too low\n",
                     cli_number(profile, "dropped_events"));
    if (!json_is_true(json_object_get(profile, "kernels_traced")))
        (void)printf("kernels are not in it: libcupti cannot be used there\n");
    profile_print_list(profile, "phases");
    profile_print_list(profile, "parts");
    profile_print_list(profile, "kernels");
    profile_print_list(profile, "waits");
    profile_print_list(profile, "collectives");
    profile_print_list(profile, "copies");
    profile_print_idle(profile);
    profile_print_ranks(profile);
    profile_print_memory(profile);
    (void)printf("\nsuggestions\n");
    json_array_foreach(json_object_get(profile, "suggestions"), i, one)
    {
        (void)printf("  %zu. %s\n", i + 1, cli_text(one, "text"));
        profile_print_set(profile, json_object_get(one, "set"));
    }
}

int cmd_profile(struct cli *cli, struct err *err)
{
    const char *steps = cli_take_option(cli, "--steps");
    const char *output = cli_take_option(cli, "--output");
    struct profile_command command = {.client = NULL};
    CLEANUP(json_unref) json_t *profile = NULL;
    TRY(cli_take_last(cli, "the job's id", &command.id, err));
    if (output != NULL && io_exists(output))
        return err_set(err, ERR_USAGE, "--output %s: it is there already", output);
    TRY(cli_client(cli, &command.client, err));
    TRY(profile_take(&command, steps, &profile, err));
    if (output != NULL)
        TRY(profile_save(&command, output, err));
    if (cli->json)
        return cli_print_json(profile, err);
    profile_print(profile);
    if (output != NULL)
        (void)printf("\n%s: open it at https://ui.perfetto.dev\n", output);
    return 0;
}
