/* cmd_files: upload, list, show, fetch and remove training files. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void files_print(const json_t *file)
{
    (void)printf("%s  %10lld bytes  %-9s  %s\n", json_string_value(json_object_get(file, "id")),
                 cli_whole(file, "bytes"), json_string_value(json_object_get(file, "status")),
                 json_string_value(json_object_get(file, "filename")));
}

static int files_upload(struct cli *cli, struct client *client, struct err *err)
{
    const char *path = NULL;
    CLEANUP(json_unref) json_t *file = NULL;
    TRY(cli_take_last(cli, "the file to upload", &path, err));
    TRY(client_upload(client, path, "fine-tune", &file, err));
    if (cli->json)
        return cli_print_json(file, err);
    (void)printf("%s\n", json_string_value(json_object_get(file, "id")));
    return 0;
}

static int files_ls(struct cli *cli, struct client *client, struct err *err)
{
    CLEANUP(json_unref) json_t *list = NULL;
    TRY(cli_finish_arguments(cli, err));
    TRY(client_list(client, "/v1/files", &list, err));
    return cli_print_list(cli, list, files_print, err);
}

static int files_get(struct cli *cli, struct client *client, const char *id, struct err *err)
{
    const char *output = cli_take_option(cli, "--output");
    CLEANUP(mem_free_ptr) char *path = client_path("/v1/files/", id, "/content");
    TRY(cli_finish_arguments(cli, err));
    if (path == NULL)
        return mem_fail(err, LIMIT_ID_BYTES, "a path");
    if (output != NULL)
        return client_file(client, path, output, err);
    return client_download(client, path, STDOUT_FILENO, err);
}

static int files_show_or_rm(struct cli *cli, const char *id, const char *method, struct err *err)
{
    CLEANUP(json_unref) json_t *answer = NULL;
    TRY(cli_finish_arguments(cli, err));
    TRY(cli_ask_at(cli, method, client_path("/v1/files/", id, ""), NULL, &answer, err));
    if (cli->json)
        return cli_print_json(answer, err);
    if (method != NULL)
        (void)printf("deleted %s\n", id);
    else
        files_print(answer);
    return 0;
}

int cmd_files(struct cli *cli, struct err *err)
{
    const char *verb = NULL;
    const char *id = NULL;
    struct client *client = NULL;
    TRY(cli_take_verb(cli, &verb, err));
    TRY(cli_client(cli, &client, err));
    if (strcmp(verb, "upload") == 0)
        return files_upload(cli, client, err);
    if (strcmp(verb, "ls") == 0)
        return files_ls(cli, client, err);
    TRY(cli_take_argument(cli, "the file's id", &id, err));
    if (strcmp(verb, "get") == 0)
        return files_get(cli, client, id, err);
    return files_show_or_rm(cli, id, strcmp(verb, "rm") == 0 ? "DELETE" : NULL, err);
}

int cmd_files_check(const char *path_or_id, bool *ret_local, struct err *err)
{
    *ret_local = io_exists(path_or_id);
    if (*ret_local || strncmp(path_or_id, "file-", 5) == 0)
        return 0;
    return err_set(err, ERR_NOT_FOUND, "%s: no such file (and not the id of an uploaded one)",
                   path_or_id);
}

int cmd_files_resolve(struct cli *cli, const char *path_or_id, char **ret_id, struct err *err)
{
    struct client *client = NULL;
    CLEANUP(json_unref) json_t *file = NULL;
    const char *id = path_or_id;
    bool local = false;
    TRY(cmd_files_check(path_or_id, &local, err));
    if (local) {
        TRY(cli_client(cli, &client, err));
        TRY(client_upload(client, path_or_id, "fine-tune", &file, err));
        TRY(json_get_string(file, "id", ERR_PROTOCOL, &id, err));
        (void)fprintf(stderr, "uploaded %s as %s\n", path_or_id, id);
    }
    *ret_id = mem_strdup(id);
    return *ret_id != NULL ? 0 : mem_fail(err, LIMIT_ID_BYTES, "an id");
}
