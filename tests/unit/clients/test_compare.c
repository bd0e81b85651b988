/* compare: what differs, what was reached, as a table, as CSV; answers that lack things; the
 * command's requests and mistakes. */
#include "clients/cli/compare.h"
#include "tests/lib/fake_server.h"

#define JOB(id, seed, spec, finished)                                                   \
    "{\"id\":\"" id "\",\"model\":\"m\",\"training_file\":\"file-1\",\"seed\":" #seed   \
    ",\"finished_at\":" finished ",\"ithaca\":{\"state\":\"running\",\"steps_done\":4," \
    "\"steps_total\":9,\"started_at\":1000,\"spec\":" spec "}}"
#define SERIES(key, points) "{\"key\":\"" key "\",\"points\":[" points "]}"
#define METRICS(loss, speed) \
    "{\"data\":[" SERIES("loss", loss) "," SERIES("tokens_per_s", speed) "]}"
static const char first[] = JOB("ftjob-a", 1, "{\"gpus\":1,\"lora\":null}", "1090");
static const char second[] =
    JOB("ftjob-b", 1, "{\"gpus\":2,\"lora\":{\"r\":8},\"tags\":[]}", "null");
static const char first_metrics[] =
    METRICS("[1,3.5],[2,1.5],[3,null],[4,2.5]", "[1,100],[2,300],[3,200]");
static const char second_metrics[] = METRICS("", "");
static const char first_memory[] =
    "{\"planned\":{\"peak_device_bytes\":3221225472},\"data\":[" SERIES(
        "arena_peak_bytes",
        "[1,1073741824]") "," SERIES("arena_peak_bytes",
                                     "[1,2147483648]") "," SERIES("host_bytes", "[1,9e12]") "]}";
static const char second_memory[] = "{\"planned\":null,\"data\":[]}";

static json_t *parsed(const char *text)
{
    struct err err;
    json_t *value = NULL;
    MUST_WORK(json_parse(text, strlen(text), "answer", &value, &err), &err);
    return value;
}

static json_t *compared(const char *metric)
{
    struct err err;
    json_t *comparison = NULL;
    CLEANUP(json_unref)
    json_t *texts =
        json_pack("[o, o, o, o, o, o]", parsed(first), parsed(first_metrics), parsed(first_memory),
                  parsed(second), parsed(second_metrics), parsed(second_memory));
    const struct compare_answers jobs[] = {
        {json_array_get(texts, 0), json_array_get(texts, 1), json_array_get(texts, 2)},
        {json_array_get(texts, 3), json_array_get(texts, 4), json_array_get(texts, 5)}};
    assert_int_equal(compare_make(jobs, 2, metric, 1100, &comparison, &err), 0);
    return comparison;
}

static void test_what_differs(void **state)
{
    CLEANUP(json_unref) json_t *comparison = compared("loss");
    CLEANUP(json_unref) json_t *wanted = parsed("[\"gpus\",\"lora.r\",\"tags\"]");
    assert_true(json_equal(json_object_get(comparison, "settings"), wanted));
    const json_t *results =
        json_object_get(json_array_get(json_object_get(comparison, "jobs"), 0), "results");
    CLEANUP(json_unref)
    json_t *reached = parsed("{\"state\":\"running\",\"steps_done\":4,\"steps_total\":9,\"last\":"
                             "2.5,\"best\":1.5,\"best_step\":2,\"valid_loss\":null,"
                             "\"tokens_per_s\":200.0,\"mfu_causal\":null,\"step_time_s\":null,"
                             "\"peak_bytes\":2147483648,\"planned_bytes\":3221225472,"
                             "\"time_s\":90}");
    assert_true(json_equal(results, reached));
    results = json_object_get(json_array_get(json_object_get(comparison, "jobs"), 1), "results");
    assert_true(json_is_null(json_object_get(results, "best")));
    assert_true(json_is_null(json_object_get(results, "best_step")));
    assert_int_equal(json_integer_value(json_object_get(results, "time_s")), 100); /* until now */
}

/* The highest of a speed is the best one. */
static void test_best_of_a_speed(void **state)
{
    CLEANUP(json_unref) json_t *comparison = compared("tokens_per_s");
    const json_t *results =
        json_object_get(json_array_get(json_object_get(comparison, "jobs"), 0), "results");
    assert_int_equal(json_number_value(json_object_get(results, "best")), 300);
    assert_int_equal(json_integer_value(json_object_get(results, "best_step")), 2);
}

static void test_text(void **state)
{
    struct err err;
    struct buf text;
    CLEANUP(json_unref) json_t *comparison = compared("loss");
    buf_init(&text, 1 << 16);
    assert_int_equal(compare_text(comparison, 80, &text, &err), 0);
    static const char table[] = "                      ftjob-a  ftjob-b\n"
                                "gpus                        1        2\n"
                                "lora.r                      -        8\n"
                                "tags                        -       []\n"
                                "state                 running  running\n"
                                "steps done                  4        4\n"
                                "steps in all                9        9\n"
                                "last loss                 2.5        -\n"
                                "best loss                 1.5        -\n"
                                "at step                     2        -\n"
                                "lowest valid_loss           -        -\n"
                                "tokens/s, median          200        -\n"
                                "MFU (causal), median        -        -\n"
                                "step time s, median         -        -\n"
                                "peak GiB of a rank      2.000        -\n"
                                "planned GiB             3.000        -\n"
                                "time                    1m30s    1m40s\n"
                                "\nloss\n       3.5 |*";
    assert_memory_equal(buf_str(&text), table, sizeof table - 1);
    assert_non_null(strstr(buf_str(&text), "\n* ftjob-a\n+ ftjob-b\n"));
    buf_clear(&text);
    CLEANUP(json_unref) json_t *blank = compared("valid_loss");
    assert_int_equal(compare_text(blank, 80, &text, &err), 0);
    assert_string_equal(strstr(buf_str(&text), "\ntime "), "\ntime                    1m30s    "
                                                           "1m40s\n"); /* and no chart */
    buf_done(&text);
}

static void test_csv(void **state)
{
    struct buf text;
    CLEANUP(json_unref) json_t *comparison = compared("loss");
    json_t *settings =
        json_object_get(json_array_get(json_object_get(comparison, "jobs"), 0), "settings");
    assert_int_equal(json_object_set_new(settings, "tags", json_string("=a \"b\", c")), 0);
    assert_int_equal(json_object_set_new(settings, "gpus", json_integer(-1)), 0);
    buf_init(&text, 1 << 16);
    compare_csv(comparison, &text);
    assert_string_equal(
        buf_str(&text),
        "id,gpus,lora.r,tags,state,steps_done,steps_total,last,best,best_step,valid_loss,"
        "tokens_per_s,mfu_causal,step_time_s,peak_bytes,planned_bytes,time_s\r\n"
        "ftjob-a,-1,,\"'=a \"\"b\"\", "
        "c\",running,4,9,2.5,1.5,2,,200.0,,,2147483648,3221225472,90\r\n"
        "ftjob-b,2,8,[],running,4,9,,,,,,,,,,100\r\n");
    buf_done(&text);
}

static void test_command(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 200, first);
    scene_reply(s, 200, first_metrics);
    scene_reply(s, 200, first_memory);
    scene_reply(s, 200, second);
    scene_reply(s, 200, second_metrics);
    scene_reply(s, 200, second_memory);
    scene_run(s, cmd_compare, "ftjob-a", "--metric", "grad_norm", "--csv", "ftjob-b", NULL);
    assert_int_equal(s->rc, 0);
    assert_memory_equal(s->out, "id,gpus,", 8);
    scene_asked(s, 1,
                "GET /v1/fine_tuning/jobs/ftjob-a/metrics?keys=grad_norm,valid_loss,tokens_per_s,"
                "mfu_causal,step_time_s&max_points=400 HTTP/1.1");
    scene_asked(s, 5, "GET /v1/fine_tuning/jobs/ftjob-b/memory?max_points=400 HTTP/1.1");
    scene_reply(s, 404, "{\"error\":{\"message\":\"no job\",\"code\":\"not_found\"}}");
    scene_run(s, cmd_compare, "ftjob-x", "ftjob-b", NULL);
    assert_int_equal(s->rc, -ERR_NOT_FOUND);
}

static void test_mistakes(void **state)
{
    struct scene *s = *state;
    scene_run(s, cmd_compare, "ftjob-a", NULL);
    scene_expect_usage(s, "two jobs or more");
    scene_run(s, cmd_compare, "ftjob-a", "ftjob-b", "--metric", "los", NULL);
    scene_expect_usage(s, "--metric los: there is no such metric; did you mean loss?");
    scene_run(s, cmd_compare, "ftjob-a", "ftjob-b", "--metric", "token_per_s", NULL);
    scene_expect_usage(s, "did you mean tokens_per_s?");
    scene_run(s, cmd_compare, "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13",
              "14", "15", "16", "17", NULL);
    scene_expect_usage(s, "at most 16 jobs");
    assert_int_equal(s->server.asked_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_differs),
        cmocka_unit_test(test_best_of_a_speed),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_csv),
        SCENE_TEST(test_command),
        SCENE_TEST(test_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
