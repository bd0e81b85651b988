/* cmd_help: `ithaca help COMMAND` is `ithaca COMMAND --help`. */
#include "clients/cli/cli.h"

int cmd_help(struct cli *cli, struct err *err)
{
    const char *name = NULL;
    if (cli->argc > 0)
        TRY(cli_take_last(cli, "a command", &name, err));
    const struct command_row *command = NULL;
    if (name != NULL)
        TRY(cli_find_command(name, &command, err));
    return command_help(command, err);
}
