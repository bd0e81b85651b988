/* complete: what may stand in the place of the last word of a command line, for shells. Scripts of
 * bash, zsh and fish (cmd_completion.c) ask `ithaca complete -- WORD...` at each press of the
 * key; so what is offered is what this program takes, from commands.def and api/.
 *
 * A line of output is a candidate, and behind a tab what it is; or one of ":files", ":folders": the
 * shell knows those itself. A candidate that ends with '=' is not the end of its word. */
#pragma once
#include "clients/cli/command.h"
#include "common/buf.h"

struct complete_out {
    const char *typed; /* of the last word; candidates begin with it */
    const char *lead;  /* before each candidate: "--model=" where the word has it; length below */
    size_t lead_length;
    struct buf *text;
};

/* What the line says so far. */
struct complete_line {
    const struct command_row *command; /* NULL: not given yet */
    const struct command_row *verb;
    const char *argument; /* the first that is neither command nor verb: a job's id; or NULL */
    const char *url, *data_dir, *cacert; /* the options of that name; NULL where not given */
};

/* Offers what a daemon knows (jobs, models ...); asked only where that is wanted. */
typedef void complete_ask_fn(void *context, const struct complete_line *line,
                             enum command_value value, struct complete_out *out);

/* words: after the program's name, the last one unfinished. Those that make no sense lead to no
 * candidates. */
void complete_words(char *const *words, size_t count, complete_ask_fn *ask, void *context,
                    struct buf *ret_text);
/* One candidate, where it begins as what is typed; doc may be NULL. */
void complete_offer(struct complete_out *out, const char *candidate, const char *doc);
