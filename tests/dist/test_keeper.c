/* keeper: every way an attempt can end: the report must be right, and nothing may be left: no
 * process, no shared memory, no descriptor. */
#include "tests/dist/keeper_scene.h"

#include "common/json.h"
#include "common/launch_plan.h"
#include "common/proc_stat.h"

#include <sys/prctl.h>

static void test_all_exit_0(void **state)
{
    struct keeper_options options = options_for(3);
    stub(0, "inherit");
    stub(1, "inherit");
    stub(2, "nap 0");
    assert_int_equal(run_keeper(&options), 0);
    read_report();
    assert_int_equal(report.world, 3);
    assert_int_equal(report.first_failed, -1);
    assert_string_equal(report.stopped_by, "");
    for (int rank = 0; rank < 3; rank++) {
        expect_exit(rank, 0);
        assert_true(report.ranks[rank].pid > 0);
        assert_string_equal(report.ranks[rank].last_words, "");
    }
}

static void test_identity(void **state)
{
    struct keeper_options options = options_for(1);
    stub(0, "sleep");
    char path[128];
    file_path(path, "keeper.json");
    pid_t keeper = start_keeper(&options, 0);
    while (!io_exists(path) && proc_stat_signal_children(getpid(), 0) > 0)
        clock_sleep_ms(5);
    struct err err;
    json_t *identity = NULL;
    struct proc_stat stat;
    int64_t pid = 0, start_time = 0;
    const char *boot_id = "";
    assert_int_equal(json_parse_file(path, 4096, &identity, &err), 0);
    assert_int_equal(json_get_i64(identity, "pid", ERR_CORRUPT, &pid, &err), 0);
    assert_int_equal(json_get_i64(identity, "start_time", ERR_CORRUPT, &start_time, &err), 0);
    assert_int_equal(json_get_string(identity, "boot_id", ERR_CORRUPT, &boot_id, &err), 0);
    assert_int_equal(pid, keeper);
    assert_int_equal(proc_stat_read(keeper, &stat), 0);
    assert_int_equal(start_time, stat.start_time);
    assert_int_equal(stat.session, keeper); /* of its own */
    assert_int_equal(strlen(boot_id), 36);
    json_decref(identity);
    assert_int_equal(kill(keeper, SIGTERM), 0);
    assert_int_equal(finish_keeper(keeper), err_code_exit(ERR_CANCELLED));
}

static void test_failure_with_last_words(void **state)
{
    struct keeper_options options = options_for(3);
    int64_t start_ms = clock_monotonic_ms();
    stub(0, "sleep");
    stub(1, "words place nap 3");
    stub(2, "sleep");
    assert_int_equal(run_keeper(&options), err_code_exit(ERR_RANK_DIED));
    assert_true(clock_monotonic_ms() - start_ms >= GRACE_MS);
    read_report();
    assert_int_equal(report.first_failed, 1);
    assert_string_equal(report.stopped_by, "keeper_limit");
    expect_exit(1, 3);
    assert_string_equal(report.ranks[1].last_words, "step 7: loss is \xc3\xbc?");
    assert_true(report.ranks[1].has_place && report.ranks[1].step == 41);
    assert_int_equal(report.ranks[1].phase, WIRE_PHASE_OPTIMIZER);
    expect_signal(0, SIGTERM);
    assert_false(report.ranks[0].has_place);
    expect_signal(2, SIGTERM);
    assert_true(log_says("keeper.log", "rank 1 exited with 3: step 7"));
}

/* The others notice by themselves: nobody is stopped. */
static void test_failure_that_others_notice(void **state)
{
    struct keeper_options options = options_for(3);
    options.failed_grace_ms = 30000;
    stub(0, "await nap nap words 1");
    stub(1, "say nap nap nap 0");
    stub(2, "say kill");
    assert_int_equal(run_keeper(&options), err_code_exit(ERR_RANK_DIED));
    read_report();
    assert_int_equal(report.first_failed, 2);
    assert_string_equal(report.stopped_by, "");
    expect_exit(0, 1);
    expect_exit(1, 0);
    expect_signal(2, SIGKILL);
}

static void test_deaf_and_stopped_ranks_are_killed(void **state)
{
    struct keeper_options options = options_for(3);
    stub(0, "await 5");
    stub(1, "deaf say sleep");
    stub(2, "say stop");
    int64_t start_ms = clock_monotonic_ms();
    assert_int_equal(run_keeper(&options), err_code_exit(ERR_RANK_DIED));
    assert_true(clock_monotonic_ms() - start_ms < 5000);
    read_report();
    assert_int_equal(report.first_failed, 0);
    assert_string_equal(report.stopped_by, "keeper_limit");
    expect_signal(1, SIGKILL);
    expect_signal(2, SIGKILL);
}

static void test_families_of_ranks_are_killed(void **state)
{
    struct keeper_options options = options_for(2);
    stub(0, "family 0");
    stub(1, "family kill");
    assert_int_equal(run_keeper(&options), err_code_exit(ERR_RANK_DIED));
    read_report();
    expect_exit(0, 0);
    expect_signal(1, SIGKILL);
    stub(1, "family 0");
    assert_int_equal(run_keeper(&options), 0);
}

static void test_program_that_cannot_be_executed(void **state)
{
    struct keeper_options options = options_for(2);
    options.program = "/nonexistent/ithaca-worker";
    assert_int_equal(run_keeper(&options), err_code_exit(ERR_RANK_START));
    read_report();
    assert_int_equal(report.first_failed, 0);
    assert_string_equal(report.ranks[0].last_words,
                        "execute /nonexistent/ithaca-worker: No such file or directory");
    for (int rank = 0; rank < 2; rank++) {
        expect_exit(rank, -1);
        assert_int_equal(report.ranks[rank].pid, 0);
    }
}

/* Rank 1 of 3 cannot start: rank 0 is stopped at once, rank 2 is never started. */
static void test_start_that_breaks_off(void **state)
{
    struct keeper_options options = options_for(3);
    options.failed_grace_ms = 60000;
    char path[128];
    struct err err;
    file_path(path, "rank-1.log");
    assert_int_equal(io_make_dirs(path, 0700, &err), 0);
    stub(0, "sleep");
    stub(2, "sleep");
    assert_int_equal(run_keeper(&options), err_code_exit(ERR_RANK_START));
    read_report();
    assert_int_equal(report.first_failed, 1);
    assert_non_null(strstr(report.ranks[1].last_words, "rank-1.log: Is a directory"));
    expect_signal(0, SIGTERM);
    assert_int_equal(report.ranks[2].pid, 0);
}

static void test_stop(void **state)
{
    struct keeper_options options = options_for(3);
    stub(0, "sleep");
    stub(1, "deaf say family sleep");
    stub(2, "sleep");
    pid_t keeper = start_keeper(&options, 0);
    wait_until("keeper.log", "rank 2 started");
    wait_until("rank-1.log", "is there");
    assert_int_equal(kill(keeper, SIGTERM), 0);
    assert_int_equal(kill(keeper, SIGTERM), 0); /* asking twice changes nothing */
    assert_int_equal(finish_keeper(keeper), err_code_exit(ERR_CANCELLED));
    read_report();
    assert_int_equal(report.first_failed, -1);
    assert_string_equal(report.stopped_by, "daemon");
    expect_signal(0, SIGTERM);
    expect_signal(1, SIGKILL);
    expect_signal(2, SIGTERM);
}

/* Field case R45: no rank outlives its keeper. */
static void test_killed_keeper_takes_ranks_along(void **state)
{
    struct keeper_options options = options_for(3);
    stub(0, "sleep");
    stub(1, "deaf say sleep");
    stub(2, "stop");
    pid_t keeper = start_keeper(&options, 0);
    wait_until("keeper.log", "rank 2 started");
    wait_until("rank-1.log", "is there");
    assert_int_equal(kill(keeper, SIGKILL), 0);
    int status = await(keeper);
    assert_true(WIFSIGNALED(status));
    for (int rank = 0; rank < 3; rank++) { /* they are ours now: subreaper */
        status = await(-1);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    char path[128];
    file_path(path, "exit.json");
    assert_false(io_exists(path)); /* its absence tells the daemon */
}

static void test_log_is_cut(void **state)
{
    struct keeper_options options = options_for(2);
    stub(0, "noise 0");
    stub(1, "0");
    assert_int_equal(run_keeper(&options), 0);
    int64_t bytes = 0;
    char path[128], said[64];
    struct err err;
    file_path(path, "rank-0.log");
    assert_int_equal(io_file_size(path, &bytes, &err), 0);
    assert_in_range(bytes, LOG_BYTES, LOG_BYTES + 200);
    assert_true(log_says("rank-0.log", "000000000\n000000001\n"));
    assert_true(log_says("rank-0.log", "the log's limit is reached"));
    (void)snprintf(said, sizeof said, "[%d bytes of output were dropped]", NOISE_BYTES - LOG_BYTES);
    assert_true(log_says("rank-0.log", said));
    file_path(path, "rank-1.log");
    assert_int_equal(io_file_size(path, &bytes, &err), 0);
    assert_int_equal(bytes, 0);
}

/* The n-th allocation fails, n = 1, 2, ...: an error, and as little left as ever. */
static void test_allocation_failures(void **state)
{
    struct keeper_options options = options_for(2);
    stub(0, "0");
    stub(1, "0");
    int walked = 0, status;
    do {
        int fd = shm_open(shm_name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        (void)close(fd);
        status = await(start_keeper(&options, ++walked));
        assert_true(WIFEXITED(status));
        if (status != 0)
            assert_true(WEXITSTATUS(status) == err_code_exit(ERR_NOMEM) ||
                        WEXITSTATUS(status) == err_code_exit(ERR_RANK_START));
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    } while (status != 0);
    assert_true(shm_is_gone());
    assert_in_range(walked, 10, 200);
    print_message("%d allocations walked\n", walked - 1);
}

/* Two ranks by the way in that main takes, everything being in plan.json; the keeper's exit. */
static int run_planned(char *cgroup)
{
    struct err err = {0};
    static const char body[] = "{\"model\":\"tiny\",\"training_file\":\"file-1\"}";
    json_t *request = NULL;
    struct launch_plan plan = {.job_id = "ftjob-1",
                               .attempt = 1,
                               .world = 2,
                               .job_dir = folder,
                               .model_dir = folder,
                               .model_name = "tiny",
                               .heartbeat_limit_ms = 1000,
                               .coll_timeout_ms = 1000,
                               .orphan_limit_ms = 1000,
                               .threads = 3,
                               .cgroup = cgroup};
    (void)snprintf(plan.shm_name, sizeof plan.shm_name, "%s", shm_name);
    assert_int_equal(json_parse(body, strlen(body), "the test", &request, &err), 0);
    MUST_WORK(job_spec_parse(request, &plan.spec, &err), &err);
    const struct job_facts facts = {
        .ranks_max = 2, .heads = 4, .kv_heads = 2, .layers = 2, .context_max = 4096};
    assert_int_equal(job_spec_resolve(&plan.spec, &facts, &err), 0);
    json_t *object = launch_plan_json(&plan);
    char path[128];
    file_path(path, "plan.json");
    assert_int_equal(json_write_file(path, object, 0600, &err), 0);
    json_decref(object);
    json_decref(request);
    job_spec_done(&plan.spec);
    stub(0, "inherit");
    stub(1, "inherit");
    (void)fflush(NULL);
    pid_t keeper = fork();
    if (keeper == 0) {
        int rc = keeper_main(folder, &err);
        if (rc != 0)
            (void)fprintf(stderr, "%s\n", err.text);
        _exit(mem_live() != 0 ? STATUS_LEAK : err_code_exit((enum err_code) - rc));
    }
    assert_int_equal(mem_live(), 0);
    return finish_keeper(keeper);
}

static void test_keeper_main_reads_the_plan(void **state)
{
    assert_int_equal(run_planned(NULL), 0);
    read_report();
    assert_int_equal(report.world, 2);
    expect_exit(0, 0);
    expect_exit(1, 0);
}

/* A group that cannot be joined keeps nobody from training. */
static void test_keeper_joins_its_group(void **state)
{
    char group[128], procs[160], text[8] = "";
    struct err err;
    file_path(group, "ithaca-ftjob-1-1");
    (void)snprintf(procs, sizeof procs, "%s/cgroup.procs", group);
    assert_int_equal(io_make_dirs(group, 0700, &err), 0);
    assert_int_equal(io_write_file(procs, "", 0, 0600, &err), 0);
    assert_int_equal(run_planned(group), 0);
    FILE *file = fopen(procs, "re");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    (void)fclose(file);
    assert_string_equal(text, "0"); /* itself */
    assert_int_equal(io_remove_tree(group, &err), 0);
    assert_int_equal(run_planned(group), 0);
    assert_true(log_says("keeper.log", "not in the job's control group: "));
}

static void test_keeper_main_without_a_plan(void **state)
{
    pid_t keeper = fork();
    if (keeper == 0) {
        struct err err = {0};
        int rc = keeper_main(folder, &err);
        _exit(rc == -ERR_NOT_FOUND && strstr(err.text, "plan.json") != NULL ? 0 : 1);
    }
    assert_int_equal(await(keeper), 0);
}

#define KEEPER_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "--rank") == 0 && strcmp(argv[3], "--attempt-dir") == 0)
        return stub_main((int)strtol(argv[2], NULL, 10), argv[4]);
    (void)snprintf(shm_name, sizeof shm_name, "/ithaca-test-keeper-%ld", (long)getpid());
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || setenv("ITHACA_TEST_STRAY", "1", 1) != 0 ||
        setenv("NCCL_TEST_KEPT", "1", 1) != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        KEEPER_TEST(test_all_exit_0),
        KEEPER_TEST(test_identity),
        KEEPER_TEST(test_failure_with_last_words),
        KEEPER_TEST(test_failure_that_others_notice),
        KEEPER_TEST(test_deaf_and_stopped_ranks_are_killed),
        KEEPER_TEST(test_families_of_ranks_are_killed),
        KEEPER_TEST(test_program_that_cannot_be_executed),
        KEEPER_TEST(test_start_that_breaks_off),
        KEEPER_TEST(test_stop),
        KEEPER_TEST(test_killed_keeper_takes_ranks_along),
        KEEPER_TEST(test_log_is_cut),
        KEEPER_TEST(test_allocation_failures),
        KEEPER_TEST(test_keeper_main_reads_the_plan),
        KEEPER_TEST(test_keeper_joins_its_group),
        KEEPER_TEST(test_keeper_main_without_a_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
