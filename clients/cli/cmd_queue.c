/* cmd_queue: what runs and what waits, a line each, and who has used how much; drain and undrain.
 */
#include "clients/cli/cli.h"
#include "common/clock.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

/* "  starts 2026-11-30T12:00:00Z", or nothing where the time is not known. */
static void queue_print_time(const json_t *entry, const char *key, const char *what)
{
    char when[CLOCK_ISO_BYTES];
    if (!json_is_integer(json_object_get(entry, key)))
        return;
    clock_iso(json_integer_value(json_object_get(entry, key)) * 1000, when);
    (void)printf("  %s %.19sZ", what, when);
}

static void queue_print_entry(const json_t *entry)
{
    const json_t *position = json_object_get(entry, "queue_position");
    const json_t *reason = json_object_get(entry, "pending_reason");
    if (json_is_integer(position))
        (void)printf("%4lld", (long long)json_integer_value(position));
    else
        (void)printf("    ");
    (void)printf("  %-30s  %-10s  %-10s  slots %lld  priority %lld", cli_text(entry, "id"),
                 cli_text(entry, "owner"), cli_text(entry, "state"), cli_whole(entry, "slots"),
                 cli_whole(entry, "priority"));
    queue_print_time(entry, "estimated_end", "until");
    queue_print_time(entry, "estimated_start", "starts");
    if (json_is_string(reason))
        (void)printf("  %s", json_string_value(reason));
    (void)printf("\n");
}

static void queue_print(const json_t *queue)
{
    size_t i;
    const json_t *row;
    const json_t *waiting = json_object_get(queue, "waiting");
    const long long unseen =
        cli_whole(queue, "waiting_count") - (long long)json_array_size(waiting);
    (void)printf("%lld of %lld slots are free%s\n", cli_whole(queue, "free_slots"),
                 cli_whole(queue, "slots"),
                 json_is_true(json_object_get(queue, "drained")) ? "; drained: nothing starts"
                                                                 : "");
    json_array_foreach(json_object_get(queue, "running"), i, row) queue_print_entry(row);
    json_array_foreach(waiting, i, row) queue_print_entry(row);
    if (unseen > 0)
        (void)printf("and %lld more that wait\n", unseen);
    json_array_foreach(json_object_get(queue, "users"), i, row)(void)
        printf("%s: %lld slots now, %.2f slot-hours of late, %.2f in all\n", cli_text(row, "user"),
               cli_whole(row, "slots"), cli_number(row, "used_s") / 3600,
               cli_number(row, "total_s") / 3600);
}

int cmd_queue(struct cli *cli, struct err *err)
{
    const char *what = NULL;
    CLEANUP(json_unref) json_t *answer = NULL;
    if (cli->argc > 0)
        TRY(cli_take_verb(cli, &what, err));
    TRY(cli_finish_arguments(cli, err));
    if (what == NULL)
        TRY(cli_ask(cli, NULL, "/v1/queue?limit=1000", NULL, &answer, err));
    else
        TRY(cli_ask(cli, "POST",
                    strcmp(what, "drain") == 0 ? "/v1/admin/drain" : "/v1/admin/undrain", NULL,
                    &answer, err));
    if (cli->json)
        return cli_print_json(answer, err);
    if (what == NULL)
        queue_print(answer);
    else
        (void)printf("%s\n", json_is_true(json_object_get(answer, "drained"))
                                 ? "drained: no job starts"
                                 : "jobs start");
    return 0;
}
