/* cmd_storage: what the data folder's disk holds, and removing what is not needed. */
#include "clients/cli/cli.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STORAGE_SIZE_BYTES = 24 };

/* "12.3 MiB" of a member. */
static const char *storage_size(const json_t *object, const char *key, char ret[STORAGE_SIZE_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double bytes = cli_number(object, key);
    size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        bytes /= 1024;
    (void)snprintf(ret, STORAGE_SIZE_BYTES, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return ret;
}

/* "checkpoints 1.2 GiB, logs 20.0 KiB" */
static void storage_print_kinds(const json_t *row)
{
    const char *kind;
    json_t *bytes;
    const json_t *kinds = json_object_get(row, "kinds");
    char size[STORAGE_SIZE_BYTES];
    const char *separator = "";
    json_object_foreach((json_t *)(uintptr_t)kinds, kind, bytes)
    {
        (void)printf("%s%s %s", separator, kind, storage_size(kinds, kind, size));
        separator = ", ";
    }
    (void)printf("\n");
}

static void storage_print(const json_t *storage, const char *by)
{
    char size[STORAGE_SIZE_BYTES], other[STORAGE_SIZE_BYTES];
    size_t i;
    const json_t *row;
    if (strcmp(by, "user") == 0) {
        json_array_foreach(json_object_get(storage, "users"), i, row)
        {
            (void)printf("%11s  %-16s  ", storage_size(row, "bytes", size), cli_text(row, "user"));
            storage_print_kinds(row);
        }
    } else if (strcmp(by, "job") == 0) {
        json_array_foreach(json_object_get(storage, "jobs"), i, row)
        {
            (void)printf("%11s  %-30s  %-12s  ", storage_size(row, "bytes", size),
                         cli_text(row, "id"), cli_text(row, "user"));
            storage_print_kinds(row);
        }
    } else {
        json_array_foreach(json_object_get(storage, "kinds"), i, row)(void)
            printf("%11s  %-12s  %11s can be pruned\n", storage_size(row, "bytes", size),
                   cli_text(row, "kind"), storage_size(row, "prunable_bytes", other));
    }
    (void)printf("%11s  in all; ", storage_size(storage, "bytes", size));
    (void)printf("%s of ", storage_size(storage, "free_bytes", size));
    (void)printf("%s of the disk are free\n", storage_size(storage, "disk_bytes", size));
}

int cmd_du(struct cli *cli, struct err *err)
{
    CLEANUP(json_unref) json_t *storage = NULL;
    const char *by = cli_take_option(cli, "--by");
    char limit[CLI_LIMIT_BYTES], path[96];
    cli_take_limit(cli, '?', limit);
    TRY(cli_finish_arguments(cli, err));
    (void)snprintf(path, sizeof path, "/v1/storage%s", limit);
    TRY(cli_ask(cli, NULL, path, NULL, &storage, err));
    if (cli->json)
        return cli_print_json(storage, err);
    storage_print(storage, by != NULL ? by : "kind");
    return 0;
}

/* ---- prune --------------------------------------------------------------------------------- */

/* Takes the options of prune as the body of its request. New reference. */
static int storage_prune_body(struct cli *cli, json_t **ret, struct err *err)
{
    const char *age = cli_take_option(cli, "--older-than");
    const char *job = cli_take_option(cli, "--job");
    const char *keep = cli_take_option(cli, "--keep");
    const char *kind = NULL;
    const bool dry_run = cli_take_flag(cli, "--dry-run");
    CLEANUP(json_unref) json_t *kinds = json_array();
    CLEANUP(json_unref) json_t *body = json_pack("{s:b}", "dry_run", dry_run);
    int64_t seconds = 0;
    int bad = 0;
    while ((kind = cli_take_option(cli, "--kind")) != NULL)
        bad |= json_array_append_new(kinds, json_string(kind));
    TRY(cli_finish_arguments(cli, err));
    if (age == NULL && job == NULL && !dry_run && json_array_size(kinds) == 0)
        return err_set(err, ERR_USAGE,
                       "say what is to go: --older-than, --job or --kind (--dry-run shows it)");
    if (age != NULL) {
        TRY(cli_parse_age("--older-than", age, &seconds, err));
        bad |= json_object_set_new(body, "older_than_s", json_integer(seconds));
    }
    if (job != NULL)
        bad |= json_object_set_new(body, "job", json_string(job));
    if (keep != NULL)
        bad |= json_object_set_new(body, "keep", json_integer(strtoll(keep, NULL, 10)));
    if (json_array_size(kinds) > 0)
        bad |= json_object_set(body, "kinds", kinds);
    if (bad != 0)
        return err_set(err, ERR_USAGE, "an option is not UTF-8");
    *ret = json_incref(body);
    return 0;
}

int cmd_prune(struct cli *cli, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    CLEANUP(json_unref) json_t *pruned = NULL;
    char size[STORAGE_SIZE_BYTES];
    size_t i;
    const json_t *row;
    TRY(storage_prune_body(cli, &body, err));
    TRY(cli_ask(cli, "POST", "/v1/storage/prune", body, &pruned, err));
    if (cli->json)
        return cli_print_json(pruned, err);
    json_array_foreach(json_object_get(pruned, "data"), i, row)
    {
        const json_t *step = json_object_get(row, "step");
        (void)printf("%11s  %-11s  %s", storage_size(row, "bytes", size), cli_text(row, "kind"),
                     cli_text(row, "id"));
        if (json_is_integer(step))
            (void)printf("  step %lld", (long long)json_integer_value(step));
        (void)printf("\n");
    }
    const bool dry_run = json_is_true(json_object_get(pruned, "dry_run"));
    const json_int_t kept = json_integer_value(json_object_get(pruned, "kept_count"));
    (void)printf("%11s  %s\n", storage_size(pruned, "freed_bytes", size),
                 dry_run ? "would be freed" : "are freed");
    if (kept > 0)
        (void)fprintf(stderr, "%lld more could not go: the daemon's log tells why\n",
                      (long long)kept);
    return 0;
}
