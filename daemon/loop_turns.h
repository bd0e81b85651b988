/* loop_turns: how long the turns of a loop take, from the end of one sleep to the next, by the
 * clock and in time of a processor: for /metrics. Who waits for the daemon waits for turns; where a
 * turn took much of the clock and little of a processor, it waited for the disk, or for a processor
 * that others had.
 *
 * A turn of LOOP_TURNS_SLOW_MS or more becomes a line of the log, at most one each
 * LOOP_TURNS_TELL_MS, with what took most of it: whoever may take long says what it does.
 *
 * Time is given by the caller: monotonic, and the process's, in ns. */
#pragma once
#include "daemon/exposition.h"

#include <stdbool.h>
#include <stdint.h>

enum { LOOP_TURNS_SLOW_MS = 100, LOOP_TURNS_TELL_MS = 10000, LOOP_TURNS_LINE_BYTES = 256 };

/* Two words for what is done. */
struct loop_turns_part {
    const char *what, *which; /* literals, or as good as */
    int64_t ns;               /* when it began, or how long it took */
};

struct loop_turns {
    struct exposition_histogram wall, processor; /* of each turn, since the start */
    bool awake;                                  /* a turn is under way */
    int64_t begun_ns, begun_processor_ns;        /* of it */
    struct loop_turns_part now;                  /* what it does */
    struct loop_turns_part longest;              /* of what it did before */
    int64_t told_ns;                             /* when a line was due; 0: never */
    int64_t untold;                              /* slow turns since */
};

void loop_turns_begin(struct loop_turns *turns, int64_t now_ns, int64_t processor_ns);
/* From here on, until the next call; without a turn nothing. */
void loop_turns_doing(struct loop_turns *turns, int64_t now_ns, const char *what,
                      const char *which);
/* true: a line is to be told. */
bool loop_turns_end(struct loop_turns *turns, int64_t now_ns, int64_t processor_ns,
                    char ret_line[LOOP_TURNS_LINE_BYTES]);
