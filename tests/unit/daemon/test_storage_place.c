/* storage_place: paths of the data folder and where they count. */
#include "daemon/storage.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static void expect_place(const char *path, enum storage_kind kind, const char *id, int64_t step)
{
    struct storage_place place;
    storage_place(path, &place);
    if (place.kind != kind || strcmp(place.id, id) != 0 || place.step != step)
        fail_msg("%s: %s of \"%s\", step %lld", path, storage_kind_name(place.kind), place.id,
                 (long long)place.step);
    assert_int_equal(place.is_job, strncmp(id, "ftjob-", 6) == 0);
}

static void test_places(void **state)
{
    expect_place("", STORAGE_OTHER, "", 0);
    expect_place("jobs", STORAGE_OTHER, "", 0);
    expect_place("jobs/ftjob-a", STORAGE_OTHER, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/rehearsal.json", STORAGE_OTHER, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/model/adapter/x", STORAGE_MODELS, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/base/config.json", STORAGE_BASE_MODELS, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/models", STORAGE_OTHER, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/model.tmp/x", STORAGE_OTHER, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/checkpoints", STORAGE_OTHER, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/checkpoints/step-12", STORAGE_CHECKPOINTS, "ftjob-a", 12);
    expect_place("jobs/ftjob-a/checkpoints/step-12/rank-0.ckpt", STORAGE_CHECKPOINTS, "ftjob-a",
                 12);
    expect_place("jobs/ftjob-a/checkpoints/step-12.tmp/rank-0.ckpt", STORAGE_CHECKPOINTS, "ftjob-a",
                 -12);
    expect_place("jobs/ftjob-a/checkpoints/step-12x", STORAGE_OTHER, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/checkpoints/step-012", STORAGE_OTHER, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/attempt-3/rank-0.log", STORAGE_LOGS, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/profile/rank-0", STORAGE_LOGS, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/profiles", STORAGE_OTHER, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/tokens/train.tok", STORAGE_SHARDS, "ftjob-a", 0);
    expect_place("jobs/ftjob-a/tokens/report.json", STORAGE_OTHER, "ftjob-a", 0);
    expect_place("files", STORAGE_OTHER, "", 0);
    expect_place("files/file-x", STORAGE_FILES, "file-x", 0);
    expect_place("uploads/upload_1/part_1", STORAGE_UPLOADS, "upload_1", 0);
    expect_place("cache", STORAGE_OTHER, "", 0);
    expect_place("cache/00ff.tok", STORAGE_SHARDS, "", 0);
    expect_place("exports/ftckpt_a_1/config.json", STORAGE_EXPORTS, "", 0);
    expect_place("models/a/b/config.json", STORAGE_BASE_MODELS, "", 0);
    expect_place("trash/ftjob-a/model/x", STORAGE_TRASH, "", 0);
    expect_place("jobs.db-wal", STORAGE_DATABASES, "", 0);
    expect_place("metrics.db.v1", STORAGE_DATABASES, "", 0);
    expect_place("ithacad.log", STORAGE_OTHER, "", 0);
}

static void test_kinds(void **state)
{
    for (int kind = 0; kind < STORAGE_KIND_COUNT; kind++)
        assert_int_equal(storage_kind_parse(storage_kind_name((enum storage_kind)kind)), kind);
    assert_int_equal(storage_kind_parse("checkpoint"), STORAGE_KIND_COUNT);
    assert_int_equal(storage_kind_removed(STORAGE_MODELS), STORAGE_REMOVED_NEVER);
    assert_int_equal(storage_kind_removed(STORAGE_FILES), STORAGE_REMOVED_NAMED);
    assert_int_equal(storage_kind_removed(STORAGE_LOGS), STORAGE_REMOVED_DEFAULT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
