/* loop_turns: sums; a part ends where the next begins. */
#include "daemon/loop_turns.h"

#include <stdio.h>

enum { LOOP_TURNS_MS = 1000000 }; /* in ns */

void loop_turns_begin(struct loop_turns *turns, int64_t now_ns, int64_t processor_ns)
{
    turns->awake = true;
    turns->begun_ns = now_ns;
    turns->begun_processor_ns = processor_ns;
    turns->now = (struct loop_turns_part){.what = "small", .which = "things", .ns = now_ns};
    turns->longest = (struct loop_turns_part){.ns = -1};
}

void loop_turns_doing(struct loop_turns *turns, int64_t now_ns, const char *what, const char *which)
{
    if (!turns->awake)
        return;
    struct loop_turns_part over = turns->now;
    over.ns = now_ns - over.ns;
    if (over.ns > turns->longest.ns)
        turns->longest = over;
    turns->now = (struct loop_turns_part){.what = what, .which = which, .ns = now_ns};
}

static bool loop_turns_tell(struct loop_turns *turns, int64_t wall_ns, int64_t processor_ns,
                            int64_t now_ns, char ret_line[LOOP_TURNS_LINE_BYTES])
{
    if (wall_ns < (int64_t)LOOP_TURNS_SLOW_MS * LOOP_TURNS_MS)
        return false;
    if (turns->told_ns != 0 &&
        now_ns - turns->told_ns < (int64_t)LOOP_TURNS_TELL_MS * LOOP_TURNS_MS) {
        turns->untold++;
        return false;
    }
    int length = snprintf(
        ret_line, LOOP_TURNS_LINE_BYTES,
        "nobody was served for %lld ms (%lld ms of a processor), %lld of them for %s %s",
        (long long)wall_ns / LOOP_TURNS_MS, (long long)processor_ns / LOOP_TURNS_MS,
        (long long)turns->longest.ns / LOOP_TURNS_MS, turns->longest.what, turns->longest.which);
    if (turns->untold > 0 && length < LOOP_TURNS_LINE_BYTES)
        (void)snprintf(ret_line + length, (size_t)(LOOP_TURNS_LINE_BYTES - length),
                       "; since the last such line %lld other times for more than %d ms",
                       (long long)turns->untold, LOOP_TURNS_SLOW_MS);
    turns->told_ns = now_ns;
    turns->untold = 0;
    return true;
}

bool loop_turns_end(struct loop_turns *turns, int64_t now_ns, int64_t processor_ns,
                    char ret_line[LOOP_TURNS_LINE_BYTES])
{
    if (!turns->awake)
        return false;
    loop_turns_doing(turns, now_ns, "", ""); /* ends the last part */
    turns->awake = false;
    const int64_t wall_ns = now_ns - turns->begun_ns;
    const int64_t used_ns = processor_ns - turns->begun_processor_ns;
    exposition_observe(&turns->wall, (double)wall_ns * 1e-9);
    exposition_observe(&turns->processor, (double)used_ns * 1e-9);
    return loop_turns_tell(turns, wall_ns, used_ns, now_ns, ret_line);
}
