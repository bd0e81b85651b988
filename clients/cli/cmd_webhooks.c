/* cmd_webhooks: the secret that webhooks of one's jobs are signed with, and where they may go. */
#include "clients/cli/cli.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

int cmd_webhooks(struct cli *cli, struct err *err)
{
    const char *verb = NULL;
    CLEANUP(json_unref) json_t *webhooks = NULL;
    TRY(cli_take_verb(cli, &verb, err));
    TRY(cli_finish_arguments(cli, err));
    if (strcmp(verb, "rotate") == 0)
        TRY(cli_ask(cli, "POST", "/v1/webhooks/rotate", NULL, &webhooks, err));
    else
        TRY(cli_ask(cli, NULL, "/v1/webhooks", NULL, &webhooks, err));
    if (cli->json)
        return cli_print_json(webhooks, err);
    const json_t *hosts = json_object_get(webhooks, "allowed_hosts");
    size_t i;
    const json_t *host;
    (void)printf("secret   %s\nhosts   ", cli_text(webhooks, "secret"));
    json_array_foreach(hosts, i, host)(void) printf(" %s", json_string_value(host));
    (void)printf("%s\nwaiting  %lld\n",
                 json_array_size(hosts) == 0 ? " none (setting webhook_hosts of the daemon)" : "",
                 cli_whole(webhooks, "waiting"));
    return 0;
}
