/* cmd_tokens: make, list and revoke API tokens; whose the own one is. */
#include "clients/cli/cli.h"
#include "clients/cli/client.h"
#include "common/clock.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_DAYS_MAX = 3650 };

/* "2026-11-30", or "-" for null. */
static void tokens_day(const json_t *object, const char *key, char ret[CLOCK_ISO_BYTES])
{
    const json_t *time = json_object_get(object, key);
    char whole[CLOCK_ISO_BYTES] = "-";
    if (json_is_integer(time))
        clock_iso(json_integer_value(time) * 1000, whole);
    (void)snprintf(ret, CLOCK_ISO_BYTES, "%.10s", whole);
}

static void tokens_print(const json_t *token)
{
    char created[CLOCK_ISO_BYTES], used[CLOCK_ISO_BYTES], expires[CLOCK_ISO_BYTES];
    tokens_day(token, "created_at", created);
    tokens_day(token, "last_used_at", used);
    tokens_day(token, "expires_at", expires);
    bool revoked = json_is_integer(json_object_get(token, "revoked_at"));
    (void)printf("%-30s  %s  %-6s  %-12s  made %s  used %-10s  ends %-10s  %s\n",
                 cli_text(token, "id"), cli_text(token, "prefix"), cli_text(token, "scope"),
                 cli_text(token, "user"), created, used, revoked ? "revoked" : expires,
                 cli_text(token, "name"));
}

/* The options of `create` as a body. New reference. */
static int tokens_body(struct cli *cli, json_t **ret, struct err *err)
{
    const char *user = cli_take_option(cli, "--user"), *name = cli_take_option(cli, "--name");
    const char *scope = cli_take_option(cli, "--scope"), *days = cli_take_option(cli, "--days");
    json_t *seconds = NULL;
    TRY(cli_finish_arguments(cli, err));
    if (user == NULL)
        return err_set(err, ERR_USAGE, "--user is missing: whose token it will be");
    if (days != NULL) {
        char *end;
        long long count = strtoll(days, &end, 10);
        if (*end != '\0' || count < 1 || count > TOKENS_DAYS_MAX)
            return err_set(err, ERR_USAGE, "--days %s: write 1 to %d", days, TOKENS_DAYS_MAX);
        seconds = json_integer(count * 86400);
    }
    *ret = json_pack("{s:s, s:s*, s:s*, s:o*}", "user", user, "name", name, "scope", scope,
                     "expires_in_s", seconds);
    return *ret != NULL ? 0 : err_set(err, ERR_USAGE, "an option is not UTF-8");
}

static int tokens_create(struct cli *cli, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    CLEANUP(json_unref) json_t *token = NULL;
    TRY(tokens_body(cli, &body, err));
    TRY(cli_ask(cli, "POST", "/v1/tokens", body, &token, err));
    if (cli->json)
        return cli_print_json(token, err);
    (void)fprintf(stderr, "%s of %s; it is shown this once:\n", cli_text(token, "id"),
                  cli_text(token, "user"));
    (void)printf("%s\n", cli_text(token, "token"));
    return 0;
}

static int tokens_list(struct cli *cli, struct err *err)
{
    struct client *client = NULL;
    CLEANUP(json_unref) json_t *list = NULL;
    TRY(cli_finish_arguments(cli, err));
    TRY(cli_client(cli, &client, err));
    TRY(client_list(client, "/v1/tokens", &list, err));
    return cli_print_list(cli, list, tokens_print, err);
}

static int tokens_revoke(struct cli *cli, struct err *err)
{
    const char *id = NULL;
    CLEANUP(json_unref) json_t *answer = NULL;
    TRY(cli_take_last(cli, "the token's id", &id, err));
    TRY(cli_ask_at(cli, "DELETE", client_path("/v1/tokens/", id, ""), NULL, &answer, err));
    if (cli->json)
        return cli_print_json(answer, err);
    (void)printf("revoked %s\n", id);
    return 0;
}

int cmd_tokens(struct cli *cli, struct err *err)
{
    const char *verb = NULL;
    TRY(cli_take_verb(cli, &verb, err));
    if (strcmp(verb, "create") == 0)
        return tokens_create(cli, err);
    if (strcmp(verb, "revoke") == 0)
        return tokens_revoke(cli, err);
    return tokens_list(cli, err);
}

int cmd_whoami(struct cli *cli, struct err *err)
{
    CLEANUP(json_unref) json_t *who = NULL;
    TRY(cli_finish_arguments(cli, err));
    TRY(cli_ask(cli, NULL, "/v1/session", NULL, &who, err));
    if (cli->json)
        return cli_print_json(who, err);
    (void)printf("%s (%s)\n", cli_text(who, "user"), cli_text(who, "scope"));
    return 0;
}
