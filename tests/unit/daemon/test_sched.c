/* sched: a case a rule: order, shares, caps, holds, the reservation and what may pass it, room made
 * by preemption, estimates. */
#include "daemon/sched.h"
#include "tests/lib/cmocka.h"

enum { SCENE_MAX = 16, NOW = 1000000 };

/* A machine, and what is to be decided on it. Jobs are named by letters. */
struct scene {
    struct sched_pass pass;
    struct sched_user users[4];
    struct sched_job jobs[SCENE_MAX];
    struct sched_running running[SCENE_MAX];
    char names[SCENE_MAX][2];
};

static void scene_init(struct scene *s, int64_t slots)
{
    *s = (struct scene){.pass = {.now_ms = NOW,
                                 .slots = slots,
                                 .free = slots,
                                 .policy = {.entry_penalty_s = 60, .preempt_after_ms = 5000},
                                 .user_count = 4}};
    s->pass.users = s->users;
    s->pass.jobs = s->jobs;
    s->pass.running = s->running;
}

/* One that waits, of user 0 and priority 0; later ones are younger. */
static struct sched_job *wait_for(struct scene *s, char name, int64_t slots)
{
    struct sched_job *job = &s->jobs[s->pass.job_count];
    char *id = s->names[s->pass.job_count];
    id[0] = name;
    *job = (struct sched_job){.object = id, .slots = slots, .number = (int64_t)s->pass.job_count++};
    return job;
}

/* One that runs, since a while, with an end (0: not known). */
static struct sched_running *run(struct scene *s, int64_t slots, int64_t ends_in_ms)
{
    struct sched_running *running = &s->running[s->pass.running_count++];
    *running = (struct sched_running){
        .slots = slots, .since_ms = NOW - 10000, .ends_ms = ends_in_ms > 0 ? NOW + ends_in_ms : 0};
    s->pass.free -= slots;
    return running;
}

static char name_of(const struct sched_job *job)
{
    return *(const char *)job->object;
}

static struct sched_job *find(struct scene *s, char name)
{
    for (size_t i = 0; i < s->pass.job_count; i++)
        if (name_of(&s->jobs[i]) == name)
            return &s->jobs[i];
    fail_msg("no job %c", name);
    return NULL;
}

/* The names in the order of the queue after a pass; those that start in capitals. */
static void decide(struct scene *s, const char *wanted)
{
    char order[SCENE_MAX + 1] = "";
    sched_pass(&s->pass);
    for (size_t i = 0; i < s->pass.job_count; i++)
        order[i] = (char)(name_of(&s->jobs[i]) - (s->jobs[i].verdict == SCHED_START ? 32 : 0));
    assert_string_equal(order, wanted);
}

static void expect(struct scene *s, char name, enum sched_verdict verdict, int64_t position)
{
    assert_int_equal(find(s, name)->verdict, verdict);
    assert_int_equal(find(s, name)->position, position);
}

/* ---- order --------------------------------------------------------------------------------- */

static void test_one_user_in_the_order_of_submission(void **state)
{
    struct scene s;
    scene_init(&s, 2);
    wait_for(&s, 'a', 1);
    wait_for(&s, 'b', 1)->priority = 5;
    wait_for(&s, 'c', 1);
    wait_for(&s, 'd', 1)->priority = -1;
    s.jobs[2].number = -7; /* submitted before: it was queued again */
    decide(&s, "BCad");
    expect(&s, 'a', SCHED_SLOTS, 1);
    expect(&s, 'd', SCHED_BEHIND, 2);
    scene_init(&s, 2);
    decide(&s, "");
}

static void test_the_user_of_least_use_goes_first(void **state)
{
    struct scene s;
    scene_init(&s, 1);
    s.users[0].used_s = 100;
    s.users[1].used_s = 30; /* two entries of 60 s and it has had more than the other */
    for (int i = 0; i < 3; i++)
        wait_for(&s, (char)('a' + i), 1);
    for (int i = 3; i < 6; i++)
        wait_for(&s, (char)('a' + i), 1)->user = 1;
    wait_for(&s, 'g', 1)->priority = 1; /* priority comes before shares */
    decide(&s, "Gdeafbc");              /* g's penalty counts for user 0 in its own class only */
    scene_init(&s, 1);
    s.pass.policy.entry_penalty_s = 0;
    s.users[0].used_s = 1;
    wait_for(&s, 'a', 1);
    wait_for(&s, 'b', 1)->user = 1;
    wait_for(&s, 'c', 1)->user = 1;
    decide(&s, "Bca");
}

static void test_a_claim_goes_first(void **state)
{
    struct scene s;
    scene_init(&s, 2);
    wait_for(&s, 'a', 2)->claims = true;
    wait_for(&s, 'b', 2)->priority = 3;
    struct sched_running *victim = run(&s, 1, 0);
    victim->ending = victim->preempted = true;
    decide(&s, "ab");
    expect(&s, 'a', SCHED_ROOM, 1);
    assert_true(find(&s, 'a')->claims);
    s.pass.free = 2; /* it has ended */
    s.pass.running_count = 0;
    decide(&s, "Ab");
    assert_false(find(&s, 'a')->claims);
}

/* ---- what keeps a job from the walk -------------------------------------------------------- */

static void test_holds_and_dependencies(void **state)
{
    struct scene s;
    scene_init(&s, 4);
    wait_for(&s, 'a', 1)->held = true;
    wait_for(&s, 'b', 1)->depends = true;
    wait_for(&s, 'c', 1);
    s.jobs[0].priority = 9;
    decide(&s, "Cab");
    expect(&s, 'a', SCHED_HELD, 1);
    expect(&s, 'b', SCHED_DEPENDS, 2);
}

static void test_caps_of_a_user(void **state)
{
    struct scene s;
    scene_init(&s, 8);
    s.pass.policy.user_slots_max = 4;
    run(&s, 2, 0);
    wait_for(&s, 'a', 3); /* 5 in all: waits, and holds nobody up */
    wait_for(&s, 'b', 2);
    wait_for(&s, 'c', 1);
    wait_for(&s, 'd', 4)->user = 1;
    decide(&s, "aDBc"); /* b and c stand behind the penalty of a */
    decide(&s, "aDBc"); /* nothing of a pass counts in the next */
    expect(&s, 'a', SCHED_USER_SLOTS, 1);
    expect(&s, 'c', SCHED_USER_SLOTS, 2);
    scene_init(&s, 8);
    s.pass.policy.user_jobs_max = 2;
    run(&s, 1, 0);
    wait_for(&s, 'a', 1);
    wait_for(&s, 'b', 1);
    decide(&s, "Ab");
    expect(&s, 'b', SCHED_USER_JOBS, 1);
}

static void test_drained_and_too_large(void **state)
{
    struct scene s;
    scene_init(&s, 4);
    wait_for(&s, 'a', 8)->priority = 9; /* stands in nobody's way */
    wait_for(&s, 'b', 4);
    decide(&s, "aB");
    expect(&s, 'a', SCHED_TOO_LARGE, 1);
    scene_init(&s, 4);
    s.pass.policy.draining = true;
    run(&s, 2, 0)->preemptible = true;
    wait_for(&s, 'a', 4)->priority = 1;
    decide(&s, "a");
    expect(&s, 'a', SCHED_DRAINING, 1);
    assert_false(s.running[0].preempt);
}

/* ---- the reservation ----------------------------------------------------------------------- */

static void test_nobody_passes_whose_end_is_not_known(void **state)
{
    struct scene s;
    scene_init(&s, 4);
    run(&s, 2, 0);
    wait_for(&s, 'a', 4);
    wait_for(&s, 'b', 1);
    decide(&s, "ab");
    expect(&s, 'a', SCHED_SLOTS, 1);
    expect(&s, 'b', SCHED_BEHIND, 2);
    for (int known = 1; known >= 0; known--) { /* and no longer known */
        s.running[0].ends_ms = known ? NOW + 10000 : 0;
        decide(&s, "ab");
        assert_int_equal(find(&s, 'a')->start_ms, s.running[0].ends_ms);
        assert_int_equal(s.pass.head_ms, s.running[0].ends_ms);
    }
}

static void test_what_ends_in_time_passes(void **state)
{
    struct scene s;
    scene_init(&s, 4);
    run(&s, 3, 10000);
    wait_for(&s, 'a', 4);
    wait_for(&s, 'b', 1)->lasts_ms = 10001; /* a moment too long */
    wait_for(&s, 'c', 1)->lasts_ms = 10000;
    wait_for(&s, 'd', 1)->lasts_ms = 5;
    decide(&s, "abCd");
    assert_int_equal(s.pass.head_ms, NOW + 10000);
    assert_int_equal(find(&s, 'a')->start_ms, NOW + 10000);
    assert_int_equal(find(&s, 'b')->start_ms, 0); /* after a, whose end is not known */
    expect(&s, 'd', SCHED_BEHIND, 3);             /* no slot is left */
}

static void test_slots_that_the_head_leaves(void **state)
{
    struct scene s;
    scene_init(&s, 8);
    run(&s, 4, 10000);
    run(&s, 2, 20000);
    wait_for(&s, 'a', 5); /* at 10000 six are free: one is to spare */
    wait_for(&s, 'b', 2);
    wait_for(&s, 'c', 1);
    wait_for(&s, 'd', 1); /* the one is taken */
    decide(&s, "abCd");
    find(&s, 'b')->slots = 1; /* ends before that, and takes nothing of what is to spare */
    find(&s, 'b')->lasts_ms = 10000;
    decide(&s, "aBCd");
    scene_init(&s,
               8); /* by what ends first, not by any: with the later one alone none is to spare */
    run(&s, 4, 10000);
    run(&s, 3, 20000);
    wait_for(&s, 'a', 4);
    wait_for(&s, 'b', 1);
    decide(&s, "aB");
    scene_init(&s, 8); /* ends not known: a can do without one slot whichever ends first */
    run(&s, 3, 0);
    run(&s, 3, 0);
    wait_for(&s, 'a', 4);
    wait_for(&s, 'b', 1);
    wait_for(&s, 'c', 1);
    decide(&s, "aBc");
    scene_init(&s, 8); /* here it needs both when the smaller ends first */
    run(&s, 2, 0);
    run(&s, 4, 0);
    wait_for(&s, 'a', 4);
    wait_for(&s, 'b', 1);
    decide(&s, "ab");
}

/* GPUs that are looked at after a job are neither free nor anybody's. */
static void test_slots_in_between(void **state)
{
    struct scene s;
    scene_init(&s, 4);
    s.pass.free = 1;
    wait_for(&s, 'a', 4)->claims = true;
    wait_for(&s, 'b', 1)->lasts_ms = 1;
    decide(&s, "ab");
    expect(&s, 'a', SCHED_ROOM, 1); /* those of the job that made room for it */
    scene_init(&s, 4);
    run(&s, 2, 0)->preemptible = true;
    s.pass.free = 0; /* two are looked at: enough for a, nobody is preempted for them */
    wait_for(&s, 'a', 2)->priority = 1;
    decide(&s, "a");
    expect(&s, 'a', SCHED_SLOTS, 1);
    assert_false(s.running[0].preempt);
}

/* Who should have ended is awaited any moment; nothing is planned into the past. */
static void test_an_end_that_is_overdue(void **state)
{
    struct scene s;
    scene_init(&s, 4);
    run(&s, 2, 0)->ends_ms = NOW - 5000;
    run(&s, 2, 10000);
    wait_for(&s, 'a', 2)->lasts_ms = 3000;
    wait_for(&s, 'b', 2);
    decide(&s, "ab");
    assert_int_equal(find(&s, 'a')->start_ms, NOW);
    assert_int_equal(find(&s, 'b')->start_ms, NOW + 3000);
}

/* GPUs that were drained under a job do not come back with it. */
static void test_slots_that_are_lost(void **state)
{
    struct scene s;
    scene_init(&s, 7); /* of eight */
    struct sched_running *running = run(&s, 4, 10000);
    running->lost = 1;
    s.pass.free++; /* run() took four of the seven, it has three of them */
    run(&s, 3, 20000);
    wait_for(&s, 'a', 4); /* at 10000 the three of the first and the free one: none is to spare */
    wait_for(&s, 'b', 1);
    wait_for(&s, 'c', 1)->lasts_ms = 10000;
    decide(&s, "abC");
    assert_int_equal(find(&s, 'a')->start_ms, NOW + 10000);
    scene_init(&s, 4);
    running = run(&s, 4, 0);
    *running =
        (struct sched_running){.slots = 4, .lost = 2, .since_ms = NOW - 9000, .preemptible = true};
    s.pass.slots = 2;
    s.pass.free = 0;
    wait_for(&s, 'a', 3)->priority = 1; /* is too large for what is left */
    wait_for(&s, 'b', 2)->priority = 1;
    decide(&s, "ab");
    expect(&s, 'a', SCHED_TOO_LARGE, 1);
    expect(&s, 'b', SCHED_ROOM, 2);
    assert_true(running->preempt);
}

/* ---- room ---------------------------------------------------------------------------------- */

static struct sched_running *victim(struct scene *s, int64_t slots, int64_t priority,
                                    int64_t since_ms)
{
    struct sched_running *running = run(s, slots, 0);
    running->preemptible = true;
    running->priority = priority;
    running->since_ms = since_ms;
    return running;
}

static void test_room_for_the_head(void **state)
{
    struct scene s;
    scene_init(&s, 8);
    const struct sched_running *low = victim(&s, 2, -1, NOW - 20000);
    const struct sched_running *late = victim(&s, 2, 0, NOW - 6000);
    const struct sched_running *early = victim(&s, 2, 0, NOW - 9000);
    run(&s, 2, 0); /* does not allow it */
    wait_for(&s, 'a', 4)->priority = 1;
    wait_for(&s, 'b', 2)->priority = 1;
    decide(&s, "ab");
    expect(&s, 'a', SCHED_ROOM, 1);
    assert_true(find(&s, 'a')->claims);
    expect(&s, 'b', SCHED_BEHIND, 2);
    assert_true(low->preempt && late->preempt && !early->preempt);
    s.jobs[0].slots = 2; /* with less to make room for, less is preempted */
    decide(&s, "ab");
    assert_true(low->preempt && !late->preempt && !early->preempt);
}

static void test_no_more_than_it_takes(void **state)
{
    struct scene s;
    scene_init(&s, 8);
    const struct sched_running *small = victim(&s, 1, -1, NOW - 20000);
    const struct sched_running *large = victim(&s, 7, 0, NOW - 20000);
    wait_for(&s, 'a', 5)->priority = 1;
    decide(&s, "a");
    assert_true(!small->preempt && large->preempt);
}

/* Whoever is listed first: of those that can be spared the highest priority is. */
static void test_who_is_spared(void **state)
{
    for (int turned = 0; turned < 2; turned++) {
        struct scene s;
        scene_init(&s, 7);
        struct sched_running *first = victim(&s, 1, turned ? 0 : -2, NOW - 20000);
        struct sched_running *second = victim(&s, 1, turned ? -2 : 0, NOW - 20000);
        const struct sched_running *large = victim(&s, 5, 1, NOW - 20000);
        wait_for(&s, 'a', 6)->priority = 2; /* the large one and one of the small ones */
        decide(&s, "a");
        assert_true(large->preempt);
        assert_int_equal(first->preempt, !turned);
        assert_int_equal(second->preempt, turned);
    }
}

static void test_who_is_not_preempted(void **state)
{
    static const struct {
        int64_t priority, since_ms;
        bool allowed, wanted;
    } cases[] = {
        {.priority = 0, .since_ms = NOW - 5000, .allowed = true, .wanted = true},
        {.priority = 0, .since_ms = NOW - 4999, .allowed = true}, /* too short a run */
        {.priority = 0, .since_ms = 0, .allowed = true},          /* it is starting */
        {.priority = 0, .since_ms = NOW - 5000},
        {.priority = 1, .since_ms = NOW - 5000, .allowed = true}, /* as high as the head */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scene s;
        scene_init(&s, 2);
        struct sched_running *running = victim(&s, 2, cases[i].priority, cases[i].since_ms);
        running->preemptible = cases[i].allowed;
        wait_for(&s, 'a', 1)->priority = 1;
        decide(&s, "a");
        if (running->preempt != cases[i].wanted)
            fail_msg("case %zu", i);
        expect(&s, 'a', cases[i].wanted ? SCHED_ROOM : SCHED_SLOTS, 1);
    }
    struct scene s; /* all of them were not enough: none is */
    scene_init(&s, 4);
    victim(&s, 2, 0, NOW - 20000);
    run(&s, 2, 0);
    wait_for(&s, 'a', 3)->priority = 1;
    decide(&s, "a");
    expect(&s, 'a', SCHED_SLOTS, 1);
    assert_false(s.running[0].preempt);
    scene_init(&s, 4); /* what ends by itself, by a user's wish, is enough */
    run(&s, 2, 0)->ending = true;
    victim(&s, 2, 0, NOW - 20000);
    wait_for(&s, 'a', 2)->priority = 1;
    decide(&s, "a");
    expect(&s, 'a', SCHED_SLOTS, 1);
    assert_false(s.running[1].preempt);
}

/* ---- estimates ----------------------------------------------------------------------------- */

static void test_estimates(void **state)
{
    struct scene s;
    scene_init(&s, 4);
    run(&s, 4, 10000);
    wait_for(&s, 'a', 2)->lasts_ms = 7000;
    wait_for(&s, 'b', 4)->lasts_ms = 1000;
    wait_for(&s, 'c', 1)->lasts_ms = 500; /* with none overtaking: behind b */
    wait_for(&s, 'd', 4);
    wait_for(&s, 'e', 1);
    wait_for(&s, 'f', 1)->held = true;
    decide(&s, "abcdef");
    assert_int_equal(find(&s, 'a')->start_ms, NOW + 10000);
    assert_int_equal(find(&s, 'b')->start_ms, NOW + 17000);
    assert_int_equal(find(&s, 'c')->start_ms, NOW + 18000);
    assert_int_equal(find(&s, 'd')->start_ms, NOW + 18500);
    assert_int_equal(find(&s, 'e')->start_ms, 0);
    assert_int_equal(find(&s, 'f')->start_ms, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_user_in_the_order_of_submission),
        cmocka_unit_test(test_the_user_of_least_use_goes_first),
        cmocka_unit_test(test_a_claim_goes_first),
        cmocka_unit_test(test_holds_and_dependencies),
        cmocka_unit_test(test_caps_of_a_user),
        cmocka_unit_test(test_drained_and_too_large),
        cmocka_unit_test(test_nobody_passes_whose_end_is_not_known),
        cmocka_unit_test(test_what_ends_in_time_passes),
        cmocka_unit_test(test_slots_that_the_head_leaves),
        cmocka_unit_test(test_slots_in_between),
        cmocka_unit_test(test_room_for_the_head),
        cmocka_unit_test(test_no_more_than_it_takes),
        cmocka_unit_test(test_an_end_that_is_overdue),
        cmocka_unit_test(test_slots_that_are_lost),
        cmocka_unit_test(test_who_is_spared),
        cmocka_unit_test(test_who_is_not_preempted),
        cmocka_unit_test(test_estimates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
