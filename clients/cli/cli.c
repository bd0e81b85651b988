/* cli: the arguments are an array from which options are taken out; what is left at the end is a
 * mistake. */
#include "clients/cli/cli.h"

#include "clients/cli/client.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct cli_command *cli_command_find(const char *name)
{
    for (size_t i = 0; i < cli_command_count; i++)
        if (strcmp(cli_commands[i].name, name) == 0)
            return &cli_commands[i];
    return NULL;
}

const char *cli_environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

int cli_client(struct cli *cli, struct client **ret, struct err *err)
{
    if (cli->client == NULL)
        TRY(client_new(cli->url, cli->data_dir, cli->cacert, &cli->client, err));
    *ret = cli->client;
    return 0;
}

static void cli_remove(struct cli *cli, int at, int count)
{
    for (int i = at; i + count < cli->argc; i++)
        cli->argv[i] = cli->argv[i + count];
    cli->argc -= count;
}

int cli_take_option(struct cli *cli, const char *name, const char **ret, struct err *err)
{
    size_t length = strlen(name);
    *ret = NULL;
    for (int i = 0; i < cli->argc && strcmp(cli->argv[i], "--") != 0; i++) {
        if (strncmp(cli->argv[i], name, length) != 0)
            continue;
        if (cli->argv[i][length] == '=') {
            *ret = cli->argv[i] + length + 1;
            cli_remove(cli, i, 1);
            return 0;
        }
        if (cli->argv[i][length] != '\0')
            continue;
        if (i + 1 >= cli->argc)
            return err_set(err, ERR_USAGE, "%s needs a value", name);
        *ret = cli->argv[i + 1];
        cli_remove(cli, i, 2);
        return 0;
    }
    return 0;
}

bool cli_take_flag(struct cli *cli, const char *name)
{
    for (int i = 0; i < cli->argc && strcmp(cli->argv[i], "--") != 0; i++) {
        if (strcmp(cli->argv[i], name) == 0) {
            cli_remove(cli, i, 1);
            return true;
        }
    }
    return false;
}

int cli_take_argument(struct cli *cli, const char *what, const char **ret, struct err *err)
{
    if (cli->argc > 0 && strcmp(cli->argv[0], "--") == 0)
        cli_remove(cli, 0, 1);
    else if (cli->argc > 0 && cli->argv[0][0] == '-' && cli->argv[0][1] != '\0')
        return err_set(err, ERR_USAGE, "unknown option %s", cli->argv[0]);
    if (cli->argc == 0)
        return err_set(err, ERR_USAGE, "%s is missing", what);
    *ret = cli->argv[0];
    cli_remove(cli, 0, 1);
    return 0;
}

int cli_finish_arguments(const struct cli *cli, struct err *err)
{
    if (cli->argc == 0)
        return 0;
    if (cli->argv[0][0] == '-')
        return err_set(err, ERR_USAGE, "unknown option %s", cli->argv[0]);
    return err_set(err, ERR_USAGE, "unexpected argument %s", cli->argv[0]);
}

const char *cli_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "-";
}

int cli_print_json(const json_t *value, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 1 << 30);
    TRY(json_print_pretty(value, &text, err));
    if (fwrite(buf_str(&text), 1, text.length, stdout) != text.length)
        return err_set(err, ERR_IO, "standard output cannot be written");
    return 0;
}
