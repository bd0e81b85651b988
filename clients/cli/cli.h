/* cli: what the commands of `ithaca` share: the command line, the connection, output.
 *
 * Rules: results go to stdout, everything else to stderr. --json prints the API's JSON, one value
 * (or one line an item for streams). Errors are one line, "ithaca: <what>", naming field and fix;
 * with --json the same error as
 * {"error":{...}} on stderr. The exit status comes from api/errors.def. */
#pragma once
#include "clients/cli/command.h"
#include "common/err.h"
#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>

struct client;
struct table;

enum {
    CLI_GIVEN_MAX = 256, /* options of one command line: a job has some 60 fields to --set */
    CLI_LIMIT_BYTES = 64
};

/* An option that was given. */
struct cli_given {
    const struct command_row *row;
    const char *value; /* NULL: a flag */
    bool taken;        /* by the command */
};

struct cli {
    bool json;            /* --json */
    const char *url;      /* --url or ITHACA_URL, or NULL: from the data directory */
    const char *data_dir; /* --data-dir or ITHACA_DATA_DIR, or NULL: the default places */
    const char *cacert;   /* --cacert or ITHACA_CACERT, or NULL: the system's */
    const struct command_row *command; /* NULL: none was given */
    struct cli_given given[CLI_GIVEN_MAX];
    size_t given_count;
    int argc; /* arguments that are no options, without those that were taken */
    char **argv;
    struct client *client; /* made on first use by cli_client() */
};

/* Sorts the command line into command, options and arguments, which stay in argv. What commands.def
 * does not have is ERR_USAGE with the nearest that it has; the first mistake counts, the rest is
 * read all the same. Where cli->command is set, argv begins after its name. */
int cli_parse(struct cli *cli, int argc, char **argv, struct err *err);

/* A variable of the environment; an empty one counts as absent (NULL). */
const char *cli_environment(const char *name);

/* The connection; finds address and token on first use. */
int cli_client(struct cli *cli, struct client **ret, struct err *err);
/* A request over it and its answer, as client_json(). */
int cli_ask(struct cli *cli, const char *method, const char *path, const json_t *body, json_t **ret,
            struct err *err);
/* The same; frees the path. NULL: there was no memory for it. */
int cli_ask_at(struct cli *cli, const char *method, char *path, const json_t *body, json_t **ret,
               struct err *err);

/* A command by its name; ERR_USAGE with the nearest one. */
int cli_find_command(const char *name, const struct command_row **ret, struct err *err);

/* The value of an option, the first that was not taken; NULL when absent. The name must be a row of
 * the command's. */
const char *cli_take_option(struct cli *cli, const char *name);
bool cli_take_flag(struct cli *cli, const char *name);
/* Takes --limit N; the query "?limit=N", `first` being its ? or &; or "". */
void cli_take_limit(struct cli *cli, char first, char ret_query[CLI_LIMIT_BYTES]);
/* Takes the next plain argument; what it should be is named in the error when there is none. */
int cli_take_argument(struct cli *cli, const char *what, const char **ret, struct err *err);
/* The same of the only one that is left: cli_finish_arguments() comes with it. */
int cli_take_last(struct cli *cli, const char *what, const char **ret, struct err *err);
/* The same for a verb of the command: its name in commands.def. */
int cli_take_verb(struct cli *cli, const char **ret, struct err *err);
/* ERR_USAGE naming the first argument or option that nothing took. Call before acting. */
int cli_finish_arguments(const struct cli *cli, struct err *err);

/* Seconds of "30d", "12h", "45m", "2w" or "90s", the value of an option. */
int cli_parse_age(const char *option, const char *text, int64_t *ret_seconds, struct err *err);

/* A text of the API's; "-" where there is none. */
const char *cli_text(const json_t *object, const char *key);
/* A number, or a whole one; 0 where there is none. */
double cli_number(const json_t *object, const char *key);
long long cli_whole(const json_t *object, const char *key);
int cli_print_json(const json_t *value, struct err *err); /* pretty, to stdout */
/* Each row of a list of the API's, or with --json the list. */
int cli_print_list(const struct cli *cli, const json_t *list, void (*print)(const json_t *row),
                   struct err *err);
int cli_print_text(const struct buf *text, struct err *err); /* to stdout, where it is whole */
/* To stdout, as wide as the terminal there allows, or as it is. */
int cli_print_table(struct table *table, struct err *err);

/* Follows a job to its end; the status is the job's: 0 or the failure's code. Used by watch and
 * submit --follow. */
int cmd_watch_job(struct cli *cli, const char *job_id, struct err *err);
/* Whether a training file is a local one; else it must look like an id. */
int cmd_files_check(const char *path_or_id, bool *ret_local, struct err *err);
/* The id of a training file: a local file is uploaded first, anything else is taken as an id. New
 * string. */
int cmd_files_resolve(struct cli *cli, const char *path_or_id, char **ret_id, struct err *err);
