/* bench_sched: milliseconds of one pass of the scheduler, by the number of jobs that wait.
 *
 *     build/release/tests/bench_sched */
#include "common/clock.h"
#include "common/mem.h"
#include "common/rng.h"
#include "daemon/sched.h"

#include <stdio.h>

enum { BENCH_USERS = 50, BENCH_PASSES = 100 };

static int64_t draw(uint64_t at, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(7, RNG_STREAM_TEST, at, (uint64_t)(high - low + 1));
}

/* Eight slots are taken; of the waiting jobs each needs some of them, two of three say how long. */
static void bench_fill(struct sched_pass *pass)
{
    for (size_t i = 0; i < pass->job_count; i++)
        pass->jobs[i] = (struct sched_job){.user = (size_t)draw(6 * i, 0, BENCH_USERS - 1),
                                           .priority = draw(6 * i + 1, -2, 2),
                                           .number = (int64_t)i,
                                           .slots = draw(6 * i + 2, 1, 8),
                                           .lasts_ms = draw(6 * i + 3, 0, 2) * 600000,
                                           .held = draw(6 * i + 4, 0, 9) == 0};
    for (size_t i = 0; i < pass->running_count; i++)
        pass->running[i] = (struct sched_running){
            .user = i, .slots = 1, .since_ms = 1, .ends_ms = draw(i, 1, 9) * 600000};
}

int main(void)
{
    static const size_t counts[] = {100, 1000, 10000};
    static struct sched_user users[BENCH_USERS];
    static struct sched_running running[7];
    for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++) {
        CLEANUP(mem_free_ptr) struct sched_job *jobs = mem_new(counts[n], sizeof *jobs);
        struct sched_pass pass = {.now_ms = 1000,
                                  .slots = 8,
                                  .free = 1,
                                  .policy = {.entry_penalty_s = 60},
                                  .users = users,
                                  .user_count = BENCH_USERS,
                                  .jobs = jobs,
                                  .job_count = counts[n],
                                  .running = running,
                                  .running_count = 7};
        if (jobs == NULL)
            return 1;
        int64_t spent_ms = 0;
        for (int i = 0; i < BENCH_PASSES; i++) {
            bench_fill(&pass);
            int64_t begun_ms = clock_monotonic_ms();
            for (int again = 0; again < 10; again++) /* of jobs in order already, but the first */
                sched_pass(&pass);
            spent_ms += clock_monotonic_ms() - begun_ms;
        }
        printf("%6zu jobs: %.3f ms a pass\n", counts[n], (double)spent_ms / (10.0 * BENCH_PASSES));
    }
    return 0;
}
