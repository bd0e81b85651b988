/* progress: one job's progress for a person: a bar that redraws itself on a terminal, plain lines
 * in a pipe.
 *
 *     [########------------]  120/300  loss 0.5321  5.1k tok/s  eta 0:32
 *
 * In a pipe a line is printed about every fifth second and at the end, so that logs stay short. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct progress {
    FILE *out;
    bool terminal;       /* redraw in place */
    bool open;           /* a bar is on the current line */
    int64_t steps_total; /* 0: not known yet */
    int64_t step;        /* last finished step */
    double loss;         /* NaN: not known */
    double valid_loss;   /* NaN: not known */
    double tokens_per_s; /* smoothed; NaN: not known */
    double step_time_s;  /* smoothed; NaN: not known */
    int64_t printed_ms;  /* monotonic time of the last line in a pipe */
    int64_t checked_ms;  /* the same of lines of the check; 0: none yet */
};

void progress_init(struct progress *progress, FILE *out);
/* A step has ended; values that are not known are NaN and keep what was there. */
void progress_step(struct progress *progress, int64_t step, double loss, double tokens_per_s,
                   double step_time_s);
void progress_show(struct progress *progress);
/* How far the check of its files is, before the first step: a share, and words. checked: the bar
 * goes. */
void progress_check(struct progress *progress, double done, const char *text);
void progress_checked(struct progress *progress);
/* A sentence on a line of its own; the bar is drawn again below it. */
void progress_say(struct progress *progress, const char *sentence);
void progress_finish(struct progress *progress); /* shows the last state and ends the line */
