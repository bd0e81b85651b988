/* main: `ithaca`, the command line. Picks the command, prints the error, ends with its status. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static void main_report(const struct cli *cli, const struct err *err)
{
    if (!cli->json) {
        (void)fprintf(stderr, "ithaca: %s\n", err->text);
        return;
    }
    json_t *error =
        json_pack("{s:{s:s, s:s, s:s?, s:s}}", "error", "message", err->text, "type",
                  err_code_type(err->code), "param", err->field[0] != '\0' ? err->field : NULL,
                  "code", err_code_name(err->code));
    char *text = json_dumps(error, JSON_COMPACT);
    (void)fprintf(stderr, "%s\n", text != NULL ? text : err->text);
    free(text);
    json_decref(error);
}

/* A variable of the environment stands for an option that is not given. */
static const char *main_option(struct cli *cli, const char *name, const char *variable)
{
    const char *value = cli_take_option(cli, name);
    return value != NULL ? value : cli_environment(variable);
}

static int main_run(struct cli *cli, int argc, char **argv, struct err *err)
{
    int rc = cli_parse(cli, argc, argv, err);
    cli->json = cli_take_flag(cli, "--json"); /* for the report, too */
    cli->url = main_option(cli, "--url", "ITHACA_URL");
    cli->data_dir = main_option(cli, "--data-dir", "ITHACA_DATA_DIR");
    cli->cacert = main_option(cli, "--cacert", "ITHACA_CACERT");
    const bool version = cli_take_flag(cli, "--version"), help = cli_take_flag(cli, "--help");
    if (rc == 0 && version)
        (void)printf("ithaca %s\n", ITHACA_VERSION);
    else if (rc == 0 && help)
        rc = command_help(cli->command, err);
    else if (rc == 0 && cli->command == NULL)
        rc = err_set(err, ERR_USAGE, "a command (see `ithaca --help`) is missing");
    else if (rc == 0)
        rc = cli->command->run(cli, err);
    if (rc == -ERR_USAGE && cli->command != NULL)
        return err_wrap(err, rc, "%s: ", cli->command->name);
    return rc;
}

int main(int argc, char **argv)
{
    struct cli cli = {.json = false};
    struct err err = {.code = ERR_NONE};
    (void)signal(SIGPIPE, SIG_DFL); /* a closed pipe ends us quietly, as it does other filters */
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    int rc = main_run(&cli, argc - 1, argv + 1, &err);
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == 0)
        rc = err_set(&err, ERR_IO, "standard output cannot be written");
    if (rc != 0)
        main_report(&cli, &err);
    client_free(cli.client);
    curl_global_cleanup();
    return rc == 0 ? 0 : err_code_exit(err.code);
}
