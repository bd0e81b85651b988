/* cmd_gpus: what jobs run on, one line each; drain and undrain. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

static const char *gpus_text(const json_t *gpu, const char *key)
{
    const char *text = json_string_value(json_object_get(gpu, key));
    return text != NULL ? text : "";
}

static double gpus_gib(const json_t *gpu, const char *key)
{
    return cli_number(gpu, key) / (1 << 30);
}

/* GPU-8c...  0  NVIDIA H200  taken  12.1/139.8 GiB  41 C  ftjob-... of ana */
static void gpus_print(const json_t *gpu)
{
    const char *name = gpus_text(gpu, "name"), *owner = gpus_text(gpu, "owner");
    const char *reason = gpus_text(gpu, "reason");
    const json_t *temperature = json_object_get(gpu, "temperature_c");
    (void)printf("%s", gpus_text(gpu, "id"));
    if (name[0] != '\0')
        (void)printf("  %lld  %s", cli_whole(gpu, "number"), name);
    (void)printf("  %s", gpus_text(gpu, "state"));
    if (name[0] != '\0')
        (void)printf("  %.1f/%.1f GiB", gpus_gib(gpu, "used_bytes"), gpus_gib(gpu, "total_bytes"));
    if (json_is_integer(temperature))
        (void)printf("  %lld C", (long long)json_integer_value(temperature));
    if (owner[0] != '\0')
        (void)printf("  %s%sof %s", gpus_text(gpu, "job_id"),
                     gpus_text(gpu, "job_id")[0] != '\0' ? " " : "", owner);
    (void)printf("%s%s\n", reason[0] != '\0' ? "  " : "", reason);
}

/* tail: "/drain" or "/undrain". */
static int gpus_post(struct cli *cli, const char *tail, json_t **ret, struct err *err)
{
    const char *id = NULL;
    TRY(cli_take_last(cli, "the GPU's id", &id, err));
    return cli_ask_at(cli, "POST", client_path("/v1/gpus/", id, tail), NULL, ret, err);
}

static int gpus_list(struct cli *cli, struct err *err)
{
    CLEANUP(json_unref) json_t *list = NULL;
    TRY(cli_finish_arguments(cli, err));
    TRY(cli_ask(cli, NULL, "/v1/gpus", NULL, &list, err));
    return cli_print_list(cli, list, gpus_print, err);
}

int cmd_gpus(struct cli *cli, struct err *err)
{
    const char *what = NULL;
    CLEANUP(json_unref) json_t *gpu = NULL;
    if (cli->argc == 0)
        return gpus_list(cli, err);
    TRY(cli_take_verb(cli, &what, err));
    TRY(gpus_post(cli, strcmp(what, "drain") == 0 ? "/drain" : "/undrain", &gpu, err));
    if (cli->json)
        return cli_print_json(gpu, err);
    gpus_print(gpu);
    return 0;
}
