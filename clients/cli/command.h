/* command: the table of commands.def. The parser (cli.h), `ithaca --help`, shell completion and the
 * manual page all read it, so a command or an option is one row there and nothing else.
 *
 *     const struct command_row *command = command_find("submit");
 *     for (const struct command_row *row = command + 1; command_has(row); row++)
 *         ... rows of submit: verbs, options, notes ... */
#pragma once
#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct cli;
typedef int cli_run_fn(struct cli *cli, struct err *err);

enum command_kind {
    COMMAND_KIND_GROUP, /* a heading; commands below "", the last one, are not shown */
    COMMAND_KIND_COMMAND,
    COMMAND_KIND_VERB,
    COMMAND_KIND_OPTION,
    COMMAND_KIND_NOTE,
    COMMAND_KIND_VARIABLE, /* of the environment */
    COMMAND_KIND_END       /* after the last row */
};

/* What an option takes, or what follows a command or a verb. */
enum command_value {
    COMMAND_VALUE_NOTHING, /* an option: a flag */
    COMMAND_VALUE_TEXT,
    COMMAND_VALUE_NUMBER, /* digits alone: checked by the parser */
    COMMAND_VALUE_AMOUNT, /* 3072, 512K, 3M */
    COMMAND_VALUE_CHOICE, /* one of the words in `takes`: checked by the parser */
    COMMAND_VALUE_FILE,
    COMMAND_VALUE_FOLDER,
    COMMAND_VALUE_JOB,
    COMMAND_VALUE_MODEL,
    COMMAND_VALUE_GPU,
    COMMAND_VALUE_FILE_ID, /* of an uploaded file */
    COMMAND_VALUE_TOKEN,
    COMMAND_VALUE_EXPERIMENT,
    COMMAND_VALUE_CHECKPOINT,
    COMMAND_VALUE_METRIC,
    COMMAND_VALUE_FIELD, /* FIELD=VALUE of a job's `ithaca` */
    COMMAND_VALUE_COMMAND_NAME,
    COMMAND_VALUE_COUNT
};

enum { COMMAND_LABEL_BYTES = 256 };

struct command_row {
    enum command_kind kind;
    enum command_value value;
    const char *name;  /* "submit", "upload", "--model", "ITHACA_URL", a group's title */
    const char *takes; /* what follows, in words: "[JOB.json]", "NAME", "cpu|cuda"; may be NULL */
    const char *doc;   /* one line; of a note: a paragraph */
    cli_run_fn *run;   /* of a command */
};

/* From the options of all commands to the row of kind END. */
extern const struct command_row command_rows[];

/* The commands' functions, cmd_<name>, each in cmd_<name>.c or beside its kin. */
#define GROUP(...)
#define COMMAND(name, ...) cli_run_fn cmd_##name;
#define VERB(...)
#define OPTION(...)
#define FLAG(...)
#define NOTE(...)
#define VARIABLE(...)
#include "clients/cli/commands.def"
#undef GROUP
#undef COMMAND
#undef VERB
#undef OPTION
#undef FLAG
#undef NOTE
#undef VARIABLE

const struct command_row *command_find(const char *name); /* NULL: there is none */
const struct command_row *command_of(cli_run_fn *run);    /* the one that it runs; NULL: none */
/* Walks the headings and commands that are shown: from = NULL begins; NULL: no more. */
const struct command_row *command_next_shown(const struct command_row *from);
/* Is the row still one of the command (or group of general rows) that began above it? */
bool command_has(const struct command_row *row);
bool command_has_verbs(const struct command_row *command);
/* A row of this kind, of a command or (NULL) of all commands, with this name; NULL: none. */
const struct command_row *command_row(const struct command_row *command, enum command_kind kind,
                                      const char *name, size_t length);
/* An option of the command (may be NULL), or of all commands. */
const struct command_row *command_option(const struct command_row *command, const char *name,
                                         size_t length);
/* The command, or the option, whose name is nearest to a mistyped one; NULL: none is near. */
const struct command_row *command_nearest(const char *name);
const struct command_row *command_nearest_option(const struct command_row *command,
                                                 const char *name);
/* What is written: "--limit N", "upload PATH". */
void command_label(const struct command_row *row, char ret_label[COMMAND_LABEL_BYTES]);
/* Is the text one of the words that a CHOICE takes? */
bool command_choice(const struct command_row *option, const char *text);
/* Walks the words of a CHOICE: from = NULL begins; NULL: no more. "cpu|cuda": 3 bytes, 4 bytes. */
const char *command_choice_next(const struct command_row *option, const char *from,
                                size_t *ret_length);

/* `ithaca --help`, and `ithaca COMMAND --help`. */
void command_help_all(struct buf *out);
void command_help_one(const struct command_row *command, struct buf *out);
/* One of them to stdout; NULL: that of all commands. */
int command_help(const struct command_row *command, struct err *err);
