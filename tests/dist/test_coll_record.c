/* Records of ranks that die, stop and differ in the middle of collectives: what is said of them
 * when they are gone names the collective and the right rank. */
#include "common/io.h"
#include "tests/dist/scene.h"
#include "tests/lib/folder.h"
#include "worker/coll_record.h"
#include "worker/coll_verdict.h"

enum { BEFORE = 5 /* calls that all of them make */ };

static int (*trouble)(struct coll *coll, struct err *err); /* what comes after these */

static int play(const struct scene *scene, struct coll *coll)
{
    struct err err = {0};
    struct coll_record *record = NULL;
    float sum[4] = {0};
    EXPECT(coll_record_open(folder, coll->rank, &record, &err) == 0);
    coll->record = record;
    coll_record_phase(record, 3, 4);
    for (int call = 0; call < BEFORE; call++)
        EXPECT(coll_all_reduce(coll, NULL, sum, 4, DTYPE_F32, &err) == 0);
    int rc = trouble(coll, &err);
    coll_record_close(record);
    return rc;
}

static void expect(int world, int victim, int (*what)(struct coll *coll, struct err *err),
                   const char *sentence)
{
    char text[256];
    trouble = what;
    scene_play(
        &(struct scene){.world = world, .timeout_ms = 20000, .victim = victim, .play = play});
    coll_verdict_tell(folder, (uint32_t)world, text, sizeof text);
    assert_string_equal(text, sentence);
}

static int end_well(struct coll *coll, struct err *err)
{
    return coll_barrier(coll, err);
}

/* One more element than the others. */
static int differ(struct coll *coll, struct err *err)
{
    float sum[4] = {0};
    int rc = coll_all_reduce(coll, NULL, sum, coll->rank == 1 ? 3 : 2, DTYPE_F32, err);
    return rc == -ERR_INTERNAL || rc == -ERR_COLL_ABORTED ? 0 : 1;
}

/* Comes to a call and is gone before the others are there: no deadline need pass. */
static int come(struct coll *coll, enum coll_kind kind, struct err *err)
{
    static int64_t send, recv[LIMIT_RANKS];
    const struct coll_call call = {
        .kind = kind, .dtype = DTYPE_I64, .count = 1, .send = &send, .recv = recv};
    return coll_start(coll, NULL, &call, err);
}

static int stop(struct coll *coll, struct err *err)
{
    if (coll->rank == 2)
        (void)raise(SIGSTOP);
    return come(coll, COLL_all_gather, err);
}

/* Rank 1 has come to the first of two, and dies in it. */
static int die_in_a_call(struct coll *coll, struct err *err)
{
    int rc = come(coll, COLL_all_gather, err);
    if (coll->rank == 1)
        (void)raise(SIGKILL);
    if (rc == 0)
        rc = coll_wait(coll, NULL, err);
    return rc == 0 ? come(coll, COLL_barrier, err) : rc;
}

/* Ranks 0 and 1 go on without the other two. */
static int stop_in_a_group(struct coll *coll, struct err *err)
{
    struct coll *pair = NULL;
    int rc = coll->ops->split(coll, coll->rank / 2, &pair, err);
    if (coll->rank == 3)
        (void)raise(SIGSTOP);
    if (rc == 0)
        rc = come(pair, COLL_all_gather, err);
    return rc == 0 && coll->rank < 2 ? coll_wait(pair, NULL, err) : rc;
}

static void test_ranks(void **state)
{
    expect(3, -1, end_well, "");
    expect(
        3, -1, differ,
        "collective 6 (all_reduce of 2 F32, step 3, backward): rank 1 calls all_reduce of 3 F32");
    expect(3, 2, stop,
           "collective 6 (all_gather of 1 I64, step 3, backward): rank 2 had not come; its last "
           "was 5, "
           "step 3, backward");
    expect(
        2, 1, die_in_a_call,
        "collective 7 (barrier of 1 I64, step 3, backward): rank 1 had not come; its last was 6, "
        "step 3, backward");
    expect(
        4, 3, stop_in_a_group,
        "collective 7 (all_gather of 1 I64, step 3, backward): rank 3 had not come; its last was "
        "6, step 3, backward");
}

int main(void)
{
    (void)snprintf(scene_name, sizeof scene_name, "/ithaca-test-record-%ld", (long)getpid());
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks)};
    return cmocka_run_group_tests(tests, folder_open, folder_close);
}
