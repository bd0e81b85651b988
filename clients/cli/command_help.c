/* command_help: help texts from the rows of commands.def, in lines of a terminal of 80 columns. */
#include "clients/cli/cli.h"
#include "common/mem.h"

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
static void command_help_line(const struct command_row *row, struct buf *out)
{
    char label[COMMAND_LABEL_BYTES];
    command_label(row, label);
    buf_printf(out, "  %s", label);
    size_t used = strlen("  ") + strlen(label);
    if (used + 1 > HELP_LABEL_COLUMNS) {
        buf_char(out, '\n');
        used = 0;
    }
    buf_printf(out, "%*s", (int)(HELP_LABEL_COLUMNS - used), "");
    command_help_wrap(row->doc, HELP_LABEL_COLUMNS, HELP_LABEL_COLUMNS, out);
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
            command_help_line(row, out);
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

static void command_help_usage(const struct command_row *command, struct buf *out)
{
    const char *start = "usage:";
    char label[COMMAND_LABEL_BYTES];
    if (command->takes != NULL) {
        bool more = !command_has_verbs(command) && command_help_has_more(command);
        command_label(command, label);
        buf_printf(out, "%s ithaca %s%s\n", start, label, more ? " [options]" : "");
        start = "      ";
    }
    for (const struct command_row *row = command + 1; command_has(row); row++) {
        if (row->kind != COMMAND_KIND_VERB)
            continue;
        command_label(row, label);
        buf_printf(out, "%s ithaca %s %s\n", start, command->name, label);
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
    const struct command_row *row = NULL;
    while ((row = command_next_shown(row)) != NULL) {
        if (row->kind == COMMAND_KIND_GROUP) {
            buf_printf(out, "\n%s\n", row->name);
        } else {
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
