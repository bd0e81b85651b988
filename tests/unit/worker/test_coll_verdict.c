/* coll_record, coll_verdict: records as ranks leave them (one that died before a call, one that
 * hangs in it, calls that differ, groups, rings that went round), and what is said of them; files
 * that are damaged. */
#include "common/io.h"
#include "common/mem.h"
#include "common/wire.h"
#include "tests/lib/folder.h"
#include "worker/coll.h"
#include "worker/coll_record.h"
#include "worker/coll_verdict.h"

#include <stdio.h>
#include <string.h>

enum { WORLD = 4, ALL = 15 };

static struct coll_record *records[WORLD];

static int setup(void **state)
{
    struct err err;
    if (folder_open(state) != 0)
        return -1;
    for (int rank = 0; rank < WORLD; rank++) {
        if (coll_record_open(folder, rank, &records[rank], &err) != 0)
            return -1;
        coll_record_phase(records[rank], 12, WIRE_PHASE_BACKWARD);
    }
    return 0;
}

static int teardown(void **state)
{
    for (int rank = 0; rank < WORLD; rank++)
        coll_record_close(records[rank]);
    return folder_close(state);
}

static const struct coll_call gather = {.kind = COLL_all_gather, .dtype = DTYPE_BF16, .count = 512};
static const struct coll_call sum = {.kind = COLL_all_reduce, .dtype = DTYPE_I64, .count = 3};
static const struct coll_call exchange = {
    .kind = COLL_all_to_all, .dtype = DTYPE_F32, .count = 10, .parts = {.blocks = 4, .copies = 1}};

enum how_far { ASKED, BEGUN, DONE };

static void play(int rank, uint64_t seq, uint64_t members, const struct coll_call *call,
                 enum how_far how_far)
{
    coll_record_ask(records[rank], seq, members, call);
    if (how_far >= BEGUN)
        coll_record_begun(records[rank], seq);
    if (how_far == DONE)
        coll_record_done(records[rank], seq);
}

static void play_all(uint64_t seq, const struct coll_call *call)
{
    for (int rank = 0; rank < WORLD; rank++)
        play(rank, seq, ALL, call, DONE);
}

static void expect(const char *sentence)
{
    char text[256];
    coll_verdict_tell(folder, WORLD, text, sizeof text);
    assert_string_equal(text, sentence);
}

static void test_nothing_under_way(void **state)
{
    expect("");
    play_all(1, &gather);
    expect("");
    play(0, 2, ALL, &gather, ASKED); /* its turn has not come: nobody is waited for */
    expect("");
}

static void test_one_did_not_come(void **state)
{
    play_all(1, &gather);
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 2)
            play(rank, 2, ALL, &gather, BEGUN);
    expect(
        "collective 2 (all_gather of 512 BF16, step 12, backward): rank 2 had not come; its last "
        "was 1, step 12, backward");
    play(2, 2, ALL, &gather, ASKED); /* queued behind a kernel that does not end */
    expect(
        "collective 2 (all_gather of 512 BF16, step 12, backward): rank 2 had not come; its last "
        "was 2, step 12, backward");
    coll_record_begun(records[2], 2);
    expect(
        "collective 2 (all_gather of 512 BF16, step 12, backward): all its ranks had come, it was "
        "not over");
}

/* Where a rank was is known to the very phase, calls or not. */
static void test_place(void **state)
{
    uint64_t step = 0;
    enum wire_phase phase = WIRE_PHASE_START;
    assert_true(coll_verdict_place(folder, 1, &step, &phase));
    assert_true(step == 12 && phase == WIRE_PHASE_BACKWARD);
    play_all(1, &gather);
    coll_record_phase(records[1], 13, WIRE_PHASE_DATA);
    assert_true(coll_verdict_place(folder, 1, &step, &phase));
    assert_true(step == 13 && phase == WIRE_PHASE_DATA);
    coll_record_phase(records[1], 13, 255); /* scribbled over */
    assert_false(coll_verdict_place(folder, 1, &step, &phase));
    assert_false(coll_verdict_place(folder, WORLD, &step, &phase));
}

static void test_several_did_not_come(void **state)
{
    play(3, 1, ALL, &exchange, BEGUN);
    expect("collective 1 (all_to_all of 40 F32, step 12, backward): ranks 0, 1, 2 had not come");
}

static void test_calls_differ(void **state)
{
    play_all(1, &gather);
    play(0, 2, ALL, &gather, BEGUN);
    play(1, 2, ALL, &sum, BEGUN);
    play(2, 2, ALL, &gather, BEGUN);
    play(3, 2, ALL, &gather, BEGUN);
    expect("collective 2 (all_gather of 512 BF16, step 12, backward): rank 1 calls all_reduce of 3 "
           "I64");
}

/* Ranks 0 and 1 wait for nobody but each other: the trouble is with 3, in a later call of all. */
static void test_groups(void **state)
{
    play(0, 1, 3, &exchange, BEGUN);
    play(1, 1, 3, &exchange, BEGUN);
    play(2, 1, 12, &exchange, DONE);
    play(3, 1, 12, &exchange, DONE);
    expect("collective 1 (all_to_all of 40 F32, step 12, backward): all its ranks had come, it was "
           "not over");
    play(2, 2, 12, &exchange, BEGUN);
    expect("collective 2 (all_to_all of 40 F32, step 12, backward): rank 3 had not come; its last "
           "was 1, step 12, backward");
}

/* A GPU's rank may be far ahead of what its GPU has done; a ring forgets what is long past. */
static void test_rings(void **state)
{
    const uint64_t last = 3 * COLL_RECORD_CALLS + 5;
    for (uint64_t seq = 1; seq <= last; seq++)
        play(0, seq, ALL, &gather, DONE);
    play(1, 9, ALL, &gather, BEGUN); /* long ago; 0 has forgotten it, it has been there */
    for (int rank = 2; rank < WORLD; rank++)
        play(rank, 9, ALL, &gather, DONE);
    expect(
        "collective 9 (all_gather of 512 BF16, step 12, backward): all its ranks had come, it was "
        "not over");
}

static void damage(int rank, const void *bytes, size_t length)
{
    struct err err;
    char path[96];
    (void)snprintf(path, sizeof path, "%s/collectives-%d", folder, rank);
    assert_int_equal(io_write_file(path, bytes, length, 0600, &err), 0);
}

static void test_damaged_files(void **state)
{
    CLEANUP(mem_free_ptr) struct coll_record_file *file = mem_new(1, sizeof *file);
    assert_non_null(file);
    play(0, 1, ALL, &gather, BEGUN);
    damage(1, "short", 5);
    memset(file, 0xff, sizeof *file);
    damage(2, file, sizeof *file); /* not one of ours */
    file->head.magic = COLL_RECORD_MAGIC;
    file->head.rank = 3;
    damage(3, file, sizeof *file); /* every number out of range */
    char text[64];                 /* cut to what there is room for */
    struct buf list;
    buf_init(&list, 8192);
    coll_verdict_tell(folder, WORLD, text, sizeof text);
    assert_memory_equal(text, "collective 1 (all_gather of 512 BF16", 36);
    assert_true(strlen(text) < sizeof text);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        coll_verdict_list(folder, rank, &list);
    assert_non_null(strstr(buf_str(&list), "[1 all_gather of 512 BF16, step 12 backward, asked "));
    buf_done(&list);
}

static void test_list(void **state)
{
    struct buf list;
    buf_init(&list, 8192);
    coll_verdict_list(folder, 0, &list);
    assert_string_equal(buf_str(&list), "");
    for (uint64_t seq = 1; seq <= 2 * COLL_RECORD_CALLS; seq++)
        play(0, seq, ALL, &gather, seq < 2 * COLL_RECORD_CALLS ? DONE : BEGUN);
    coll_verdict_list(folder, 0, &list);
    struct err err;
    assert_int_equal(buf_error(&list, &err), 0); /* all of it fits what the keeper has */
    int lines = 0;
    for (const char *at = buf_str(&list); (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    assert_int_equal(lines, 25);
    assert_null(strstr(buf_str(&list), "[2024 ")); /* 24 calls, the newest last */
    assert_non_null(strstr(buf_str(&list), "[2025 "));
    assert_non_null(strstr(buf_str(&list), "not over]\n"));
    assert_null(strstr(strstr(buf_str(&list), "not over]\n"), "done"));
    buf_done(&list);
    coll_verdict_clear(folder, WORLD);
    char path[96];
    (void)snprintf(path, sizeof path, "%s/collectives-3", folder);
    assert_false(io_exists(path));
    expect("");
}

static void test_no_record(void **state)
{
    struct err err;
    struct coll_record *record = NULL;
    assert_int_equal(coll_record_open("/nowhere", 0, &record, &err), -ERR_NOT_FOUND);
    coll_record_ask(NULL, 1, ALL, &gather);
    coll_record_begun(NULL, 1);
    coll_record_done(NULL, 1);
    coll_record_phase(NULL, 1, 1);
    coll_record_close(NULL);
    for (int n = 1; n <= 2; n++) {
        mem_fault_after(n);
        assert_int_equal(coll_record_open(folder, 0, &record, &err), -ERR_NOMEM);
        mem_fault_after(0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nothing_under_way, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_did_not_come, setup, teardown),
        cmocka_unit_test_setup_teardown(test_place, setup, teardown),
        cmocka_unit_test_setup_teardown(test_several_did_not_come, setup, teardown),
        cmocka_unit_test_setup_teardown(test_calls_differ, setup, teardown),
        cmocka_unit_test_setup_teardown(test_groups, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rings, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_record, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
