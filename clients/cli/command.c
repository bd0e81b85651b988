/* command: the rows as one array, looked through from its start: there are some hundred. */
#include "clients/cli/command.h"

#include "common/edit_distance.h"
#include "common/must.h"

#include <stdio.h>
#include <string.h>

#define ROW(k, v, n, t, d, r)    \
    {.kind = COMMAND_KIND_##k,   \
     .value = COMMAND_VALUE_##v, \
     .name = n,                  \
     .takes = t,                 \
     .doc = d,                   \
     .run = r},
#define GROUP(title) ROW(GROUP, NOTHING, title, NULL, NULL, NULL)
#define COMMAND(name, takes, value, doc) ROW(COMMAND, value, #name, takes, doc, cmd_##name)
#define VERB(name, takes, value, doc) ROW(VERB, value, name, takes, doc, NULL)
#define OPTION(name, takes, value, doc) ROW(OPTION, value, name, takes, doc, NULL)
#define FLAG(name, doc) ROW(OPTION, NOTHING, name, NULL, doc, NULL)
#define NOTE(doc) ROW(NOTE, NOTHING, "", NULL, doc, NULL)
#define VARIABLE(name, doc) ROW(VARIABLE, NOTHING, name, NULL, doc, NULL)

const struct command_row command_rows[] = {
#include "clients/cli/commands.def"
    {.kind = COMMAND_KIND_END},
};

bool command_has(const struct command_row *row)
{
    return row->kind != COMMAND_KIND_GROUP && row->kind != COMMAND_KIND_COMMAND &&
           row->kind != COMMAND_KIND_END;
}

const struct command_row *command_find(const char *name)
{
    for (const struct command_row *row = command_rows; row->kind != COMMAND_KIND_END; row++)
        if (row->kind == COMMAND_KIND_COMMAND && strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

const struct command_row *command_of(cli_run_fn *run)
{
    for (const struct command_row *row = command_rows; row->kind != COMMAND_KIND_END; row++)
        if (row->kind == COMMAND_KIND_COMMAND && row->run == run)
            return row;
    return NULL;
}

const struct command_row *command_next_shown(const struct command_row *from)
{
    const struct command_row *row = from != NULL ? from + 1 : command_rows;
    while (command_has(row))
        row++;
    return row->kind == COMMAND_KIND_END || row->name[0] == '\0' ? NULL : row;
}

bool command_has_verbs(const struct command_row *command)
{
    for (const struct command_row *row = command + 1; command_has(row); row++)
        if (row->kind == COMMAND_KIND_VERB)
            return true;
    return false;
}

/* The first row of a command, or of all commands. */
static const struct command_row *command_first(const struct command_row *command)
{
    return command != NULL ? command + 1 : command_rows;
}

const struct command_row *command_row(const struct command_row *command, enum command_kind kind,
                                      const char *name, size_t length)
{
    for (const struct command_row *row = command_first(command); command_has(row); row++)
        if (row->kind == kind && strlen(row->name) == length &&
            strncmp(row->name, name, length) == 0)
            return row;
    return NULL;
}

const struct command_row *command_option(const struct command_row *command, const char *name,
                                         size_t length)
{
    const struct command_row *own = command_row(command, COMMAND_KIND_OPTION, name, length);
    return own != NULL ? own : command_row(NULL, COMMAND_KIND_OPTION, name, length);
}

struct command_offer {
    const char *written;
    size_t distance; /* of the best so far; starts at the first that is too far */
    const struct command_row *row;
};

static void command_consider(struct command_offer *offer, const struct command_row *row)
{
    size_t distance = edit_distance(offer->written, row->name);
    if (distance >= offer->distance)
        return;
    offer->distance = distance;
    offer->row = row;
}

const struct command_row *command_nearest(const char *name)
{
    struct command_offer offer = {.written = name, .distance = edit_distance_too_far(name)};
    for (const struct command_row *row = command_rows; row->kind != COMMAND_KIND_END; row++)
        if (row->kind == COMMAND_KIND_COMMAND)
            command_consider(&offer, row);
    return offer.row;
}

const struct command_row *command_nearest_option(const struct command_row *command,
                                                 const char *name)
{
    struct command_offer offer = {.written = name, .distance = edit_distance_too_far(name)};
    for (const struct command_row *row = command_first(command); command_has(row); row++)
        if (row->kind == COMMAND_KIND_OPTION)
            command_consider(&offer, row);
    for (const struct command_row *row = command_rows; command_has(row); row++)
        if (row->kind == COMMAND_KIND_OPTION)
            command_consider(&offer, row);
    return offer.row;
}

void command_label(const struct command_row *row, char ret_label[COMMAND_LABEL_BYTES])
{
    const bool takes = row->takes != NULL && row->takes[0] != '\0';
    (void)snprintf(ret_label, COMMAND_LABEL_BYTES, "%s%s%s", row->name, takes ? " " : "",
                   takes ? row->takes : "");
}

const char *command_choice_next(const struct command_row *option, const char *from,
                                size_t *ret_length)
{
    must(option->value == COMMAND_VALUE_CHOICE);
    const char *word = option->takes;
    if (from != NULL) {
        const char *bar = strchr(from, '|');
        if (bar == NULL)
            return NULL;
        word = bar + 1;
    }
    *ret_length = strcspn(word, "|");
    return word;
}

bool command_choice(const struct command_row *option, const char *text)
{
    size_t length;
    const char *word = NULL;
    while ((word = command_choice_next(option, word, &length)) != NULL)
        if (strlen(text) == length && strncmp(word, text, length) == 0)
            return true;
    return false;
}
