/* prune_choose: what goes of a survey, under a policy, a budget, and the daemon's retention. */
#include "common/mem.h"
#include "daemon/prune.h"
#include "daemon/retention.h"
#include "daemon/settings.h"
#include "tests/lib/cmocka.h"

#include <string.h>

enum { DONE, FAILED, RUNNING, FILE_FREE, FILE_USED, THINGS };
static struct storage_thing things[THINGS] = {
    [DONE] = {.id = "ftjob-done", .owner = "ann", .is_job = true, .used_ms = 1000},
    [FAILED] =
        {.id = "ftjob-failed", .owner = "ben", .is_job = true, .may_go_on = true, .used_ms = 2000},
    [RUNNING] = {.id = "ftjob-running", .owner = "ann", .is_job = true, .is_needed = true},
    [FILE_FREE] = {.id = "file-free", .owner = "ann", .used_ms = 3000},
    [FILE_USED] = {.id = "file-used", .owner = "ann", .used_ms = 500, .is_needed = true},
};
/* Each item has another power of two of bytes, so a sum says which. */
static struct storage_item items[] = {
    {.kind = STORAGE_CHECKPOINTS, .thing = DONE, .step = 1, .bytes = 1 << 0},
    {.kind = STORAGE_MODELS, .thing = DONE, .bytes = 1 << 1},
    {.kind = STORAGE_LOGS, .thing = DONE, .bytes = 1 << 2},
    {.kind = STORAGE_SHARDS, .thing = DONE, .bytes = 1 << 3},
    {.kind = STORAGE_CHECKPOINTS, .thing = DONE, .step = 20, .bytes = 1 << 4},
    {.kind = STORAGE_SHARDS, .thing = FAILED, .bytes = 1 << 5},
    {.kind = STORAGE_CHECKPOINTS, .thing = FAILED, .step = 30, .is_valid = true, .bytes = 1 << 6},
    {.kind = STORAGE_CHECKPOINTS, .thing = FAILED, .step = 50, .bytes = 1 << 7}, /* damaged */
    {.kind = STORAGE_CHECKPOINTS, .thing = FAILED, .step = 40, .is_valid = true, .bytes = 1 << 8},
    {.kind = STORAGE_CHECKPOINTS, .thing = FAILED, .step = -60, .bytes = 1 << 9},
    {.kind = STORAGE_CHECKPOINTS, .thing = RUNNING, .step = 5, .bytes = 1 << 10},
    {.kind = STORAGE_LOGS, .thing = RUNNING, .bytes = 1 << 11},
    {.kind = STORAGE_FILES, .thing = FILE_FREE, .bytes = 1 << 12},
    {.kind = STORAGE_FILES, .thing = FILE_USED, .bytes = 1 << 13},
    {.kind = STORAGE_SHARDS, .thing = STORAGE_NOBODY, .bytes = 1 << 14},
    {.kind = STORAGE_OTHER, .thing = STORAGE_NOBODY, .bytes = 1 << 15},
};
enum { ITEMS = sizeof items / sizeof items[0] };
static const struct storage_survey survey = {
    .things = things, .thing_count = THINGS, .items = items, .item_count = ITEMS};

enum {
    DONE_ALL = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 4,
    FAILED_SPARE = 1 << 6 | 1 << 7 | 1 << 9, /* not step 40, nor the shards it needs */
    CACHE = 1 << 14
};

static int64_t chosen_bytes(const bool chosen[])
{
    int64_t bytes = 0;
    for (size_t i = 0; i < ITEMS; i++)
        bytes += chosen[i] ? items[i].bytes : 0;
    return bytes;
}

/* A folder is listed in any order: the last item first, and back again by a second call. */
static void turn_items(void)
{
    for (size_t i = 0, k = ITEMS - 1; i < k; i++, k--) {
        struct storage_item item = items[i];
        items[i] = items[k];
        items[k] = item;
    }
}

static void expect_bytes(const bool chosen[], int64_t bytes)
{
    int64_t got = chosen_bytes(chosen);
    if (got != bytes)
        fail_msg("chosen 0x%llx, not 0x%llx", (unsigned long long)got, (unsigned long long)bytes);
}

static void expect_choice(const struct prune_policy *policy, int64_t bytes)
{
    bool chosen[ITEMS];
    for (int turned = 0; turned < 2; turned++, turn_items()) {
        prune_choose(&survey, policy, chosen);
        expect_bytes(chosen, bytes);
    }
}

static void test_defaults(void **state)
{
    struct prune_policy policy;
    prune_policy_init(&policy, "");
    expect_choice(&policy, DONE_ALL | FAILED_SPARE | CACHE);
    prune_policy_init(&policy, "ann");
    expect_choice(&policy, DONE_ALL);
    prune_policy_init(&policy, "eve");
    expect_choice(&policy, 0);
    prune_policy_init(&policy, "");
    memset(policy.kinds, true, sizeof policy.kinds);
    expect_choice(&policy, DONE_ALL | FAILED_SPARE | CACHE | 1 << 12); /* the model never goes */
}

static void test_age_and_keep(void **state)
{
    struct prune_policy policy;
    prune_policy_init(&policy, "");
    policy.before_ms = 2000; /* the job that failed ended just then */
    expect_choice(&policy, DONE_ALL | CACHE);
    policy.before_ms = 1000;
    expect_choice(&policy, CACHE);
    prune_policy_init(&policy, "");
    policy.keep = 1;
    expect_choice(&policy, (DONE_ALL & ~(1 << 4)) | FAILED_SPARE | CACHE);
    policy.keep = 2; /* of the job that failed, the two that can be read */
    expect_choice(&policy, 1 << 2 | 1 << 3 | 1 << 7 | 1 << 9 | CACHE);
    policy.keep = 0; /* no job is named: the last one that is needed stays */
    expect_choice(&policy, DONE_ALL | FAILED_SPARE | CACHE);
}

/* By its name, and only then, a job that failed loses all. */
static void test_named_job(void **state)
{
    struct prune_policy policy;
    prune_policy_init(&policy, "");
    policy.job = "ftjob-failed";
    expect_choice(&policy, FAILED_SPARE);
    policy.keep = 0;
    expect_choice(&policy, FAILED_SPARE | 1 << 8 | 1 << 5);
    policy.kinds[STORAGE_CHECKPOINTS] = false; /* the checkpoint stays, so the shards do */
    expect_choice(&policy, 0);
    prune_policy_init(&policy, "ann"); /* not hers */
    policy.job = "ftjob-failed";
    policy.keep = 0;
    expect_choice(&policy, 0);
    prune_policy_init(&policy, "");
    policy.job = "ftjob-running";
    policy.keep = 0;
    expect_choice(&policy, 0);
}

static void test_trim(void **state)
{
    struct err err;
    struct prune_policy policy;
    bool chosen[ITEMS];
    prune_policy_init(&policy, "");
    const struct {
        enum storage_kind kind;
        int64_t bytes_max, goes;
    } cases[] = {
        /* 2001 bytes are there; oldest job first, of a job the oldest step */
        {STORAGE_CHECKPOINTS, .bytes_max = 4096, .goes = 0},
        {STORAGE_CHECKPOINTS, .bytes_max = 2001, .goes = 0},
        {STORAGE_CHECKPOINTS, .bytes_max = 2000, .goes = 1 << 0},
        {STORAGE_CHECKPOINTS, .bytes_max = 1999, .goes = 1 << 0 | 1 << 4},
        {STORAGE_CHECKPOINTS, .bytes_max = 1984, .goes = 1 << 0 | 1 << 4},
        {STORAGE_CHECKPOINTS, .bytes_max = 1983, .goes = 1 << 0 | 1 << 4 | 1 << 9},
        {STORAGE_CHECKPOINTS, .bytes_max = 1, .goes = 1 << 0 | 1 << 4 | FAILED_SPARE},
        /* 16424 bytes: the cache first, then a job's; what is needed stays */
        {STORAGE_SHARDS, .bytes_max = 16423, .goes = CACHE},
        {STORAGE_SHARDS, .bytes_max = 39, .goes = CACHE | 1 << 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memset(policy.kinds, false, sizeof policy.kinds);
        policy.kinds[cases[i].kind] = true;
        for (int turned = 0; turned < 2; turned++, turn_items()) {
            prune_choose(&survey, &policy, chosen);
            assert_int_equal(prune_trim(&survey, cases[i].kind, cases[i].bytes_max, chosen, &err),
                             0);
            expect_bytes(chosen, cases[i].goes);
        }
    }
}

static void test_retention(void **state)
{
    const int64_t day_ms = 86400000;
    struct err err;
    bool chosen[ITEMS];
    struct settings settings = {.retain_logs_days = 0};
    assert_false(retention_is_on(&settings));
    assert_int_equal(retention_choose(&survey, &settings, 100 * day_ms, chosen, &err), 0);
    assert_int_equal(chosen_bytes(chosen), 0); /* off: nothing goes, however old */
    settings.retain_logs_days = 99;
    settings.retain_files_days = 100;
    assert_true(retention_is_on(&settings));
    assert_int_equal(retention_choose(&survey, &settings, 100 * day_ms, chosen, &err), 0);
    assert_int_equal(chosen_bytes(chosen), 1 << 2);
    for (int64_t now_ms = 99 * day_ms + 1000; now_ms < 99 * day_ms + 1002; now_ms++) {
        assert_int_equal(retention_choose(&survey, &settings, now_ms, chosen, &err), 0);
        expect_bytes(chosen, now_ms > 99 * day_ms + 1000 ? 1 << 2 : 0); /* to the millisecond */
    }
    settings = (struct settings){.retain_checkpoints_bytes = 1984, .retain_shards_days = 1};
    assert_int_equal(retention_choose(&survey, &settings, 100 * day_ms, chosen, &err), 0);
    assert_int_equal(chosen_bytes(chosen), 1 << 0 | 1 << 4 | 1 << 3 | CACHE);
}

/* The list has what is chosen, in its order, with names. */
static void test_list(void **state)
{
    struct err err;
    bool chosen[ITEMS] = {[0] = true, [9] = true, [14] = true};
    struct prune_target *targets = NULL;
    size_t count = 0;
    assert_int_equal(prune_list(&survey, chosen, &targets, &count, &err), 0);
    assert_int_equal(count, 3);
    assert_string_equal(targets[0].id, "ftjob-done");
    assert_true(targets[0].is_job);
    assert_string_equal(targets[1].id, "ftjob-failed");
    assert_int_equal(targets[1].step, -60);
    assert_string_equal(targets[2].id, "");
    assert_false(targets[2].is_job);
    mem_free(targets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),  cmocka_unit_test(test_age_and_keep),
        cmocka_unit_test(test_named_job), cmocka_unit_test(test_trim),
        cmocka_unit_test(test_retention), cmocka_unit_test(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
