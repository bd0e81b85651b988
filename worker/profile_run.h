/* profile_run: which steps of a rank are profiled, and their files (profile_file.h). The job says
 * so from the start (profile.steps), or the daemon while it runs: the steps from the next one on.
 * All ranks agree; a profile that cannot be made or written is told as a warning, and training goes
 * on. One profile of a job is kept, the newest.
 *
 *     profile_run_plan(&run, first, last);               or profile_run_ask(&run, next, count)
 *     profile_run_before(rank, step);                    step_run()
 *     profile_run_after(rank, step, training_ends); */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct profile;
struct rank;

struct profile_run {
    int64_t first, last;     /* steps; 0: none are asked for */
    bool open;               /* one of them has begun */
    struct profile *profile; /* of this rank while it is open; NULL where it could not be made */
};

void profile_run_plan(struct profile_run *run, int64_t first, int64_t last);
/* `count` steps from `next` on; false, and nothing changes, while others are being profiled. */
bool profile_run_ask(struct profile_run *run, int64_t next, int64_t count);
/* Collective where a profile begins. */
void profile_run_before(struct rank *rank, int64_t step);
/* Collective where the profile is over: with its last step, or because training ends here. Steps
 * that were asked for and never came are told. */
void profile_run_after(struct rank *rank, int64_t step, bool ends);
/* Gives it up, files and all; for rank_close(). */
void profile_run_drop(struct rank *rank);
