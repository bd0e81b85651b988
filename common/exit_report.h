/* exit_report: what the keeper leaves in <attempt folder>/exit.json when no rank of the attempt is
 * left.
 *
 *   {"ranks":[{"rank":0,"pid":123,"exit":0,"signal":null,"last_words":null,
 *              "step":12,"phase":"backward"}, ...],
 *    "first_failed":null, "stopped_by":null, "collective":null}
 *
 * first_failed: the rank whose end was the first that was not asked for, or null. stopped_by:
 * "daemon" when the keeper was told to stop (SIGTERM), "keeper_limit" when ranks outlived a failed
 * one and were killed. collective: the one that was under way when it failed, and who had not come
 * to it (worker/coll_verdict.h), or null; may be absent. step, phase: where a rank was that did
 * not end well, by its own record (worker/coll_record.h); may be absent. */
#pragma once
#include "common/err.h"
#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

struct exit_rank {
    int32_t pid;
    int32_t exit_status;                     /* -1 when ended by a signal or never started */
    int32_t signal;                          /* 0 when it exited */
    char last_words[LIMIT_LAST_WORDS_BYTES]; /* "" when none */
    bool has_place;                          /* the two that follow are known */
    uint64_t step;                           /* 1-based; 0 before the first */
    uint32_t phase;                          /* enum wire_phase */
};

enum { EXIT_COLLECTIVE_BYTES = 512 };

struct exit_report {
    uint32_t world;
    int32_t first_failed;                   /* rank, or -1 */
    char stopped_by[16];                    /* "", "daemon", "keeper_limit" */
    char collective[EXIT_COLLECTIVE_BYTES]; /* a sentence without a full stop; "" when none */
    struct exit_rank ranks[LIMIT_RANKS];
};

int exit_report_write(const char *path, const struct exit_report *report, struct err *err);
int exit_report_read(const char *path, struct exit_report *ret_report, struct err *err);
