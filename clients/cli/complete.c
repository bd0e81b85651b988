/* complete: the words before the last one say what kind of thing it is; a row of commands.def says
 * what there is of that kind. */
#include "clients/cli/complete.h"

#include "common/job_field.h"
#include "common/metric.h"
#include "common/model_published.h"
#include "common/utf8.h"

#include <stdio.h>
#include <string.h>

enum { COMPLETE_DOC_BYTES = 160, COMPLETE_WORD_BYTES = 256 };

void complete_offer(struct complete_out *out, const char *candidate, const char *doc)
{
    if (strncmp(candidate, out->typed, strlen(out->typed)) != 0)
        return;
    char clean[COMPLETE_DOC_BYTES];
    utf8_line(doc != NULL ? doc : "", clean, sizeof clean); /* no tab, no line's end */
    buf_append(out->text, out->lead, out->lead_length);
    buf_printf(out->text, "%s\t%s\n", candidate, clean);
}

/* ---- values ---- */

static void complete_choices(const struct command_row *option, struct complete_out *out)
{
    const char *word = NULL;
    size_t length;
    char name[COMPLETE_WORD_BYTES];
    while ((word = command_choice_next(option, word, &length)) != NULL) {
        (void)snprintf(name, sizeof name, "%.*s", (int)length, word);
        complete_offer(out, name, NULL);
    }
}

/* FIELD=, and after the sign the values where they can be counted. */
static void complete_fields(struct complete_out *out)
{
    char text[COMPLETE_WORD_BYTES];
    for (size_t i = 0; i < job_field_count; i++) {
        const struct job_field *field = &job_fields[i];
        const size_t length = strlen(field->path);
        const bool names = field->kind == JOB_FIELD_KIND_ENUM || field->kind == JOB_FIELD_KIND_SET;
        if (strncmp(out->typed, field->path, length) != 0 || out->typed[length] != '=') {
            (void)snprintf(text, sizeof text, "%s=", field->path);
            complete_offer(out, text, field->doc);
            continue;
        }
        static const struct job_enum_value booleans[] = {{.name = "true"}, {.name = "false"}};
        const struct job_enum_value *values = names ? field->names->values : booleans;
        int count = names ? field->names->count : field->kind == JOB_FIELD_KIND_BOOL ? 2 : 0;
        for (int v = 0; v < count; v++) {
            (void)snprintf(text, sizeof text, "%s=%s", field->path, values[v].name);
            complete_offer(out, text, NULL);
        }
    }
}

static void complete_metrics(struct complete_out *out)
{
#define X(id, name, unit, scope, label, doc) complete_offer(out, name, label);
#include "api/metrics.def"
#undef X
}

static void complete_commands(struct complete_out *out)
{
    const struct command_row *row = NULL;
    while ((row = command_next_shown(row)) != NULL)
        if (row->kind == COMMAND_KIND_COMMAND)
            complete_offer(out, row->name, row->doc);
}

/* Of an option, or what follows a command or a verb. */
static void complete_value(const struct command_row *row, const struct complete_line *line,
                           complete_ask_fn *ask, void *context, struct complete_out *out)
{
    const bool folders = row->takes != NULL && strstr(row->takes, "DIR") != NULL;
    switch (row->value) {
    case COMMAND_VALUE_CHOICE:
        complete_choices(row, out);
        break;
    case COMMAND_VALUE_FIELD:
        complete_fields(out);
        break;
    case COMMAND_VALUE_METRIC:
        complete_metrics(out);
        break;
    case COMMAND_VALUE_COMMAND_NAME:
        complete_commands(out);
        break;
    case COMMAND_VALUE_FILE:
        buf_text(out->text, ":files\n");
        break;
    case COMMAND_VALUE_FOLDER:
        buf_text(out->text, ":folders\n");
        break;
    case COMMAND_VALUE_MODEL:
        for (size_t i = 0; folders && i < model_published_count; i++)
            complete_offer(out, model_published[i].name, "a published shape, for plans");
        if (folders)
            buf_text(out->text, ":folders\n");
        ask(context, line, row->value, out);
        break;
    case COMMAND_VALUE_JOB:
    case COMMAND_VALUE_GPU:
    case COMMAND_VALUE_FILE_ID:
    case COMMAND_VALUE_TOKEN:
    case COMMAND_VALUE_EXPERIMENT:
    case COMMAND_VALUE_CHECKPOINT:
        ask(context, line, row->value, out);
        break;
    case COMMAND_VALUE_NOTHING:
    case COMMAND_VALUE_TEXT:
    case COMMAND_VALUE_NUMBER:
    case COMMAND_VALUE_AMOUNT:
    case COMMAND_VALUE_COUNT:
        break;
    }
}

/* ---- words ---- */

static void complete_rows(const struct command_row *first, enum command_kind kind,
                          struct complete_out *out)
{
    for (const struct command_row *row = first; command_has(row); row++)
        if (row->kind == kind)
            complete_offer(out, row->name, row->doc);
}

/* Keeps the value of an option that says where the daemon is. */
static void complete_keep(struct complete_line *line, const struct command_row *option,
                          const char *value)
{
    const char **places[] = {&line->url, &line->data_dir, &line->cacert};
    static const char *const names[] = {"--url", "--data-dir", "--cacert"};
    for (size_t i = 0; i < 3; i++)
        if (strcmp(option->name, names[i]) == 0)
            *places[i] = value;
}

static void complete_plain(struct complete_line *line, const char *word)
{
    if (line->command == NULL) {
        line->command = command_find(word);
    } else if (line->argument == NULL) {
        const struct command_row *verb =
            command_row(line->command, COMMAND_KIND_VERB, word, strlen(word));
        if (line->verb == NULL && verb != NULL)
            line->verb = verb;
        else
            line->argument = word;
    }
}

/* Reads the words before the last one; the option whose value the last one is, or NULL. */
static const struct command_row *complete_read(char *const *words, size_t count,
                                               struct complete_line *line, bool *ret_plain)
{
    const struct command_row *option = NULL; /* that waits for its value */
    for (size_t i = 0; i + 1 < count; i++) {
        const char *word = words[i];
        const size_t length = strcspn(word, "=");
        if (option != NULL) {
            complete_keep(line, option, word);
            option = NULL;
        } else if (!*ret_plain && strcmp(word, "--") == 0) {
            *ret_plain = true;
        } else if (!*ret_plain && word[0] == '-' && word[1] != '\0') {
            option = command_option(line->command, word, length);
            if (option != NULL && word[length] == '=')
                complete_keep(line, option, word + length + 1);
            if (option != NULL && (word[length] == '=' || option->value == COMMAND_VALUE_NOTHING))
                option = NULL;
        } else {
            complete_plain(line, word);
        }
    }
    return option;
}

void complete_words(char *const *words, size_t count, complete_ask_fn *ask, void *context,
                    struct buf *ret_text)
{
    struct complete_line line = {.command = NULL};
    bool plain = false;
    const struct command_row *option = complete_read(words, count, &line, &plain);
    const char *last = count > 0 ? words[count - 1] : "";
    const size_t length = strcspn(last, "=");
    struct complete_out out = {.typed = last, .lead = last, .text = ret_text};
    if (option == NULL && !plain && last[0] == '-' && last[length] == '=') {
        option = command_option(line.command, last, length); /* --model=NA */
        out.lead_length = length + 1;
        out.typed = last + length + 1;
        if (option == NULL || option->value == COMMAND_VALUE_NOTHING)
            return;
    }
    if (option != NULL) {
        complete_value(option, &line, ask, context, &out);
    } else if (!plain && last[0] == '-') {
        if (line.command != NULL)
            complete_rows(line.command + 1, COMMAND_KIND_OPTION, &out);
        complete_rows(command_rows, COMMAND_KIND_OPTION, &out);
    } else if (line.command == NULL) {
        complete_commands(&out);
    } else if (command_has_verbs(line.command) && line.verb == NULL) {
        complete_rows(line.command + 1, COMMAND_KIND_VERB, &out);
    } else {
        complete_value(line.verb != NULL ? line.verb : line.command, &line, ask, context, &out);
    }
}
