/* sched: thousands of histories of a machine, each drawn from a seed and played to its end, with
 * what must hold at every pass:
 *
 *   - the order, the reasons and who is preempted are what sched_rules.h finds out anew;
 *   - no GPU is given twice, none that is sick, and none beyond a user's cap;
 *   - nothing starts that is held or waits for another job, nor while the queue is drained;
 *   - a job behind the head starts only if, by the ends that come to pass, the head starts no later
 *     than it was promised, or where nothing was promised, than without that job;
 *   - what was promised to the head is kept while nobody goes before it;
 *   - only jobs that allow it and ran long enough are preempted, for one of higher priority, and
 *     the next to get slots is then the one that they made room for;
 *   - every job has its end: none is lost, none starves (field case R50);
 *   - the same history again, its jobs given in another order, has the same ends.
 *
 * GPUs fall sick and come back, under jobs too; the queue is drained for a while; users have caps.
 */
#include "common/rng.h"
#include "daemon/sched.h"
#include "daemon/usage.h"
#include "tests/lib/cmocka.h"

#include "tests/lib/sched_rules.h"

enum {
    HISTORIES = 3000,
    JOBS_MAX = 24,
    USERS = 3,
    GPUS_MAX = 8,
    STEP_MS = 1000,
    STEPS_MAX = 4000, /* all jobs in turn take under 1000 */
};
static const uint64_t seed = 20261130;

enum play_state { PLAY_WAITS, PLAY_RUNS, PLAY_ENDING, PLAY_CHECKED, PLAY_ENDED };

struct play_job {
    size_t user;
    int64_t priority, slots;
    int64_t arrives_ms, released_ms; /* held until then */
    int depends;                     /* on this job; -1: none */
    int64_t left_ms;                 /* of its work */
    bool told;                       /* its length is known */
    bool preemptible;
    enum play_state state;
    int64_t since_ms; /* it runs; or when its slots come free */
    bool preempted, claims;
    int64_t ended_ms;
};

struct play {
    uint64_t number, draws; /* of the history; taken of its random numbers */
    uint64_t shuffles;      /* 0: jobs in their order */
    int64_t now_ms, gpu_count;
    int owners[GPUS_MAX]; /* job that has the GPU; -1: none */
    bool sick[GPUS_MAX];
    int64_t sick_ms, well_ms;       /* when they fall sick, and when they are given out again */
    int64_t drained_ms, resumed_ms; /* when the queue is drained */
    struct sched_policy policy;
    struct usage usage;
    struct play_job jobs[JOBS_MAX];
    int count;
    const struct play_job *head;    /* of the last pass */
    int64_t promised_ms;            /* to it; 0: nothing */
    const struct play_job *claimer; /* that jobs make room for; NULL: none */
    int64_t preemptions, backfills;
};

static int64_t draw(struct play *play, int64_t low, int64_t high)
{
    uint64_t at = play->number << 16 | play->draws++;
    return low + (int64_t)rng_below(seed, RNG_STREAM_TEST, at, (uint64_t)(high - low + 1));
}

static void play_draw_job(struct play *play, int number)
{
    struct play_job *job = &play->jobs[number];
    const int64_t cap = play->policy.user_slots_max;
    job->user = (size_t)draw(play, 0, USERS - 1);
    job->priority = draw(play, 0, 3) == 0 ? draw(play, -1, 2) : 0;
    job->slots = draw(play, 1, cap > 0 ? cap : play->gpu_count);
    job->arrives_ms = draw(play, 1, 60) * STEP_MS;
    job->released_ms = draw(play, 0, 5) == 0 ? draw(play, 1, 120) * STEP_MS : 0;
    job->depends = number > 0 && draw(play, 0, 5) == 0 ? (int)draw(play, 0, number - 1) : -1;
    job->left_ms = draw(play, 1, 20) * STEP_MS;
    job->told = draw(play, 0, 2) > 0;
    job->preemptible = draw(play, 0, 1) == 0;
}

/* A time of a history and one after it; both 0 in most. */
static void play_draw_times(struct play *play, int64_t *ret_from_ms, int64_t *ret_to_ms)
{
    *ret_from_ms = *ret_to_ms = 0;
    if (draw(play, 0, 2) > 0)
        return;
    *ret_from_ms = draw(play, 1, 90) * STEP_MS;
    *ret_to_ms = *ret_from_ms + draw(play, 1, 60) * STEP_MS;
}

static void play_draw(struct play *play, uint64_t number)
{
    *play = (struct play){.number = number, .now_ms = STEP_MS};
    play->gpu_count = draw(play, 1, GPUS_MAX);
    play->policy = (struct sched_policy){
        .user_slots_max = draw(play, 0, 2) == 0 ? draw(play, 1, play->gpu_count) : 0,
        .user_jobs_max = draw(play, 0, 3) == 0 ? draw(play, 1, 3) : 0,
        .entry_penalty_s = draw(play, 0, 3) * 10,
        .preempt_after_ms = draw(play, 0, 5) * STEP_MS,
    };
    play->usage.half_life_ms = draw(play, 0, 2) * 50 * STEP_MS;
    play_draw_times(play, &play->sick_ms, &play->well_ms);
    play_draw_times(play, &play->drained_ms, &play->resumed_ms);
    for (int i = 0; i < GPUS_MAX; i++) {
        play->owners[i] = -1;
        play->sick[i] = draw(play, 0, 2) == 0; /* when it comes to that */
    }
    play->count = (int)draw(play, 4, JOBS_MAX);
    for (int i = 0; i < play->count; i++)
        play_draw_job(play, i);
    struct err err;
    for (size_t i = 0, index = 0; i < USERS; i++)
        assert_int_equal(usage_find(&play->usage, (char[]){(char)('a' + i), '\0'}, &index, &err),
                         0);
}

/* ---- GPUs ---------------------------------------------------------------------------------- */

static bool play_is_sick(const struct play *play, int64_t gpu)
{
    return play->sick[gpu] && play->now_ms >= play->sick_ms && play->now_ms < play->well_ms;
}

static bool play_is_draining(const struct play *play)
{
    return play->now_ms >= play->drained_ms && play->now_ms < play->resumed_ms;
}

/* The GPUs that are given out, now or later; and how many a job holds that are not. */
static int64_t play_slots(const struct play *play)
{
    int64_t slots = 0;
    for (int64_t i = 0; i < play->gpu_count; i++)
        slots += !play_is_sick(play, i);
    return slots;
}

static int64_t play_lost(const struct play *play, const struct play_job *job)
{
    int64_t lost = 0;
    for (int64_t i = 0; i < play->gpu_count; i++)
        lost += play->owners[i] == job - play->jobs && play_is_sick(play, i);
    return lost;
}

static void play_take(struct play *play, const struct play_job *job)
{
    int64_t wanted = job->slots;
    for (int64_t i = 0; i < play->gpu_count && wanted > 0; i++)
        if (play->owners[i] < 0 && !play_is_sick(play, i)) {
            play->owners[i] = (int)(job - play->jobs);
            wanted--;
        }
    assert_int_equal(wanted, 0);
}

static void play_give(struct play *play, const struct play_job *job)
{
    for (int64_t i = 0; i < play->gpu_count; i++)
        if (play->owners[i] == job - play->jobs)
            play->owners[i] = -1;
}

static int64_t play_end_of(const struct play *play, const struct play_job *job)
{
    return job->state == PLAY_RUNS ? play->now_ms + job->left_ms : job->since_ms;
}

/* When a job has its slots by the ends that come to pass, those of `without` not started; they are
 * the ones marked in the bits. GPUs stay as sick as they are. */
static int64_t play_start_of(const struct play *play, const struct play_job *head, uint32_t without)
{
    for (int64_t at_ms = play->now_ms;; at_ms += STEP_MS) {
        int64_t free_slots = 0;
        assert_true(at_ms < play->now_ms + STEPS_MAX * STEP_MS);
        for (int64_t i = 0; i < play->gpu_count; i++) {
            int owner = play->owners[i];
            bool has = owner >= 0 && (without >> owner & 1) == 0 &&
                       play_end_of(play, &play->jobs[owner]) > at_ms;
            free_slots += !has && !play_is_sick(play, i);
        }
        if (free_slots >= head->slots)
            return at_ms;
    }
}

/* ---- a pass -------------------------------------------------------------------------------- */

struct play_pass {
    struct sched_pass sched;
    struct sched_user users[USERS];
    struct sched_job jobs[JOBS_MAX];
    struct sched_running running[JOBS_MAX];
};

static void play_add(const struct play *play, struct play_pass *pass, struct play_job *job)
{
    struct sched_pass *sched = &pass->sched;
    bool waits = job->depends >= 0 && play->jobs[job->depends].state != PLAY_ENDED;
    if (job->state == PLAY_WAITS && job->arrives_ms <= play->now_ms)
        pass->jobs[sched->job_count++] = (struct sched_job){
            .object = job,
            .user = job->user,
            .priority = job->priority,
            .number = job->arrives_ms * JOBS_MAX + (job - play->jobs),
            .slots = job->slots,
            .lasts_ms = job->told ? job->left_ms : 0,
            .held = job->released_ms > play->now_ms,
            .depends = waits,
            .claims = job->claims,
        };
    if (job->state == PLAY_RUNS || job->state == PLAY_ENDING)
        pass->running[sched->running_count++] = (struct sched_running){
            .object = job,
            .user = job->user,
            .priority = job->priority,
            .slots = job->slots,
            .lost = play_lost(play, job),
            .since_ms = job->state == PLAY_RUNS ? job->since_ms : 0,
            .ends_ms = job->told ? play->now_ms + job->left_ms : 0,
            .preemptible = job->preemptible,
            .ending = job->state == PLAY_ENDING,
            .preempted = job->preempted,
        };
}

static void play_fill(struct play *play, struct play_pass *pass)
{
    uint64_t order[JOBS_MAX];
    *pass = (struct play_pass){.sched = {.now_ms = play->now_ms,
                                         .slots = play_slots(play),
                                         .policy = play->policy,
                                         .user_count = USERS}};
    pass->sched.users = pass->users;
    pass->sched.jobs = pass->jobs;
    pass->sched.running = pass->running;
    pass->sched.policy.draining = play_is_draining(play);
    for (int64_t i = 0; i < play->gpu_count; i++)
        pass->sched.free += play->owners[i] < 0 && !play_is_sick(play, i);
    for (size_t i = 0; i < USERS; i++)
        pass->users[i].used_s = usage_now(&play->usage, i, play->now_ms);
    for (int i = 0; i < play->count; i++)
        order[i] = (uint64_t)i;
    if (play->shuffles > 0)
        rng_permutation(seed, RNG_STREAM_TEST + play->shuffles++, (uint64_t)play->count, order);
    for (int i = 0; i < play->count; i++)
        play_add(play, pass, &play->jobs[order[i]]);
}

static void play_start(struct play *play, struct play_job *job)
{
    assert_true(job->state == PLAY_WAITS && job->released_ms <= play->now_ms);
    assert_true(job->depends < 0 || play->jobs[job->depends].state == PLAY_ENDED);
    assert_false(play_is_draining(play));
    play_take(play, job);
    job->state = PLAY_RUNS;
    job->since_ms = play->now_ms;
    usage_charge(&play->usage, job->user, 0, (double)(play->policy.entry_penalty_s * job->slots),
                 play->now_ms);
}

static void play_preempt(struct play *play, struct play_job *job)
{
    assert_true(job->state == PLAY_RUNS);
    job->state = PLAY_ENDING;
    job->preempted = true;
    job->since_ms = play->now_ms + (1 + (job - play->jobs) % 3) * STEP_MS;
    play->preemptions++;
}

/* What the head was told. passed: others started before it. */
static void play_check(struct play *play, const struct sched_job *head, uint32_t behind,
                       bool passed)
{
    bool moving = passed || play->now_ms == play->sick_ms || play->now_ms == play->well_ms;
    for (int i = 0; i < play->count; i++) {
        const struct play_job *job = &play->jobs[i];
        moving |= job->state == PLAY_ENDING || job->state == PLAY_CHECKED;
    }
    const struct play_job *job = head != NULL ? head->object : NULL;
    if (job != NULL && behind != 0) {
        int64_t alone_ms = play_start_of(play, job, behind);
        int64_t limit_ms = head->start_ms > alone_ms ? head->start_ms : alone_ms;
        assert_true(play_start_of(play, job, 0) <= limit_ms);
    }
    if (job != NULL && job == play->head && play->promised_ms > 0 && !moving)
        assert_true(head->start_ms > 0 && head->start_ms <= play->promised_ms);
    if (job != play->head || moving)
        play->promised_ms = 0;
    play->head = job;
    if (job != NULL && !moving && head->start_ms > 0)
        play->promised_ms = head->start_ms;
}

static void play_pass(struct play *play)
{
    struct play_pass pass;
    const struct sched_job *head = NULL;
    uint32_t behind = 0; /* jobs that started behind the head */
    bool passed = false;
    bool claimed[JOBS_MAX];
    play_fill(play, &pass);
    sched_pass(&pass.sched);
    for (size_t i = 0; i < pass.sched.job_count; i++)
        claimed[i] = ((const struct play_job *)pass.jobs[i].object)->claims;
    rules_check(&pass.sched, claimed);
    for (size_t i = 0; i < pass.sched.job_count; i++) {
        const struct sched_job *job = &pass.jobs[i];
        struct play_job *played = job->object;
        assert_true(job->verdict != SCHED_BEHIND || head != NULL);
        played->claims = job->claims;
        if (job->verdict == SCHED_SLOTS || job->verdict == SCHED_ROOM) {
            assert_null(head);
            head = job;
        }
        if (job->verdict != SCHED_START)
            continue;
        assert_true(play->claimer == NULL || played == play->claimer ||
                    play->claimer->state == PLAY_RUNS ||
                    play->claimer->slots > pass.sched.slots || /* GPUs fell sick */
                    (head != NULL && head->object == play->claimer));
        play_start(play, played);
        passed |= head == NULL;
        behind |= head != NULL ? 1u << (played - play->jobs) : 0;
        play->backfills += head != NULL;
    }
    for (size_t i = 0; i < pass.sched.running_count; i++)
        if (pass.running[i].preempt) {
            assert_true(head != NULL && head->claims);
            play_preempt(play, pass.running[i].object);
        }
    play->claimer = head != NULL && head->claims ? head->object : NULL;
    play_check(play, head, behind, passed);
}

/* ---- time ---------------------------------------------------------------------------------- */

static void play_step(struct play *play)
{
    play->now_ms += STEP_MS;
    for (int i = 0; i < play->count; i++) {
        struct play_job *job = &play->jobs[i];
        if (job->state == PLAY_RUNS || job->state == PLAY_ENDING)
            usage_charge(&play->usage, job->user, (double)job->slots * STEP_MS / 1000, 0,
                         play->now_ms);
        if (job->state == PLAY_RUNS)
            job->left_ms -= STEP_MS;
        if (job->state == PLAY_RUNS && job->left_ms == 0) {
            job->ended_ms = play->now_ms;
            job->state = draw(play, 0, 3) == 0 ? PLAY_CHECKED : PLAY_ENDED;
            job->since_ms = play->now_ms + STEP_MS; /* CHECKED: its GPUs are looked at till then */
        } else if (job->state == PLAY_ENDING && job->since_ms <= play->now_ms) {
            job->state = PLAY_WAITS;
            job->preempted = false;
            play_give(play, job);
        } else if (job->state == PLAY_CHECKED && job->since_ms <= play->now_ms) {
            job->state = PLAY_ENDED;
        }
        if (job->state == PLAY_ENDED)
            play_give(play, job);
    }
}

static bool play_is_over(const struct play *play)
{
    for (int i = 0; i < play->count; i++)
        if (play->jobs[i].state != PLAY_ENDED)
            return false;
    return true;
}

static void play_through(struct play *play)
{
    for (int step = 0; !play_is_over(play); step++) {
        if (step == STEPS_MAX)
            fail_msg("history %llu has no end", (unsigned long long)play->number);
        play_pass(play);
        play_step(play);
    }
}

static void test_histories(void **state)
{
    static struct play play, again;
    int64_t preemptions = 0, backfills = 0;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint64_t number = 0; number < HISTORIES; number++) {
        play_draw(&play, number);
        play_through(&play);
        preemptions += play.preemptions;
        backfills += play.backfills;
        if (number % 10 == 0) {
            play_draw(&again, number);
            again.shuffles = 1 + number * STEPS_MAX;
            play_through(&again);
            for (int i = 0; i < play.count; i++)
                assert_int_equal(again.jobs[i].ended_ms, play.jobs[i].ended_ms);
            usage_done(&again.usage);
        }
        usage_done(&play.usage);
    }
    print_message("%lld preemptions, %lld jobs passed\n", (long long)preemptions,
                  (long long)backfills);
    assert_true(preemptions > HISTORIES / 4 && backfills > HISTORIES / 2); /* that is a test */
}

/* A machine on which nothing happens but jobs, which are the test's to fill in. */
static void play_draw_calm(struct play *play, int64_t gpu_count)
{
    play_draw(play, 1);
    play->gpu_count = gpu_count;
    play->sick_ms = play->well_ms = play->drained_ms = play->resumed_ms = 0;
    play->usage.half_life_ms = 0;
    play->policy = (struct sched_policy){.entry_penalty_s = 1};
}

/* One user's jobs are all there before the other's: from then on both have the same. */
static void test_users_share_evenly(void **state)
{
    struct play play;
    int64_t ran_ms[USERS] = {0};
    play_draw_calm(&play, 2);
    play.count = JOBS_MAX;
    for (int i = 0; i < play.count; i++)
        play.jobs[i] = (struct play_job){.user = i >= play.count / 2,
                                         .slots = 1 + i % 2,
                                         .depends = -1,
                                         .left_ms = (3 + i % 5) * STEP_MS,
                                         .arrives_ms = i * STEP_MS / 12};
    for (int ended[2] = {0}; ended[0] < play.count / 4 && ended[1] < play.count / 4;) {
        play_pass(&play);
        for (int i = 0; i < play.count; i++)
            if (play.jobs[i].state == PLAY_RUNS)
                ran_ms[play.jobs[i].user] += play.jobs[i].slots * STEP_MS;
        play_step(&play);
        ended[0] = ended[1] = 0;
        for (int i = 0; i < play.count; i++)
            ended[play.jobs[i].user] += play.jobs[i].state == PLAY_ENDED;
    }
    int64_t apart_ms = ran_ms[0] > ran_ms[1] ? ran_ms[0] - ran_ms[1] : ran_ms[1] - ran_ms[0];
    assert_true(apart_ms <= 2 * 7 * STEP_MS); /* the longest job on both slots */
    usage_done(&play.usage);
}

/* A job that needs the whole machine, with small ones coming for ever. */
static void test_a_wide_job_does_not_starve(void **state)
{
    struct play play;
    play_draw_calm(&play, 4);
    play.count = 9;
    for (int i = 0; i < play.count; i++) {
        play.jobs[i] = (struct play_job){.user = i == 0,
                                         .slots = i == 0 ? 4 : 1,
                                         .depends = -1,
                                         .left_ms = (1 + i) * STEP_MS,
                                         .told = i % 2 == 0};
    }
    play.jobs[0].arrives_ms = 5 * STEP_MS;
    int step = 0;
    for (; play.jobs[0].state != PLAY_ENDED; step++) {
        assert_true(step < 200);
        play_pass(&play);
        play_step(&play);
        for (int i = 1; i < play.count; i++) /* as soon as one ends the next is there */
            if (play.jobs[i].state == PLAY_ENDED || play.jobs[i].state == PLAY_CHECKED) {
                play_give(&play, &play.jobs[i]);
                play.jobs[i].state = PLAY_WAITS;
                play.jobs[i].left_ms = (1 + i) * STEP_MS;
                play.jobs[i].arrives_ms = play.now_ms;
            }
    }
    assert_true(step < 40);
    usage_done(&play.usage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_histories),
                                       cmocka_unit_test(test_users_share_evenly),
                                       cmocka_unit_test(test_a_wide_job_does_not_starve)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
