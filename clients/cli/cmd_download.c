/* cmd_download: a tuned model, or a checkpoint as a model, into a folder that appears whole: the
 * files go to a folder beside it, which is renamed when the last one is there. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct download {
    struct client *client;
    char *base;  /* "/v1/fine_tuning/jobs/<id>/model" */
    char *query; /* "checkpoint=<id>&", or "" */
    char *part;  /* the folder while it is filled */
};

static void download_done(struct download *download)
{
    struct err unremoved; /* it is named in the error that came first */
    if (download->part != NULL)
        (void)io_remove_tree(download->part, &unremoved);
    mem_free(download->base);
    mem_free(download->query);
    mem_free(download->part);
}

/* A name that stays in its folder, or in one of it, whatever the server says. */
static bool download_is_name(const char *name)
{
    if (name == NULL || name[0] == '\0' || name[0] == '.')
        return false;
    const char *slash = strchr(name, '/');
    return slash == NULL || (slash[1] != '\0' && slash[1] != '.' && strchr(slash + 1, '/') == NULL);
}

/* The folder that the file goes to, made. */
static int download_make_folder(const struct download *download, const char *name, struct err *err)
{
    const char *slash = strchr(name, '/');
    if (slash == NULL)
        return 0;
    CLEANUP(mem_free_ptr)
    char *folder = mem_printf("%s/%.*s", download->part, (int)(slash - name), name);
    return folder != NULL ? io_make_dirs(folder, 0755, err)
                          : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

static int download_file(struct download *download, const json_t *file, struct err *err)
{
    const char *name = json_string_value(json_object_get(file, "id"));
    int64_t wanted = json_integer_value(json_object_get(file, "bytes")), bytes = 0;
    if (!download_is_name(name))
        return err_set(err, ERR_PROTOCOL, "the server lists a file without a proper name");
    CLEANUP(mem_free_ptr) char *escaped = client_escape(name);
    CLEANUP(mem_free_ptr)
    char *path = escaped != NULL
                     ? mem_printf("%s/content?%sfile=%s", download->base, download->query, escaped)
                     : NULL;
    CLEANUP(mem_free_ptr) char *to = io_join(download->part, name);
    if (path == NULL || to == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(download_make_folder(download, name, err));
    TRY(client_file(download->client, path, to, err));
    TRY(io_file_size(to, &bytes, err));
    if (bytes != wanted)
        return err_set(err, ERR_IO, "%s: %lld bytes came, %lld were announced", name,
                       (long long)bytes, (long long)wanted);
    return 0;
}

static int download_files(struct download *download, json_t **ret_list, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/files?%s", download->base, download->query);
    CLEANUP(json_unref) json_t *list = NULL;
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(client_json(download->client, NULL, path, NULL, &list, err));
    TRY(io_remove_tree(download->part, err)); /* of a download that was killed */
    TRY(io_make_dirs(download->part, 0755, err));
    size_t i;
    const json_t *file;
    json_array_foreach(json_object_get(list, "data"), i, file)
    {
        TRY(download_file(download, file, err));
    }
    *ret_list = json_incref(list);
    return 0;
}

static int download_open(struct cli *cli, const char *id, const char *checkpoint,
                         const char *output, struct download *download, struct err *err)
{
    CLEANUP(mem_free_ptr) char *job = client_escape(id);
    CLEANUP(mem_free_ptr) char *wanted = checkpoint != NULL ? client_escape(checkpoint) : NULL;
    bool whole = job != NULL && (checkpoint == NULL || wanted != NULL);
    download->base = whole ? mem_printf("/v1/fine_tuning/jobs/%s/model", job) : NULL;
    download->query = wanted != NULL ? mem_printf("checkpoint=%s&", wanted) : mem_strdup("");
    download->part = mem_printf("%s.part", output);
    if (download->base == NULL || download->query == NULL || download->part == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    return cli_client(cli, &download->client, err);
}

static bool download_has(const json_t *files, const char *name)
{
    size_t i;
    const json_t *file;
    json_array_foreach(files, i, file)
    {
        if (strcmp(json_string_value(json_object_get(file, "id")), name) == 0)
            return true;
    }
    return false;
}

static void download_tell(const json_t *files, const char *output)
{
    (void)printf("%s: %zu files\n", output, json_array_size(files));
    if (download_has(files, "adapter_config.json")) {
        (void)printf("load the adapters: peft.PeftModel.from_pretrained(base, \"%s\")\n", output);
        return;
    }
    (void)printf("load it: transformers.AutoModelForCausalLM.from_pretrained(\"%s\")\n", output);
    if (download_has(files, "adapter/adapter_config.json"))
        (void)printf("or its adapters: peft.PeftModel.from_pretrained(base, \"%s/adapter\")\n",
                     output);
}

int cmd_download(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    const char *checkpoint = cli_take_option(cli, "--checkpoint");
    const char *output = cli_take_option(cli, "--output");
    CLEANUP(download_done) struct download download = {.client = NULL};
    CLEANUP(json_unref) json_t *list = NULL;
    TRY(cli_take_last(cli, "the job's id", &id, err));
    if (output == NULL)
        return err_set(err, ERR_USAGE, "--output DIR is missing");
    if (io_exists(output))
        return err_set(err, ERR_USAGE, "--output %s: it is there already", output);
    TRY(download_open(cli, id, checkpoint, output, &download, err));
    TRY(download_files(&download, &list, err));
    if (rename(download.part, output) != 0)
        return err_set_errno(err, errno, "%s", output);
    if (cli->json)
        return cli_print_json(list, err);
    download_tell(json_object_get(list, "data"), output);
    return 0;
}
