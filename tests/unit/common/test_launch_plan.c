/* launch_plan: the round trip, and every single change that must be refused. */
#include "common/launch_plan.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static json_t *literal_plan(void)
{
    return json_literal(
        "{'job_id':'ftjob-a_1','attempt':2,'purpose':'measure','world':4,'secret':"
        "'000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f','socket':'/run/x.sock',"
        "'shm_name':'/ithaca-ftjob-a_1-2','job_dir':'/data/jobs/ftjob-a_1','model_dir':'/models/m',"
        "'model_name':'m','heartbeat_limit_ms':30000,'coll_timeout_ms':60000,'orphan_limit_ms':0,"
        "'threads':2,'gpus':['GPU-d','GPU-a','GPU-b','GPU-c'],'resume_from':'/data/jobs/ftjob-a_1/"
        "checkpoints/"
        "step-7','steps_done':7,'memory_digest':'000102030405060708090a0b0c0d0e0f','peak_flops':"
        "1500000000000,'spec':{'model':'m','training_file':'file-1','metadata':{'a':'b'},"
        "'ithaca':{'gpus':4,'seq_len':512}}}");
}

static void test_round_trip(void **state)
{
    struct err err;
    struct launch_plan plan;
    struct launch_plan again;
    json_t *object = literal_plan();
    assert_int_equal(launch_plan_parse(object, &plan, &err), 0);
    assert_string_equal(plan.job_id, "ftjob-a_1");
    assert_int_equal(plan.attempt, 2);
    assert_int_equal(plan.world, 4);
    assert_int_equal(plan.secret[31], 31);
    assert_int_equal(plan.spec.seq_len, 512);
    assert_int_equal(plan.orphan_limit_ms, 0);
    assert_string_equal(plan.resume_from, "/data/jobs/ftjob-a_1/checkpoints/step-7");
    assert_int_equal(plan.steps_done, 7);
    assert_string_equal(plan.memory_digest, "000102030405060708090a0b0c0d0e0f");
    assert_int_equal(plan.purpose, LAUNCH_MEASURE);
    assert_int_equal(plan.peak_flops, 1500000000000);
    assert_int_equal(plan.device, LAUNCH_CUDA);
    assert_string_equal(plan.gpus[0], "GPU-d");
    assert_string_equal(plan.gpus[3], "GPU-c");
    char *folder = launch_plan_attempt_dir(&plan);
    assert_string_equal(folder, "/data/jobs/ftjob-a_1/attempt-2");
    json_t *printed = launch_plan_json(&plan);
    assert_int_equal(launch_plan_parse(printed, &again, &err), 0);
    json_t *reprinted = launch_plan_json(&again);
    assert_true(json_equal(printed, reprinted));
    assert_int_equal(json_object_size(printed), json_object_size(object));
    mem_free(folder);
    json_decref(printed);
    json_decref(reprinted);
    json_decref(object);
    launch_plan_done(&plan);
    launch_plan_done(&again);
    launch_plan_done(&again); /* twice is fine */
    assert_int_equal(mem_live(), 0);
}

static void assert_refused(json_t *object, const char *what)
{
    struct err err;
    struct launch_plan plan;
    memset(&plan, 0xee, sizeof plan);
    struct launch_plan untouched = plan;
    int rc = launch_plan_parse(object, &plan, &err);
    if (rc == 0 || strncmp(err.text, "launch plan: ", 13) != 0)
        fail_msg("%s: rc %d", what, rc);
    assert_memory_equal(&plan, &untouched, sizeof plan);
}

/* It is killed and removed at the end: only this attempt's own will do. */
static void test_cgroup(void **state)
{
    static const char *const others[] = {"",
                                         "a/ithaca-ftjob-a_1-2",
                                         "/a/ithaca-ftjob-a_1-1",
                                         "/a/ithaca-ftjob-b-2",
                                         "/a/../ithaca-ftjob-a_1-2",
                                         "/a"};
    struct err err;
    struct launch_plan plan;
    json_t *object = literal_plan();
    assert_int_equal(launch_plan_parse(object, &plan, &err), 0);
    assert_null(plan.cgroup);
    launch_plan_done(&plan);
    json_object_set_new(object, "cgroup", json_string("/sys/fs/cgroup/a/ithaca-ftjob-a_1-2"));
    assert_int_equal(launch_plan_parse(object, &plan, &err), 0);
    assert_string_equal(plan.cgroup, "/sys/fs/cgroup/a/ithaca-ftjob-a_1-2");
    json_t *printed = launch_plan_json(&plan);
    assert_int_equal(json_object_size(printed), json_object_size(object));
    json_decref(printed);
    launch_plan_done(&plan);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        json_object_set_new(object, "cgroup", json_string(others[i]));
        assert_refused(object, others[i]);
    }
    json_decref(object);
    assert_int_equal(mem_live(), 0);
}

static void test_layout(void **state)
{
    static const struct {
        const char *degrees;
        int data, ring, ulysses; /* data 0: refused */
    } cases[] = {
        {"{}", 4, 1, 1},
        {"{'ulysses':2}", 2, 1, 2},
        {"{'ring':2,'ulysses':2}", 1, 2, 2},
        {"{'ring':4,'ulysses':'auto'}", 1, 4, 1},
        {"{'ring':4,'ulysses':2}", 0, 0, 0},
        {"{'ulysses':3}", 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err;
        struct launch_plan plan;
        json_t *object = literal_plan();
        json_object_set_new(json_object_get(json_object_get(object, "spec"), "ithaca"),
                            "context_parallel", json_literal(cases[i].degrees));
        if (cases[i].data == 0) {
            assert_refused(object, cases[i].degrees);
        } else {
            assert_int_equal(launch_plan_parse(object, &plan, &err), 0);
            struct mesh mesh = launch_plan_mesh(&plan);
            assert_int_equal(mesh.data, cases[i].data);
            assert_int_equal(mesh.ring, cases[i].ring);
            assert_int_equal(mesh.ulysses, cases[i].ulysses);
            launch_plan_done(&plan);
        }
        json_decref(object);
    }
    assert_int_equal(mem_live(), 0);
}

static void test_no_gpus_is_the_cpu(void **state)
{
    struct err err;
    struct launch_plan plan;
    json_t *object = literal_plan();
    json_object_set_new(object, "gpus", json_array());
    assert_int_equal(launch_plan_parse(object, &plan, &err), 0);
    assert_int_equal(plan.device, LAUNCH_CPU);
    launch_plan_done(&plan);
    json_decref(object);
}

static void test_every_key_is_needed_and_typed(void **state)
{
    json_t *object = literal_plan();
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        json_t *changed = json_copy(object);
        json_object_del(changed, key);
        assert_refused(changed, key);
        json_object_set_new(changed, key, json_real(1.5));
        assert_refused(changed, key);
        json_object_set_new(changed, key, json_null());
        assert_refused(changed, key);
        json_decref(changed);
    }
    json_object_set_new(object, "extra", json_integer(1));
    assert_refused(object, "extra");
    json_decref(object);
    assert_refused(NULL, "NULL");
}

static void test_values_out_of_range(void **state)
{
    char long_text[LIMIT_PATH_BYTES + 2];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    long_text[0] = '/';
    const struct {
        const char *key;
        json_t *value;
    } cases[] = {
        {"job_id", json_string("")},
        {"job_id", json_string("../x")},
        {"job_id", json_string(long_text)},
        {"attempt", json_integer(0)},
        {"attempt", json_integer(1LL << 40)},
        {"purpose", json_string("play")},
        {"world", json_integer(0)},
        {"world", json_integer(LIMIT_RANKS + 1)},
        {"secret", json_string("00")},
        {"secret", json_string("00010203040506070809zz0b0c0d0e0f101112131415161718191a1b1c1d1e1f")},
        {"socket", json_string(long_text)},
        {"shm_name", json_string("no-slash")},
        {"shm_name", json_string("/a/b")},
        {"job_dir", json_string("relative")},
        {"job_dir", json_string(long_text)},
        {"model_dir", json_string("")},
        {"model_name", json_string(long_text)},
        {"heartbeat_limit_ms", json_integer(0)},
        {"coll_timeout_ms", json_integer(-1)},
        {"orphan_limit_ms", json_integer(INT64_MAX)},
        {"threads", json_integer(0)},
        {"gpus", json_literal("['0']")},
        {"gpus", json_literal("['0','1','2','1']")},
        {"gpus", json_literal("['0','1','2','']")},
        {"gpus", json_literal("['0','1','2','GPU-a,GPU-b']")},
        {"gpus", json_literal("['0','1','2','GPU-678901234567890123456789012345678901234567890']")},
        {"gpus", json_literal("['0','1','2',3]")},
        {"gpus", json_literal("{}")},
        {"resume_from", json_string("checkpoints/step-7")},
        {"steps_done", json_integer(-1)},
        {"peak_flops", json_integer(-1)},
        {"spec", json_object()},
        {"spec", json_literal("{'model':'m','training_file':'f','ithaca':{'gpus':65}}")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *object = literal_plan();
        json_object_set_new(object, cases[i].key, cases[i].value);
        assert_refused(object, cases[i].key);
        json_decref(object);
    }
}

static void test_failing_allocations(void **state)
{
    struct err err;
    struct launch_plan plan;
    json_t *object = literal_plan();
    int64_t fault = 1;
    for (int rc = -1; rc != 0; fault++) {
        mem_fault_after(fault);
        rc = launch_plan_parse(object, &plan, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        if (rc == 0)
            launch_plan_done(&plan);
        assert_int_equal(mem_live(), 0);
    }
    assert_in_range(fault, 3, 200);
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_cgroup),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_no_gpus_is_the_cpu),
        cmocka_unit_test(test_every_key_is_needed_and_typed),
        cmocka_unit_test(test_values_out_of_range),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
