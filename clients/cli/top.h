/* top: what `ithaca top` shows. Three parts: asking the daemon (top_fetch), drawing (top_frame, a
 * pure function of `struct top`), and the terminal with its keys (terminal.h, cmd_top.c).
 *
 * What was fetched is one JSON value, which `top --json` prints:
 *   {"queue": Queue, "gpus": GpuList, "jobs": {ID: {"job": Job, "latest": {METRIC: value},
 *    "planned_bytes"}}, "detail": null or {"job", "latest", "planned_bytes", "events": [newest
 *    first], "loss": [[step, value], ...]}}
 * jobs holds those that run, TOP_JOBS_MAX at most, so that a second's requests stay well below what
 * a user may make (setting user_requests_per_s); latest is of the last step, of the rank that has
 * most where there is one a rank; planned_bytes are a rank's peak, null where it is not known. */
#pragma once
#include "clients/cli/client.h"
#include "common/buf.h"
#include "common/json.h"
#include "common/limits.h"

enum { TOP_JOBS_MAX = 8, TOP_FRAME_BYTES = 1 << 20, TOP_TEXT_BYTES = 256 };
#define TOP_NONE SIZE_MAX

struct top {
    json_t *data;                     /* above; NULL: nothing was fetched yet */
    const char *url;                  /* of the daemon */
    int64_t now_s;                    /* Unix time */
    char gone[TOP_TEXT_BYTES];        /* why the daemon cannot be asked; "": it can */
    char said[TOP_TEXT_BYTES];        /* what came of the last key; "": nothing */
    char asked_id[LIMIT_ID_BYTES];    /* a job that is not yet as was asked for; "": none */
    const char *asked_state;          /* what it is to be: "paused", "cancelled" */
    size_t selected;                  /* of the jobs, those that run before those that wait, or */
                                      /* TOP_NONE: it is not there (any more) */
    char selected_id[LIMIT_ID_BYTES]; /* of that job; "": of another user, or there is none */
    bool detail;                      /* that job fills the screen */
    bool asking;                      /* whether to cancel it */
    size_t columns;                   /* of the terminal; 0: lines as long as they are */
    size_t rows;                      /* of the terminal; 0: all lines, no keys */
    bool colour;                      /* styles by escape sequences (ECMA-48, SGR) */
};

/* Asks for all of it; detail_id may be "". before, what was fetched last (may be NULL), lends what
 * does not change. New reference. */
int top_fetch(struct client *client, const char *detail_id, const json_t *before, json_t **ret,
              struct err *err);
/* Takes new data; the selected job stays selected, also where it is gone for a while: no other one
 * slips under the next key. Takes over the reference. */
void top_take(struct top *top, json_t *data);
/* Moves the selection, within what there is. */
void top_move(struct top *top, int by);
/* Is a job selected that a key may act on? */
bool top_has_job(const struct top *top);

/* All lines, each with a newline, none wider than columns; exactly `rows` of them or fewer. */
void top_frame(const struct top *top, struct buf *out);

/* ---- for top_frame and top_detail ---- */

enum top_style { TOP_PLAIN, TOP_BOLD, TOP_FAINT, TOP_RED, TOP_SELECTED };

struct top_lines {
    const struct top *top;
    struct buf *out;
    size_t count; /* lines so far */
};

/* One line, cut to the terminal's width. */
void top_line(struct top_lines *lines, enum top_style style, const char *text);
void top_linef(struct top_lines *lines, enum top_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Lines that are left above the last ones, which tell of keys. */
size_t top_room(const struct top_lines *lines);
/* The job of an entry of data.jobs, or data.detail: "12.3/14.0" GiB, "120/300"; "-" where it is not
 * known. */
void top_memory_text(const json_t *entry, char ret_text[32]);
void top_steps_text(const json_t *entry, char ret_text[32]);
void top_latest_text(const json_t *entry, const char *metric, int decimals, char ret_text[32]);

void top_detail(struct top_lines *lines);
