/* cmd_submit: the job's JSON from a file and options: what wins, where --set puts things, which
 * files are uploaded; nothing is sent while the command line is wrong. */
#include "tests/lib/fake_server.h"

#define FITS "{\"object\":\"fine_tuning.estimate\",\"message\":null}"
#define REFUSED                                                                          \
    "{\"error\":{\"message\":\"no\",\"type\":\"invalid_request_error\",\"param\":\"x\"," \
    "\"code\":\"invalid_value\"}}"
#define CREATED "{\"id\":\"ftjob-new\",\"status\":\"validating_files\"}"

/* The body of the n-th request as JSON without blanks. */
static void expect_job(struct scene *s, int n, const char *json)
{
    scene_asked(s, n, "POST /v1/fine_tuning/jobs HTTP/1.1");
    assert_string_equal(s->server.asked[n].body, json);
}

static void test_options(void **state)
{
    struct scene *s = *state;
    scene_reply(s, 200, CREATED);
    scene_run(s, cmd_submit, "--model", "m", "--training-file", "file-1", "--suffix=sail", "--seed",
              "7", "--set", "batch.sequences=8", "--set", "optimizer.schedule=cosine", "--set",
              "save.keep=null", "--set", "packing=false", "--set", "a.b.c=[1]", "--set", "name=x=y",
              NULL);
    scene_expect(s, "ftjob-new\n");
    expect_job(s, 0,
               "{\"model\":\"m\",\"suffix\":\"sail\",\"seed\":7,\"ithaca\":{\"batch\":{"
               "\"sequences\":8},\"optimizer\":{\"schedule\":\"cosine\"},\"save\":{\"keep\":null},"
               "\"packing\":false,\"a\":{\"b\":{\"c\":[1]}},\"name\":\"x=y\"},\"training_file\":"
               "\"file-1\"}");
}

static void test_file_and_options(void **state)
{
    struct scene *s = *state;
    CLEANUP(mem_free_ptr) char *job = scene_path(s, "job.json");
    scene_put(s, "job.json",
              "{\"model\":\"old\",\"training_file\":\"file-1\",\"validation_file\":\"file-2\","
              "\"ithaca\":{\"batch\":{\"sequences\":1,\"tokens\":2},\"seq_len\":64}}");
    scene_reply(s, 200, CREATED);
    scene_run(s, cmd_submit, job, "--model=new", "--set", "batch.sequences=8", "--set",
              "seq_len.x=1", NULL);
    scene_expect(s, "ftjob-new\n");
    expect_job(s, 0,
               "{\"model\":\"new\",\"training_file\":\"file-1\",\"validation_file\":\"file-2\","
               "\"ithaca\":{\"batch\":{\"sequences\":8,\"tokens\":2},\"seq_len\":{\"x\":1}}}");
    s->json = true;
    scene_reply(s, 200, "{\"id\":\"ftjob-new\"}");
    scene_run(s, cmd_submit, job, NULL);
    scene_expect(s, "{\n  \"id\": \"ftjob-new\"\n}\n");
}

static void test_local_files_are_uploaded(void **state)
{
    struct scene *s = *state;
    CLEANUP(mem_free_ptr) char *train = scene_path(s, "train.jsonl");
    CLEANUP(mem_free_ptr) char *absent = scene_path(s, "absent.jsonl");
    scene_put(s, "train.jsonl", "{}\n");
    scene_reply(s, 200, FITS);
    scene_reply(s, 200, "{\"id\":\"file-up\"}");
    scene_reply(s, 200, CREATED);
    scene_run(s, cmd_submit, "--model=m", "--training-file", train, "--validation-file", "file-2",
              NULL);
    scene_expect(s, "ftjob-new\n");
    scene_asked(s, 0, "POST /v1/fine_tuning/estimate HTTP/1.1");
    assert_string_equal(s->server.asked[0].body,
                        "{\"model\":\"m\",\"ithaca\":{},\"training_file\":\"file-local\","
                        "\"validation_file\":\"file-2\"}");
    scene_asked(s, 1, "POST /v1/files HTTP/1.1");
    expect_job(s, 2,
               "{\"model\":\"m\",\"ithaca\":{},\"training_file\":\"file-up\",\"validation_file\":"
               "\"file-2\"}");
    assert_non_null(strstr(s->errors, "uploaded"));
    assert_null(strstr(s->errors, "stays"));
    scene_run(s, cmd_submit, "--model=m", "--training-file", train, "--validation-file", absent,
              NULL);
    assert_int_equal(s->rc, -ERR_NOT_FOUND); /* before the other one is sent */
    assert_non_null(strstr(s->err.text, absent));
    assert_int_equal(s->server.asked_count, 3);
}

/* A job that will be refused is refused before its file is sent; where only the submit itself finds
 * out, it is said what became of the file. */
static void test_refused_with_a_local_file(void **state)
{
    struct scene *s = *state;
    CLEANUP(mem_free_ptr) char *train = scene_path(s, "train.jsonl");
    scene_put(s, "train.jsonl", "{}\n");
    scene_reply(s, 200, "{\"object\":\"fine_tuning.estimate\",\"message\":\"needs 9 GiB\"}");
    scene_run(s, cmd_submit, "--model=m", "--training-file", train, NULL);
    assert_int_equal(s->rc, -ERR_DOES_NOT_FIT);
    assert_string_equal(s->err.text, "needs 9 GiB");
    scene_reply(s, 400, REFUSED);
    scene_run(s, cmd_submit, "--model=m", "--training-file", train, NULL);
    assert_int_equal(s->rc, -ERR_INVALID_VALUE);
    assert_int_equal(s->server.asked_count, 2); /* and no file */
    assert_null(strstr(s->errors, "stays"));
    scene_reply(s, 200, FITS);
    scene_reply(s, 200, "{\"id\":\"file-up\"}");
    scene_reply(s, 400, REFUSED);
    scene_run(s, cmd_submit, "--model=m", "--validation-file", train, "--training-file=file-1",
              NULL);
    assert_int_equal(s->rc, -ERR_INVALID_VALUE);
    assert_non_null(strstr(s->errors, "file-up stays: submit with --validation-file file-up, or "
                                      "remove it: ithaca files rm file-up\n"));
    assert_null(strstr(s->errors, "file-1 stays"));
}

static void test_mistakes(void **state)
{
    struct scene *s = *state;
    static const char *const sets[][2] = {{"batch", "write FIELD=VALUE"}, {"=8", "is empty"},
                                          {"batch..x=8", "is empty"},     {"batch.=8", "is empty"},
                                          {".x=8", "is empty"},           {"x=\xff", "not UTF-8"}};
    CLEANUP(mem_free_ptr) char *job = scene_path(s, "job.json");
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        scene_run(s, cmd_submit, "--model=m", "--set", sets[i][0], NULL);
        scene_expect_usage(s, sets[i][1]);
    }
    scene_run(s, cmd_submit, "--model=\xff", NULL);
    scene_expect_usage(s, "model: not UTF-8");
    scene_run(s, cmd_submit, "--seed=seven", NULL);
    scene_expect_usage(s, "--seed seven: write a number");
    scene_run(s, cmd_submit, "--set", NULL);
    scene_expect_usage(s, "--set needs a value");
    scene_run(s, cmd_submit, "--colour=red", NULL);
    scene_expect_usage(s, "unknown option --colour=red");
    scene_run(s, cmd_submit, job, NULL);
    assert_int_equal(s->rc, -ERR_NOT_FOUND);
    assert_int_equal(s->err.code, ERR_NOT_FOUND);
    static const char *const no_jobs[] = {"[]", "{}\n{}\n", "some text"};
    for (size_t i = 0; i < sizeof no_jobs / sizeof no_jobs[0]; i++) {
        scene_put(s, "job.json", no_jobs[i]);
        scene_run(s, cmd_submit, job, NULL);
        assert_int_equal(s->rc, -ERR_BAD_JSON);
        assert_ptr_equal(strstr(s->err.text, job), s->err.text);
        assert_non_null(strstr(s->err.text, "its rows are given by --training-file"));
    }
    scene_put(s, "job.json", "{\"ithaca\":[]}");
    scene_run(s, cmd_submit, job, NULL);
    assert_int_equal(s->rc, -ERR_INVALID_VALUE);
    assert_string_equal(s->err.field, "ithaca");
    scene_put(s, "job.json", "{}");
    scene_run(s, cmd_submit, job, "more", NULL);
    scene_expect_usage(s, "unexpected argument more");
    assert_int_equal(s->server.asked_count, 0);
    scene_reply(s, 200, "{}");
    scene_run(s, cmd_submit, job, NULL);
    assert_int_equal(s->rc, -ERR_PROTOCOL); /* a job without an id */
}

/* --follow: the id first, then the job to its end. */
static void test_follow(void **state)
{
    struct scene *s = *state;
    static const char stream[] = "HTTP/1.1 200 X\r\n\r\nevent: end\nid: 1-1\ndata: {}\n\n";
    scene_reply(s, 200, CREATED);
    scene_reply(s, 200, "{\"id\":\"ftjob-new\",\"ithaca\":{\"steps_total\":0}}");
    scene_raw(s, stream, sizeof stream - 1);
    scene_reply(s, 200,
                "{\"id\":\"ftjob-new\",\"status\":\"failed\",\"error\":{\"code\":\"rank_died\","
                "\"message\":\"rank 1\"}}");
    scene_run(s, cmd_submit, "--follow", "--model=m", "--training-file=file-1", NULL);
    assert_int_equal(s->rc, -ERR_RANK_DIED);
    assert_string_equal(s->out, "ftjob-new\n");
    scene_asked(s, 2, "GET /v1/fine_tuning/jobs/ftjob-new/stream HTTP/1.1");
}

/* resubmit --from-checkpoint: the checkpoint takes the model's place. */
static void test_resubmit_from_checkpoint(void **state)
{
    struct scene *s = *state;
    static const char asked[] = "{\"model\":\"m\",\"training_file\":\"file-1\",\"ithaca\":{}}";
    static const char posted[] =
        "{\"model\":\"ftckpt_a_4\",\"training_file\":\"file-1\",\"ithaca\":{}}";
    scene_reply(s, 200, asked);
    scene_reply(s, 200, CREATED);
    scene_run(s, cmd_resubmit, "ftjob-a", "--from-checkpoint", "ftckpt_a_4", NULL);
    scene_expect(s, "ftjob-new\n");
    expect_job(s, 1, posted);
    scene_reply(s, 200, "{\"object\":\"list\",\"data\":[{}],\"first_id\":\"ftckpt_a_4\"}");
    scene_reply(s, 200, asked);
    scene_reply(s, 200, CREATED);
    scene_run(s, cmd_resubmit, "ftjob-a", "--from-checkpoint", "newest", NULL);
    scene_expect(s, "ftjob-new\n");
    scene_asked(s, 2, "GET /v1/fine_tuning/jobs/ftjob-a/checkpoints?limit=1 HTTP/1.1");
    expect_job(s, 4, posted);
    scene_reply(s, 200, "{\"object\":\"list\",\"data\":[],\"first_id\":null}");
    scene_run(s, cmd_resubmit, "ftjob-a", "--from-checkpoint", "newest", NULL);
    assert_int_equal(s->rc, -ERR_NOT_FOUND);
    assert_non_null(strstr(s->err.text, "has no checkpoint"));
    scene_run(s, cmd_resubmit, "ftjob-a", "--from-checkpoint", "newest", "--model", "m", NULL);
    scene_expect_usage(s, "--model and --from-checkpoint: give one of them");
    assert_int_equal(s->server.asked_count, 6);
}

/* resubmit: options over what the job asked for; nothing is sent for a wrong command line. */
static void test_resubmit(void **state)
{
    struct scene *s = *state;
    static const char asked[] =
        "{\"model\":\"m\",\"training_file\":\"file-1\",\"method\":{\"supervised\":{"
        "\"hyperparameters\":{\"n_epochs\":3}}},\"ithaca\":{\"gpus\":1,\"lora\":null,\"hold\":true}"
        "}";
    scene_reply(s, 200, asked);
    scene_reply(s, 200, CREATED);
    scene_run(s, cmd_resubmit, "--set", "lora.r=8", "ftjob-old", "--model=n", "--set=max_steps=5",
              "--training-file", "file-2", NULL);
    scene_expect(s, "ftjob-new\n");
    scene_asked(s, 0, "GET /v1/fine_tuning/jobs/ftjob-old/request HTTP/1.1");
    expect_job(s, 1,
               "{\"model\":\"n\",\"training_file\":\"file-2\",\"method\":{\"supervised\":{"
               "\"hyperparameters\":{}}},\"ithaca\":{\"gpus\":1,\"lora\":{\"r\":8},\"hold\":true,"
               "\"max_steps\":5}}");
    scene_run(s, cmd_resubmit, NULL);
    scene_expect_usage(s, "the job's id");
    scene_run(s, cmd_resubmit, "ftjob-old", "--set", "gpus", NULL);
    scene_expect_usage(s, "write FIELD=VALUE");
    scene_run(s, cmd_resubmit, "ftjob-old", "more", NULL);
    scene_expect_usage(s, "unexpected argument more");
    assert_int_equal(s->server.asked_count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_TEST(test_options),
        SCENE_TEST(test_file_and_options),
        SCENE_TEST(test_local_files_are_uploaded),
        SCENE_TEST(test_refused_with_a_local_file),
        SCENE_TEST(test_mistakes),
        SCENE_TEST(test_follow),
        SCENE_TEST(test_resubmit_from_checkpoint),
        SCENE_TEST(test_resubmit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
