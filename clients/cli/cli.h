/* cli: what the commands of `ithaca` share: options, output, the table of commands.
 *
 * Rules: results go to stdout, everything else to stderr. --json prints the API's JSON, one value
 * (or one line an item for streams). Errors are one line, "ithaca: <what>", naming field and fix;
 * with --json the same error as
 * {"error":{...}} on stderr. The exit status comes from api/errors.def. */
#pragma once
#include "common/err.h"
#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>

struct client;

/* Options every command takes, and the rest of the command line. */
struct cli {
    bool json;            /* --json */
    const char *url;      /* --url or ITHACA_URL, or NULL: from the data directory */
    const char *data_dir; /* --data-dir or ITHACA_DATA_DIR, or NULL: the default places */
    const char *cacert;   /* --cacert or ITHACA_CACERT, or NULL: the system's */
    int argc;             /* what follows the command's name, options above removed */
    char **argv;
    struct client *client; /* made on first use by cli_client() */
};

typedef int cli_run_fn(struct cli *cli, struct err *err);

struct cli_command {
    const char *name;    /* "submit" */
    const char *usage;   /* "submit JOB.json [--follow]" */
    const char *summary; /* one line */
    const char *details; /* the options and an example; may be NULL */
    cli_run_fn *run;
};
extern const struct cli_command cli_commands[];
extern const size_t cli_command_count;
const struct cli_command *cli_command_find(const char *name);

/* A variable of the environment; an empty one counts as absent (NULL). */
const char *cli_environment(const char *name);

/* The connection; finds address and token on first use. */
int cli_client(struct cli *cli, struct client **ret, struct err *err);

/* Takes `--name VALUE` or `--name=VALUE` out of the arguments; *ret = NULL when absent. A missing
 * value is ERR_USAGE. */
int cli_take_option(struct cli *cli, const char *name, const char **ret, struct err *err);
bool cli_take_flag(struct cli *cli, const char *name);
/* Takes the next plain argument; what it should be is named in the error when there is none. */
int cli_take_argument(struct cli *cli, const char *what, const char **ret, struct err *err);
/* ERR_USAGE naming the first argument that nothing took. Call before acting. */
int cli_finish_arguments(const struct cli *cli, struct err *err);

/* A text of the API's; "-" where there is none. */
const char *cli_text(const json_t *object, const char *key);
int cli_print_json(const json_t *value, struct err *err); /* pretty, to stdout */

/* Commands, one file each (cmd_<name>.c). */
cli_run_fn cmd_files, cmd_submit, cmd_resubmit, cmd_ls, cmd_show, cmd_events, cmd_watch, cmd_logs,
    cmd_models, cmd_sample, cmd_fields, cmd_download, cmd_preview;
cli_run_fn cmd_plan, cmd_ladder, cmd_calibrate, cmd_doctor; /* each its own file, too */
cli_run_fn cmd_tokens, cmd_whoami;                          /* cmd_tokens.c */
cli_run_fn cmd_gpus;                                        /* cmd_gpus.c */
cli_run_fn cmd_cancel, cmd_rm, cmd_pause, cmd_resume, cmd_hold, cmd_release, cmd_update,
    cmd_checkpoints; /* cmd_control.c */
cli_run_fn cmd_queue;
/* Follows a job to its end; the status is the job's: 0 or the failure's code. Used by watch and
 * submit --follow. */
int cmd_watch_job(struct cli *cli, const char *job_id, struct err *err);
/* The id of a training file: a local file is uploaded first, anything else is taken as an id. New
 * string. */
int cmd_files_resolve(struct cli *cli, const char *path_or_id, char **ret_id, struct err *err);
