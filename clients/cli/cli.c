/* cli: the command line is sorted once, by the rows of commands.def; commands then take what is
 * theirs, and what is left at the end is a mistake. */
#include "clients/cli/cli.h"

#include "clients/cli/client.h"
#include "clients/cli/table.h"
#include "clients/cli/terminal.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int cli_ask(struct cli *cli, const char *method, const char *path, const json_t *body, json_t **ret,
            struct err *err)
{
    struct client *client = NULL;
    TRY(cli_client(cli, &client, err));
    return client_json(client, method, path, body, ret, err);
}

int cli_ask_at(struct cli *cli, const char *method, char *path, const json_t *body, json_t **ret,
               struct err *err)
{
    CLEANUP(mem_free_ptr) char *owned = path;
    return owned != NULL ? cli_ask(cli, method, owned, body, ret, err)
                         : mem_fail(err, LIMIT_ID_BYTES, "a path");
}

/* ---- the command line ---- */

static int cli_unknown_option(const struct cli *cli, const char *word, size_t length,
                              struct err *err)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)length, word);
    const struct command_row *nearest = command_nearest_option(cli->command, name);
    if (nearest == NULL)
        return err_set(err, ERR_USAGE, "unknown option %s", word);
    return err_set(err, ERR_USAGE, "unknown option %s; did you mean %s?", word, nearest->name);
}

/* "cpu, cuda or cuda_own" */
static void cli_choices(const struct command_row *option, struct buf *out)
{
    const char *word = NULL;
    size_t length;
    while ((word = command_choice_next(option, word, &length)) != NULL) {
        const bool last = strchr(word, '|') == NULL;
        if (word != option->takes)
            buf_text(out, last ? " or " : ", ");
        buf_append(out, word, length);
    }
}

static int cli_check_value(const struct command_row *option, const char *value, struct err *err)
{
    if (option->value == COMMAND_VALUE_NUMBER &&
        (value[0] == '\0' || strspn(value, "0123456789") != strlen(value)))
        return err_set(err, ERR_USAGE, "%s %s: write a number", option->name, value);
    if (option->value == COMMAND_VALUE_CHOICE && !command_choice(option, value)) {
        CLEANUP(buf_done) struct buf choices;
        buf_init(&choices, LIMIT_NAME_BYTES);
        cli_choices(option, &choices);
        return err_set(err, ERR_USAGE, "%s %s: write %s", option->name, value, buf_str(&choices));
    }
    return 0;
}

/* The option at *at, which moves on over its value. */
static int cli_parse_option(struct cli *cli, int argc, char **argv, int *at, struct err *err)
{
    const char *word = argv[*at];
    const size_t length = strcspn(word, "=");
    const struct command_row *option = strcmp(word, "-h") == 0
                                           ? command_option(NULL, "--help", strlen("--help"))
                                           : command_option(cli->command, word, length);
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    if (option == NULL)
        return cli_unknown_option(cli, word, length, err);
    if (option->value == COMMAND_VALUE_NOTHING && value != NULL)
        return err_set(err, ERR_USAGE, "%s takes no value", option->name);
    if (option->value != COMMAND_VALUE_NOTHING && value == NULL) {
        if (*at + 1 >= argc)
            return err_set(err, ERR_USAGE, "%s needs a value", option->name);
        value = argv[++*at];
    }
    if (value != NULL)
        TRY(cli_check_value(option, value, err));
    if (cli->given_count == CLI_GIVEN_MAX)
        return err_set(err, ERR_USAGE, "there are more than %d options", CLI_GIVEN_MAX);
    cli->given[cli->given_count++] = (struct cli_given){.row = option, .value = value};
    return 0;
}

int cli_find_command(const char *name, const struct command_row **ret, struct err *err)
{
    *ret = command_find(name);
    if (*ret != NULL)
        return 0;
    const struct command_row *nearest = command_nearest(name);
    if (nearest == NULL)
        return err_set(err, ERR_USAGE, "unknown command %s (see `ithaca --help`)", name);
    return err_set(err, ERR_USAGE, "unknown command %s; did you mean %s? (see `ithaca --help`)",
                   name, nearest->name);
}

int cli_parse(struct cli *cli, int argc, char **argv, struct err *err)
{
    bool plain = false; /* after "--" */
    int rc = 0;
    cli->argv = argv; /* arguments move to its front */
    cli->argc = 0;
    for (int i = 0; i < argc; i++) {
        struct err later; /* another mistake than the first */
        struct err *sink = rc == 0 ? err : &later;
        char *word = argv[i];
        int rc_word = 0;
        if (!plain && strcmp(word, "--") == 0)
            plain = true;
        else if (!plain && word[0] == '-' && word[1] != '\0')
            rc_word = cli_parse_option(cli, argc, argv, &i, sink);
        else if (cli->command == NULL)
            rc_word = cli_find_command(word, &cli->command, sink);
        else
            argv[cli->argc++] = word;
        rc = rc == 0 ? rc_word : rc;
    }
    return rc;
}

const char *cli_take_option(struct cli *cli, const char *name)
{
    must(command_option(cli->command, name, strlen(name)) != NULL);
    for (size_t i = 0; i < cli->given_count; i++) {
        struct cli_given *given = &cli->given[i];
        if (given->taken || strcmp(given->row->name, name) != 0)
            continue;
        given->taken = true;
        return given->value;
    }
    return NULL;
}

bool cli_take_flag(struct cli *cli, const char *name)
{
    bool found = false;
    must(command_option(cli->command, name, strlen(name)) != NULL);
    for (size_t i = 0; i < cli->given_count; i++) {
        if (strcmp(cli->given[i].row->name, name) != 0)
            continue;
        cli->given[i].taken = found = true;
    }
    return found;
}

void cli_take_limit(struct cli *cli, char first, char ret_query[CLI_LIMIT_BYTES])
{
    const char *limit = cli_take_option(cli, "--limit");
    ret_query[0] = '\0';
    if (limit != NULL)
        (void)snprintf(ret_query, CLI_LIMIT_BYTES, "%climit=%s", first, limit);
}

int cli_take_argument(struct cli *cli, const char *what, const char **ret, struct err *err)
{
    if (cli->argc == 0)
        return err_set(err, ERR_USAGE, "%s is missing", what);
    *ret = cli->argv[0];
    cli->argv++;
    cli->argc--;
    return 0;
}

int cli_take_last(struct cli *cli, const char *what, const char **ret, struct err *err)
{
    TRY(cli_take_argument(cli, what, ret, err));
    return cli_finish_arguments(cli, err);
}

int cli_take_verb(struct cli *cli, const char **ret, struct err *err)
{
    const char *word = NULL;
    char verbs[LIMIT_NAME_BYTES] = "";
    size_t used = 0;
    for (const struct command_row *row = cli->command + 1; command_has(row); row++)
        if (row->kind == COMMAND_KIND_VERB && used < sizeof verbs)
            used += (size_t)snprintf(verbs + used, sizeof verbs - used, "%s%s",
                                     used > 0 ? ", " : "", row->name);
    if (cli->argc == 0)
        return err_set(err, ERR_USAGE, "what to do is missing: one of %s", verbs);
    TRY(cli_take_argument(cli, "what to do", &word, err));
    const struct command_row *verb =
        command_row(cli->command, COMMAND_KIND_VERB, word, strlen(word));
    if (verb == NULL)
        return err_set(err, ERR_USAGE, "unknown verb %s; use one of %s", word, verbs);
    *ret = verb->name;
    return 0;
}

int cli_finish_arguments(const struct cli *cli, struct err *err)
{
    if (cli->argc > 0)
        return err_set(err, ERR_USAGE, "unexpected argument %s", cli->argv[0]);
    for (size_t i = 0; i < cli->given_count; i++) {
        const struct cli_given *given = &cli->given[i];
        if (given->taken)
            continue;
        for (size_t j = 0; j < i; j++)
            if (cli->given[j].taken && cli->given[j].row == given->row)
                return err_set(err, ERR_USAGE, "%s is given twice", given->row->name);
        return err_set(err, ERR_USAGE, "%s does not belong here", given->row->name);
    }
    return 0;
}

/* ---- output ---- */

const char *cli_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "-";
}

double cli_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

long long cli_whole(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
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

int cli_print_list(const struct cli *cli, const json_t *list, void (*print)(const json_t *row),
                   struct err *err)
{
    size_t i;
    const json_t *row;
    if (cli->json)
        return cli_print_json(list, err);
    json_array_foreach(json_object_get(list, "data"), i, row) print(row);
    return 0;
}

int cli_parse_age(const char *option, const char *text, int64_t *ret_seconds, struct err *err)
{
    static const struct {
        char letter;
        int64_t seconds;
    } units[] = {{.letter = 's', .seconds = 1},
                 {.letter = 'm', .seconds = 60},
                 {.letter = 'h', .seconds = 3600},
                 {.letter = 'd', .seconds = 86400},
                 {.letter = 'w', .seconds = 604800}};
    char *end = NULL;
    long long count = text[0] >= '0' && text[0] <= '9' ? strtoll(text, &end, 10) : -1;
    for (size_t i = 0; count >= 0 && count <= 1000000 && i < sizeof units / sizeof units[0]; i++)
        if (end[0] == units[i].letter && end[1] == '\0') {
            *ret_seconds = count * units[i].seconds;
            return 0;
        }
    return err_set(err, ERR_USAGE, "%s %s: write a number and s, m, h, d or w, such as 30d", option,
                   text);
}

int cli_print_text(const struct buf *text, struct err *err)
{
    TRY(buf_error(text, err));
    (void)fputs(buf_str(text), stdout); /* main looks at stdout's state */
    return 0;
}

int cli_print_table(struct table *table, struct err *err)
{
    size_t width = 0, height = 0;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_ANSWER_BYTES);
    TRY(buf_error(&table->text, err));
    (void)terminal_size(&width, &height); /* 0: it is none */
    table_fit(table, width);
    table_print(table, &text);
    return cli_print_text(&text, err);
}
