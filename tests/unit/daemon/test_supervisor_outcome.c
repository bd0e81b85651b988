/* supervisor_outcome: what is told of an attempt, of all that its daemon, keeper, ranks and the
 * kernel left behind: a row a case. */
#include "common/exit_report.h"
#include "common/io.h"
#include "common/mem.h"
#include "daemon/supervisor.h"
#include "tests/lib/cmocka.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct scene {
    char dir[64]; /* of the job and of the attempt */
    struct supervisor supervisor;
    struct exit_report report;
};

static int open_scene(void **state)
{
    struct scene *s = mem_new(1, sizeof *s);
    (void)snprintf(s->dir, sizeof s->dir, "/dev/shm/ithaca-outcome-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    *state = s;
    return 0;
}

static int close_scene(void **state)
{
    struct scene *s = *state;
    struct err err;
    int rc = io_remove_tree(s->dir, &err);
    mem_free(s);
    return rc;
}

/* Two ranks that have done nothing yet, and a report of two clean exits. */
static void begin(struct scene *s)
{
    s->supervisor =
        (struct supervisor){.plan = {.world = 2, .job_dir = s->dir},
                            .attempt_dir = s->dir,
                            .keeper = (struct host_process *)s, /* there is one, it is not asked */
                            .memory = {.limit = -1, .peak = -1},
                            .over = true};
    s->report = (struct exit_report){.world = 2, .first_failed = -1};
    s->report.ranks[0].pid = s->report.ranks[1].pid = 7;
}

static void put_report(struct scene *s)
{
    char path[96];
    struct err err;
    (void)snprintf(path, sizeof path, "%s/exit.json", s->dir);
    assert_int_equal(exit_report_write(path, &s->report, &err), 0);
}

static void expect(struct scene *s, enum err_code code, const char *text)
{
    struct err err;
    bool paused = false;
    int rc = supervisor_outcome(&s->supervisor, &paused, &err);
    if (rc != -(int)code || strcmp(err.text, text) != 0)
        fail_msg("%d %s, not %d %s", rc, rc != 0 ? err.text : "", -(int)code, text);
}

static void take_failed(struct scene *s, uint32_t rank, enum err_code code, const char *text)
{
    struct wire_failed failed = {.code = code, .step = 4, .phase = WIRE_PHASE_BACKWARD};
    (void)snprintf(failed.text, sizeof failed.text, "%s", text);
    supervisor_take_failed(&s->supervisor, rank, &failed);
}

static void test_a_keeper_without_a_report(void **state)
{
    static const char oom[] = "host out of memory: the kernel killed the keeper, its ranks with "
                              "it; the machine's memory, or that of a group around it, ran out";
    static const struct {
        int status, signal, kills;
        enum err_code code;
        const char *text;
    } rows[] = {
        {-1, 0, 0, ERR_RANK_DIED, "the keeper ended without a report, its ranks with it"},
        {-1, 15, 0, ERR_RANK_DIED, "the keeper was ended by signal 15, its ranks with it"},
        {0, 0, 0, ERR_RANK_START, "the keeper ended with exit status 0 and left no report"},
        {1, 0, 0, ERR_RANK_START, "the keeper ended with exit status 1 and left no report"},
        {-1, 0, 1, ERR_HOST_OOM, oom},
        {-1, SIGKILL, 1, ERR_HOST_OOM, oom},
        {-1, 15, 1, ERR_RANK_DIED, "the keeper was ended by signal 15, its ranks with it"},
        {0, 0, 1, ERR_RANK_START, "the keeper ended with exit status 0 and left no report"},
    };
    struct scene *s = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin(s);
        s->supervisor.keeper_exit =
            (struct host_exit){.status = rows[i].status, .signal = rows[i].signal};
        s->supervisor.memory.kills = rows[i].kills;
        expect(s, rows[i].code, rows[i].text);
    }
    s->supervisor.memory.kills = 0;
    s->supervisor.keeper = NULL;
    expect(s, ERR_COORDINATOR_LOST,
           "the daemon ended while the job ran, and so did the job's processes");
}

static void test_a_rank_that_ends(void **state)
{
    static const struct {
        struct exit_rank rank;
        struct cgroup_memory memory;
        enum err_code code;
        const char *text;
    } rows[] = {
        {{.pid = 7, .exit_status = 3},
         {.limit = -1},
         ERR_RANK_DIED,
         "rank 1 ended with exit status 3 in step 2, forward"}, /* as it was heard of */
        {{.pid = 7, .exit_status = 1, .has_place = true, .phase = WIRE_PHASE_DATA},
         {.limit = -1},
         ERR_RANK_DIED,
         "rank 1 ended with exit status 1 before the first step, data"},
        {{.exit_status = -1, .has_place = true, .step = 4, .phase = WIRE_PHASE_DATA},
         {.limit = -1},
         ERR_RANK_START,
         "rank 1 could not be started in step 4, data"},
        {{.pid = 1, .exit_status = -1, .signal = SIGSEGV, .last_words = "must(x)"},
         {.limit = -1, .kills = 1},
         ERR_RANK_DIED,
         "rank 1 was ended by signal 11 (SIGSEGV) in step 2, forward: must(x)"},
        {{.pid = 7, .exit_status = -1, .signal = 60},
         {.limit = -1},
         ERR_RANK_DIED,
         "rank 1 was ended by signal 60 (SIG?) in step 2, forward"},
        {{.pid = 7, .exit_status = -1, .signal = SIGKILL},
         {.limit = -1},
         ERR_RANK_DIED,
         "rank 1 was ended by signal 9 (SIGKILL) in step 2, forward"},
        {{.pid = 7, .exit_status = -1, .signal = SIGKILL},
         {.limit = 3LL << 29, .full = 1, .peak = 1 << 30, .kills = 1},
         ERR_HOST_OOM,
         "host out of memory: the kernel killed rank 1 in step 2, forward; its limit of 1.50 GiB "
         "(memory.max) was reached; the job took 1.00 GiB at most"},
        {{.pid = 7, .exit_status = -1, .signal = SIGKILL},
         {.limit = 1 << 30, .full = 0, .peak = -1, .kills = 1},
         ERR_HOST_OOM,
         "host out of memory: the kernel killed rank 1 in step 2, forward; the machine's memory, "
         "or that of a group around it, ran out"},
    };
    struct scene *s = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin(s);
        s->supervisor.ranks[1].step = 2;
        s->supervisor.ranks[1].phase = WIRE_PHASE_FORWARD;
        s->supervisor.memory = rows[i].memory;
        s->report.first_failed = 1;
        s->report.ranks[1] = rows[i].rank;
        put_report(s);
        expect(s, rows[i].code, rows[i].text);
    }
    begin(s);
    s->report.first_failed = 0;
    s->report.ranks[0] = (struct exit_rank){
        .pid = 7, .exit_status = 3, .has_place = true, .step = 4, .phase = WIRE_PHASE_DATA};
    put_report(s);
    expect(s, ERR_RANK_DIED, "rank 0 ended with exit status 3 in step 4, data");
}

/* Who speaks first has the cause, unless it says that it waited for another. */
static void test_ranks_that_say_why(void **state)
{
    struct scene *s = *state;
    begin(s);
    take_failed(s, 1, ERR_COLL_TIMEOUT, "waited");
    take_failed(s, 0, ERR_COLL_ABORTED, "ended");
    take_failed(s, 1, ERR_NONFINITE, "again");
    expect(s, ERR_COLL_TIMEOUT, "rank 1 in step 4, backward: waited");
    begin(s);
    take_failed(s, 0, ERR_COLL_ABORTED, "ended");
    take_failed(s, 1, ERR_COLL_TIMEOUT, "waited");
    expect(s, ERR_COLL_ABORTED, "rank 0 in step 4, backward: ended");
    begin(s);
    take_failed(s, 1, ERR_CANCELLED, "ended");
    take_failed(s, 0, ERR_DEVICE, "an XID");
    expect(s, ERR_DEVICE, "rank 0 in step 4, backward: an XID");
    take_failed(s, 1, ERR_NONFINITE, "of what it got");
    expect(s, ERR_DEVICE, "rank 0 in step 4, backward: an XID");
    begin(s);
    take_failed(s, 0, ERR_DEVICE, "an XID");
    take_failed(s, 1, ERR_NONFINITE, "of what it got");
    expect(s, ERR_DEVICE, "rank 0 in step 4, backward: an XID");
}

/* What the daemon found itself, beside what a rank said or its exit says. */
static void test_who_is_believed(void **state)
{
    static const struct {
        enum err_code seen;
        bool told, died; /* a rank told a cause; one ended without a word */
        enum err_code code;
    } rows[] = {
        {ERR_TIME_LIMIT, false, false, ERR_TIME_LIMIT},
        {ERR_TIME_LIMIT, true, true, ERR_TIME_LIMIT},
        {ERR_RANK_HUNG, false, false, ERR_RANK_HUNG},
        {ERR_RANK_HUNG, true, false, ERR_DEVICE},
        {ERR_RANK_HUNG, false, true, ERR_RANK_DIED},
        {ERR_RANK_START, false, false, ERR_RANK_START},
        {ERR_RANK_START, true, false, ERR_DEVICE},
        {ERR_RANK_START, false, true, ERR_RANK_DIED},
        {ERR_NONE, true, true, ERR_DEVICE},
        {ERR_NONE, false, true, ERR_RANK_DIED},
        {ERR_NONE, false, false, ERR_RANK_DIED}, /* "without having finished the job" */
    };
    struct scene *s = *state;
    struct err err;
    bool paused = false;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin(s);
        if (rows[i].seen != ERR_NONE)
            (void)err_set(&s->supervisor.failure, rows[i].seen, "seen");
        if (rows[i].told)
            take_failed(s, 0, ERR_DEVICE, "told");
        if (rows[i].died)
            s->report.first_failed = 1;
        (void)snprintf(s->report.collective, sizeof s->report.collective, "rank 1 had not come");
        put_report(s);
        if (supervisor_outcome(&s->supervisor, &paused, &err) != -(int)rows[i].code)
            fail_msg("row %zu: %s", i, err.text);
        bool about = rows[i].code == ERR_RANK_DIED || rows[i].code == ERR_RANK_HUNG;
        assert_int_equal(strstr(err.text, "; rank 1 had not come") != NULL, about);
    }
}

static void test_all_went_well(void **state)
{
    static const struct {
        bool done[2], paused[2], adopted;
        const char *made; /* in the job's folder */
        int rc;
        bool wanted; /* it is to go on */
    } rows[] = {
        {.done = {true, true}},
        {.done = {true, true}, .paused = {true, true}, .wanted = true},
        {.done = {true, true}, .paused = {true, false}, .wanted = true},
        {.done = {true, true}, .paused = {false, true}, .wanted = true},
        {.done = {true, false}, .rc = -ERR_RANK_DIED},
        /* An earlier daemon heard the end: the model tells, or what was measured. */
        {.done = {true, false}, .adopted = true, .wanted = true},
        {.done = {false, true}, .adopted = true, .wanted = true},
        {.adopted = true, .made = "model"},
        {.adopted = true, .made = "measured.json"},
    };
    struct scene *s = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err err;
        bool paused = !rows[i].wanted;
        CLEANUP(mem_free_ptr)
        char *made = rows[i].made != NULL ? io_join(s->dir, rows[i].made) : NULL;
        begin(s);
        put_report(s);
        if (made != NULL)
            assert_int_equal(io_write_file(made, "x", 1, 0600, &err), 0);
        s->supervisor.adopted = rows[i].adopted;
        for (int rank = 0; rank < 2; rank++) {
            s->supervisor.ranks[rank].done = rows[i].done[rank];
            s->supervisor.ranks[rank].paused = rows[i].paused[rank];
        }
        assert_int_equal(supervisor_outcome(&s->supervisor, &paused, &err), rows[i].rc);
        if (rows[i].rc == 0 && paused != rows[i].wanted)
            fail_msg("row %zu: paused %d", i, paused);
        if (made != NULL)
            assert_int_equal(unlink(made), 0);
    }
}

#define SCENE_TEST(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_TEST(test_a_keeper_without_a_report),
        SCENE_TEST(test_a_rank_that_ends),
        SCENE_TEST(test_ranks_that_say_why),
        SCENE_TEST(test_who_is_believed),
        SCENE_TEST(test_all_went_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
