/* command_help: help texts from the rows of commands.def, in lines of a terminal of 80 columns. */
#include "clients/cli/cli.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { HELP_COLUMNS = 79, HELP_LABEL_COLUMNS = 27, HELP_BYTES = 1 << 20 };

/* Words of a text in lines; the first begins at column `at`, the others at `indent`. */
static void command_help_wrap(const char *text, size_t at, size_t indent, struct buf *out)
{
    bool first = true;
    for (const char *word = text; *word != '\0';) {
        size_t length = strcspn(word, " ");
        if (!first && at + 1 + length > HELP_COLUMNS) {
            buf_printf(out, "\n%*s", (int)indent, "");
            at = indent;
        } else if (!first) {
            buf_char(out, ' ');
            at++;
        }
        buf_append(out, word, length);
        at += length;
        word += length + (word[length] == ' ');
        first = false;
    }
    buf_char(out, '\n');
}

/* "  --limit N      at most so many" */
static void command_help_line(const struct command_row *row, size_t label_columns, struct buf *out)
{
    char label[128];
    const bool takes = row->takes != NULL && row->takes[0] != '\0';
    int length = snprintf(label, sizeof label, "  %s%s%s", row->name, takes ? " " : "",
                          takes ? row->takes : "");
    size_t used = length > 0 ? (size_t)length : 0;
    buf_text(out, label);
    if (used + 1 > label_columns) {
        buf_char(out, '\n');
        used = 0;
    }
    buf_printf(out, "%*s", (int)(label_columns - used), "");
    command_help_wrap(row->doc, label_columns, label_columns, out);
}

/* The rows of one kind, with a heading where there are any. */
static void command_help_rows(const struct command_row *first, enum command_kind kind,
                              const char *heading, struct buf *out)
{
    for (const struct command_row *row = first; command_has(row); row++) {
        if (row->kind != kind)
            continue;
        buf_text(out, heading);
        heading = "";
        if (kind == COMMAND_KIND_NOTE)
            command_help_wrap(row->doc, 0, 0, out);
        else
            command_help_line(row, HELP_LABEL_COLUMNS, out);
    }
}

/* A command has options that its synopsis does not name? */
static bool command_help_has_more(const struct command_row *command)
{
    for (const struct command_row *row = command + 1; command_has(row); row++)
        if (row->kind == COMMAND_KIND_OPTION && strstr(command->takes, row->name) == NULL)
            return true;
    return false;
}

static bool command_help_has_verbs(const struct command_row *command)
{
    for (const struct command_row *row = command + 1; command_has(row); row++)
        if (row->kind == COMMAND_KIND_VERB)
            return true;
    return false;
}

static void command_help_usage(const struct command_row *command, struct buf *out)
{
    const char *start = "usage:";
    const bool verbs = command_help_has_verbs(command);
    if (command->takes != NULL) {
        bool more = !verbs && command_help_has_more(command);
        buf_printf(out, "%s ithaca %s%s%s%s\n", start, command->name,
                   command->takes[0] != '\0' ? " " : "", command->takes, more ? " [options]" : "");
        start = "      ";
    }
    for (const struct command_row *row = command + 1; command_has(row); row++) {
        if (row->kind != COMMAND_KIND_VERB)
            continue;
        buf_printf(out, "%s ithaca %s %s%s%s\n", start, command->name, row->name,
                   row->takes[0] != '\0' ? " " : "", row->takes);
        start = "      ";
    }
}

void command_help_one(const struct command_row *command, struct buf *out)
{
    command_help_usage(command, out);
    buf_printf(out, "\n%s\n", command->doc);
    command_help_rows(command + 1, COMMAND_KIND_VERB, "\n", out);
    command_help_rows(command + 1, COMMAND_KIND_OPTION, "\n", out);
    command_help_rows(command + 1, COMMAND_KIND_NOTE, "\n", out);
    buf_text(out, "\nOptions of all commands: `ithaca --help`.\n");
}

void command_help_all(struct buf *out)
{
    buf_text(out, "ithaca " ITHACA_VERSION ": fine-tune language models on very long contexts\n\n"
                  "usage: ithaca [options] COMMAND ...\n");
    bool shown = false;
    for (const struct command_row *row = command_rows; row->kind != COMMAND_KIND_END; row++) {
        if (row->kind == COMMAND_KIND_GROUP) {
            shown = row->name[0] != '\0';
            if (shown)
                buf_printf(out, "\n%s\n", row->name);
        } else if (row->kind == COMMAND_KIND_COMMAND && shown) {
            buf_printf(out, "  %-11s ", row->name);
            command_help_wrap(row->doc, 14, 14, out);
        }
    }
    command_help_rows(command_rows, COMMAND_KIND_OPTION, "\nOptions of all commands\n", out);
    buf_text(out, "\n`ithaca COMMAND --help` shows a command's options.\n");
    command_help_rows(command_rows, COMMAND_KIND_NOTE, "\n", out);
}

int command_help(const struct command_row *command, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, HELP_BYTES);
    if (command != NULL)
        command_help_one(command, &text);
    else
        command_help_all(&text);
    return cli_print_text(&text, err);
}
