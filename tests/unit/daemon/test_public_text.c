/* public_text: the daemon's folders go out of a sentence, and nothing else does. */
#include "daemon/public_text.h"

#include "daemon/settings.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>

static char data_dir[] = "/var/lib/ithaca", worker[] = "/usr/libexec/ithaca/ithaca-worker";
static struct settings_pair roots[] = {{.value = "/var/lib/ithaca/models"}, {.value = "/models/"}};

static void shown(const char *text, const char *want)
{
    const struct settings settings = {
        .data_dir = data_dir, .worker = worker, .model_roots = {.items = roots, .count = 2}};
    char got[256];
    (void)snprintf(got, sizeof got, "%s", text);
    public_text(&settings, got);
    assert_string_equal(got, want);
}

static void test_hidden(void **state)
{
    shown("checkpoint of step 5: /var/lib/ithaca/jobs/ftjob-1/checkpoints: exists and is no folder",
          "checkpoint of step 5: checkpoints: exists and is no folder");
    shown("rename /var/lib/ithaca/jobs/ftjob-1/a to /var/lib/ithaca/jobs/ftjob-2/b",
          "rename a to b");
    shown("/var/lib/ithaca/jobs/ftjob-1: create folder", "jobs/ftjob-1: create folder");
    shown("/var/lib/ithaca/files/file-1: No space left", "files/file-1: No space left");
    shown("/var/lib/ithaca: the disk is full", "ithaca: the disk is full");
    shown("/var/lib/ithaca", "ithaca");
    shown("/var/lib/ithaca/models/tiny/config.json: line 3", "tiny/config.json: line 3");
    shown("/models/tiny: neither (\"/models/tiny/x\")", "tiny: neither (\"tiny/x\")");
    shown("rank 0: /usr/libexec/ithaca/ithaca-worker: exec", "rank 0: ithaca-worker: exec");
}

static void test_kept(void **state)
{
    static const char *const texts[] = {
        "",
        "/",
        "a/b of 3/4",
        "/var/lib/ithacan/x",
        "/var/lib/ithaca-2/x",
        "/srv/var/lib/ithaca/x",
        "../models/x",
        "/dev/shm has 16 MiB",
        "use /v1/models",
        "/var/lib",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        shown(texts[i], texts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hidden), cmocka_unit_test(test_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
