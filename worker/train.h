/* train: the training loop: every step from where the run stands to its end, with metrics,
 * evaluations, checkpoints and the daemon's commands between steps. What a step is: step.h.
 *
 * Order after step s: its metrics; an evaluation when due; a checkpoint when due, unless s is the
 * last step; the end, when it is or evaluations stopped improving. A checkpoint that cannot be
 * written is told and the next one tried, unless the job is to pause: then it fails. Ranks hear
 * commands at different moments and agree on them before each step. */
#pragma once
#include "common/err.h"

#include <stdint.h>

struct rank;
struct step_result;

enum train_end {
    TRAIN_FINISHED, /* the weights are the result */
    TRAIN_PAUSED,   /* asked for; the checkpoint is there */
    TRAIN_ORPHANED  /* no daemon for longer than the plan's limit; the checkpoint is there */
};

int train_run(struct rank *rank, enum train_end *ret_end, struct err *err);
/* A step's metrics to the daemon; where the plan only measures, those that do not depend on what is
 * computed. */
void train_report(struct rank *rank, int64_t step, const struct step_result *result,
                  double seconds);
