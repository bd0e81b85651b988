/* cmd_gpus: the list in lines, drain and undrain, mistakes. */
#include "tests/lib/fake_server.h"

#define GPU                                                                                  \
    "{\"id\":\"GPU-a\",\"kind\":\"gpu\",\"state\":\"taken\",\"number\":3,\"name\":\"H200\"," \
    "\"used_bytes\":1073741824,\"total_bytes\":2147483648,\"temperature_c\":50,"             \
    "\"reason\":\"drained\",\"owner\":\"ana\",\"job_id\":%s}"

static void test_list(void **state)
{
    struct scene *s = *state;
    char body[1024];
    (void)snprintf(body, sizeof body,
                   "{\"data\":[" GPU "," GPU
                   ",{\"id\":\"CPU-0\",\"kind\":\"cpu\",\"state\":\"free\",\"reason\":null}]}",
                   "\"ftjob-a\"", "null");
    scene_reply(s, 200, body);
    scene_run(s, cmd_gpus, NULL);
    scene_expect(s, "GPU-a  3  H200  taken  1.0/2.0 GiB  50 C  ftjob-a of ana  drained\n"
                    "GPU-a  3  H200  taken  1.0/2.0 GiB  50 C  of ana  drained\n"
                    "CPU-0  free\n");
    scene_asked(s, 0, "GET /v1/gpus HTTP/1.1");
    s->json = true;
    scene_reply(s, 200, "{\"data\":[]}");
    scene_run(s, cmd_gpus, NULL);
    scene_expect(s, "{\n  \"data\": []\n}\n");
}

static void test_drain(void **state)
{
    struct scene *s = *state;
    char body[512];
    (void)snprintf(body, sizeof body, GPU, "null");
    scene_reply(s, 200, body);
    scene_run(s, cmd_gpus, "drain", "GPU-a", NULL);
    scene_expect(s, "GPU-a  3  H200  taken  1.0/2.0 GiB  50 C  of ana  drained\n");
    scene_asked(s, 0, "POST /v1/gpus/GPU-a/drain HTTP/1.1");
    scene_reply(s, 200, body);
    scene_run(s, cmd_gpus, "undrain", "GPU a", NULL);
    scene_asked(s, 1, "POST /v1/gpus/GPU%20a/undrain HTTP/1.1");
    scene_run(s, cmd_gpus, "reset", "GPU-a", NULL);
    scene_expect_usage(s, "unknown verb reset; use one of drain, undrain");
    scene_run(s, cmd_gpus, "drain", NULL);
    scene_expect_usage(s, "the GPU's id is missing");
    scene_run(s, cmd_gpus, "drain", "GPU-a", "GPU-b", NULL);
    scene_expect_usage(s, "unexpected argument GPU-b");
    assert_int_equal(s->server.asked_count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {SCENE_TEST(test_list), SCENE_TEST(test_drain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
