/* inventory: slots of the CPU are counted; each GPU has one owner, is given out only when it is
 * empty and well, and says why it is not. */
#include "daemon/inventory.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

static const int64_t gib = 1LL << 30;

struct scene {
    struct inventory inventory;
    struct gpu_report report;
    int64_t now_ms;
};

static void scene_open(struct scene *s)
{
    static const uint32_t numbers[] = {0, 1, 4, 5};
    static const char *const uuids[] = {"GPU-aa01", "GPU-aa02", "GPU-bb03", "GPU-cc04"};
    struct err err;
    *s = (struct scene){.now_ms = 1000, .report = {.taken_ms = 1000, .count = 4}};
    for (size_t i = 0; i < 4; i++) {
        struct gpu_sample *gpu = &s->report.gpus[i];
        *gpu = (struct gpu_sample){.number = numbers[i], .bytes = 141 * gib, .ecc_uncorrected = -1};
        (void)snprintf(gpu->uuid, sizeof gpu->uuid, "%s", uuids[i]);
    }
    inventory_cpu_init(&s->inventory, 2);
    assert_int_equal(inventory_gpu_init(&s->inventory, &s->report, NULL, &err), 0);
}

/* As the GPUs are now, `ms` later. */
static void scene_look(struct scene *s, int64_t ms)
{
    s->now_ms += ms;
    s->report.taken_ms = s->now_ms;
    inventory_update(&s->inventory, &s->report, s->now_ms);
}

static void expect(const struct scene *s, int64_t gpu, enum inventory_state state,
                   const char *reason)
{
    char text[INVENTORY_REASON_BYTES];
    enum inventory_state is = inventory_state(&s->inventory.gpus[gpu], s->now_ms);
    inventory_reason(&s->inventory.gpus[gpu], s->now_ms, text);
    if (is != state)
        fail_msg("it is %s (%s), not %s", inventory_state_name(is), text,
                 inventory_state_name(state));
    assert_string_equal(text, reason);
}

static void test_cpu(void **state)
{
    struct inventory inventory;
    char text[64];
    inventory_cpu_init(&inventory, 0);
    assert_true(inventory.slots >= 2 && inventory.slots >= inventory.cores);
    inventory_cpu_init(&inventory, 7);
    assert_int_equal(inventory_free_slots(&inventory), 7);
    assert_int_equal(inventory_total(&inventory), 7);
    assert_int_equal(inventory_device(&inventory), LAUNCH_CPU);
    inventory_take(&inventory, 5, NULL);
    assert_int_equal(inventory_free_slots(&inventory), 2);
    inventory.cores = 8;
    assert_int_equal(inventory_threads(&inventory, 3), 2);
    assert_int_equal(inventory_threads(&inventory, 64), 1);
    assert_false(inventory_take_again(&inventory, 3, NULL));
    assert_true(inventory_take_again(&inventory, 2, NULL));
    assert_int_equal(inventory_free_slots(&inventory), 0);
    inventory_give(&inventory, 5, NULL);
    assert_int_equal(inventory_free_slots(&inventory), 5);
    inventory_explain(&inventory, text, sizeof text);
    assert_string_equal(text, "");
}

/* Whatever is taken and given in which order. */
static void test_one_owner(void **state)
{
    struct scene s;
    uint32_t first[2], second[1], third[2];
    scene_open(&s);
    assert_int_equal(inventory_device(&s.inventory), LAUNCH_CUDA);
    inventory_take(&s.inventory, 2, first);
    inventory_take(&s.inventory, 1, second);
    assert_int_equal(first[0], 0);
    assert_int_equal(first[1], 1);
    assert_int_equal(second[0], 2);
    assert_int_equal(inventory_lost(&s.inventory, 2, first), 0);
    inventory_give(&s.inventory, 2, first);
    scene_look(&s, 1000);
    assert_false(inventory_take_again(&s.inventory, 1, second)); /* has an owner */
    assert_false(inventory_take_again(&s.inventory, 2, (uint32_t[]){0, 2}));
    assert_false(inventory_take_again(&s.inventory, 1, (uint32_t[]){4})); /* is not there */
    assert_int_equal(inventory_free_slots(&s.inventory), 3);
    assert_true(inventory_take_again(&s.inventory, 1, (uint32_t[]){1}));
    inventory_take(&s.inventory, 2, third);
    assert_int_equal(third[0], 0);
    assert_int_equal(third[1], 3);
    assert_int_equal(inventory_free_slots(&s.inventory), 0);
    assert_int_equal(s.inventory.slots, 4);
    assert_int_equal(s.inventory.taken, 4);
}

/* After a fault: others first, the same where there are too few. */
static void test_elsewhere(void **state)
{
    struct scene s;
    uint32_t gpus[3] = {0, 1, 2};
    scene_open(&s);
    inventory_take_elsewhere(&s.inventory, 2, gpus); /* the first two count */
    assert_int_equal(gpus[0], 2);
    assert_int_equal(gpus[1], 3);
    inventory_give(&s.inventory, 2, gpus);
    scene_look(&s, 1000);
    gpus[0] = 3, gpus[1] = 1, gpus[2] = 0;
    inventory_take_elsewhere(&s.inventory, 3, gpus);
    assert_int_equal(gpus[0], 2);
    assert_int_equal(gpus[1], 0);
    assert_int_equal(gpus[2], 1);
    assert_int_equal(inventory_free_slots(&s.inventory), 1);
    inventory_cpu_init(&s.inventory, 2);
    inventory_take_elsewhere(&s.inventory, 2, gpus);
    assert_int_equal(inventory_free_slots(&s.inventory), 0);
}

static void test_names(void **state)
{
    struct scene s;
    char text[200];
    uint32_t places[2] = {9, 9};
    scene_open(&s);
    inventory_uuids(&s.inventory, 2, (uint32_t[]){3, 0}, text, sizeof text);
    assert_string_equal(text, "GPU-cc04,GPU-aa01");
    assert_true(inventory_places(&s.inventory, text, 2, places));
    assert_int_equal(places[0], 3);
    assert_int_equal(places[1], 0);
    assert_false(inventory_places(&s.inventory, "GPU-cc04", 2, places));
    assert_false(inventory_places(&s.inventory, "GPU-cc04,GPU-aa0", 2, places));
    assert_int_equal(inventory_find(&s.inventory, "GPU-bb03"), 2);
    assert_int_equal(inventory_find(&s.inventory, "GPU-bb"), -1);
}

/* Field case R50: a list of numbers or UUIDs names the GPUs that are ours. */
static void test_visible(void **state)
{
    static const struct {
        const char *visible;
        int64_t count;
        uint32_t first, last;
    } cases[] = {
        {"0,1,4,5", 4, 0, 5},
        {"4", 1, 4, 4},
        {"5,0", 2, 5, 0},
        {"", 0, 0, 0},
        {"-1", 0, 0, 0},
        {"0,7,1", 1, 0, 0},
        {"1,1,0", 1, 1, 1},
        {"GPU-bb", 1, 4, 4},
        {"GPU-cc04,GPU-aa01", 2, 5, 0},
        {"NoDev", 0, 0, 0},
        {"GPU-dd,0", 0, 0, 0},
        {"0,,1", 1, 0, 0},
        {"4,GPU-aa", 1, 4, 4}, /* of two */
        {"0,MIG-aa", 0, 0, 0},
        {"MIG-GPU-aa01/1/0", 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scene s;
        struct err err = {.code = ERR_NONE};
        scene_open(&s);
        inventory_cpu_init(&s.inventory, 2);
        int rc = inventory_gpu_init(&s.inventory, &s.report, cases[i].visible, &err);
        bool slice = strstr(cases[i].visible, "MIG") != NULL;
        assert_int_equal(rc, cases[i].count > 0 ? 0 : -ERR_UNSUPPORTED);
        if (rc == 0 && s.inventory.gpu_count != cases[i].count)
            fail_msg("\"%s\": %d GPUs", cases[i].visible, (int)s.inventory.gpu_count);
        if (rc == 0) {
            assert_int_equal(s.inventory.gpus[0].seen.number, cases[i].first);
            assert_int_equal(s.inventory.gpus[cases[i].count - 1].seen.number, cases[i].last);
            continue;
        }
        assert_true((strstr(err.text, "whole GPUs") != NULL) == slice);
    }
}

/* R50: others' GPUs are left alone until they are empty. */
static void test_foreign(void **state)
{
    struct scene s;
    char text[200];
    uint32_t gpus[2];
    scene_open(&s);
    s.report.gpus[0].used_bytes = 100 << 20; /* less than a program takes */
    s.report.gpus[1].used_bytes = 12 * gib;
    s.report.gpus[2].processes[0].pid = 17;
    s.report.gpus[2].processes[1].pid = 18;
    s.report.gpus[2].process_count = 2;
    scene_look(&s, 1000);
    expect(&s, 0, INVENTORY_FREE, "");
    expect(&s, 1, INVENTORY_FOREIGN, "used by others: 12.0 GiB of its memory are in use");
    expect(&s, 2, INVENTORY_FOREIGN,
           "used by others: 0.0 GiB of its memory are in use, by process 17, 18");
    assert_int_equal(s.inventory.slots, 2);
    assert_int_equal(inventory_total(&s.inventory), 4);
    inventory_explain(&s.inventory, text, sizeof text);
    assert_string_equal(
        text, "2 of 4 GPUs are not given out: GPU 1 used by others: 12.0 GiB of its "
              "memory are in use; GPU 4 used by others: 0.0 GiB of its memory are in use, "
              "by process 17, 18");
    inventory_take(&s.inventory, 2, gpus);
    assert_int_equal(gpus[0], 0);
    assert_int_equal(gpus[1], 3);
    s.report.gpus[1].used_bytes = 0;
    scene_look(&s, 1000);
    expect(&s, 1, INVENTORY_FREE, "");
    s.report.gpus[0].used_bytes = 100 * gib; /* our own job's */
    scene_look(&s, 1000);
    expect(&s, 0, INVENTORY_TAKEN, "");
    assert_int_equal(inventory_free_slots(&s.inventory), 1);
}

/* A GPU that a job gives back is given out when a look has found it empty, not before. */
static void test_clean(void **state)
{
    struct scene s;
    uint32_t gpus[4];
    scene_open(&s);
    inventory_take(&s.inventory, 4, gpus);
    s.report.gpus[0].used_bytes = 100 * gib;
    scene_look(&s, 1000);
    inventory_give(&s.inventory, 4, gpus);
    assert_int_equal(inventory_free_slots(&s.inventory), 0);
    expect(&s, 3, INVENTORY_CHECKING, "is checked after a job");
    scene_look(&s, 1000);
    assert_int_equal(inventory_free_slots(&s.inventory), 3);
    expect(&s, 0, INVENTORY_CHECKING, "is checked after a job");
    assert_int_equal(s.inventory.slots, 4); /* soon */
    scene_look(&s, INVENTORY_CLEAN_MS);
    expect(&s, 0, INVENTORY_CHECKING, "is checked after a job");
    scene_look(&s, 1);
    expect(&s, 0, INVENTORY_UNCLEAN, "not clean after a job: 100.0 GiB of its memory are in use");
    assert_int_equal(inventory_free_slots(&s.inventory), 3);
    s.report.gpus[0].used_bytes = 0;
    scene_look(&s, 1000);
    expect(&s, 0, INVENTORY_FREE, "");
}

static void test_sick(void **state)
{
    struct scene s;
    char why[INVENTORY_WHY_BYTES], text[64];
    uint32_t gpus[3];
    scene_open(&s);
    s.report.gpus[0].ecc_uncorrected = 3; /* were not told before: no news */
    scene_look(&s, 1000);
    assert_false(inventory_is_sick(&s.inventory.gpus[0], why));
    inventory_set_aside(&s.inventory, 0, "");
    s.report.gpus[0].ecc_uncorrected = 4;
    scene_look(&s, 1000);
    assert_true(inventory_is_sick(&s.inventory.gpus[0], why));
    assert_string_equal(why, "1 uncorrectable ECC error");
    inventory_set_aside(&s.inventory, 0, why);
    expect(&s, 0, INVENTORY_SET_ASIDE, "set aside: 1 uncorrectable ECC error");
    assert_int_equal(s.inventory.slots, 3);
    assert_int_equal(inventory_lost(&s.inventory, 3, (uint32_t[]){1, 0, 2}), 1);
    inventory_set_aside(&s.inventory, 0, ""); /* it was reset */
    assert_false(inventory_is_sick(&s.inventory.gpus[0], why));
    expect(&s, 0, INVENTORY_FREE, "");

    s.report.count = 3; /* the last one has gone */
    scene_look(&s, 1000);
    assert_int_equal(inventory_free_slots(&s.inventory), 3);
    assert_false(inventory_is_sick(&s.inventory.gpus[3], why)); /* once is nothing */
    scene_look(&s, 1000);
    scene_look(&s, 1000);
    assert_true(inventory_is_sick(&s.inventory.gpus[3], why));
    assert_non_null(strstr(why, "fallen off the bus"));
    inventory_take(&s.inventory, 3, gpus);
    inventory_set_drained(&s.inventory, 1, true); /* its job goes on */
    expect(&s, 1, INVENTORY_TAKEN, "drained");
    inventory_give(&s.inventory, 3, gpus);
    scene_look(&s, 1000);
    expect(&s, 1, INVENTORY_DRAINED, "drained");
    assert_int_equal(inventory_free_slots(&s.inventory), 2);
    s.now_ms += INVENTORY_BLIND_MS + 1;
    inventory_update(&s.inventory, NULL, s.now_ms);
    assert_true(s.inventory.blind);
    assert_int_equal(inventory_free_slots(&s.inventory), 0);
    inventory_explain(&s.inventory, text, sizeof text);
    assert_string_equal(text, "the GPUs' driver does not answer");
    scene_look(&s, 1);
    assert_false(s.inventory.blind);
    inventory_explain(&s.inventory, text, sizeof text); /* cut, not beyond its end */
    assert_int_equal(strlen(text), sizeof text - 1);
}

/* Each once, in order, also one that repeats; of very many the newest. */
static void test_xids(void **state)
{
    struct scene s;
    uint32_t xid = 0;
    scene_open(&s);
    struct inventory_gpu *gpu = &s.inventory.gpus[1];
    assert_false(inventory_next_xid(gpu, &xid));
    gpu_sample_xid(&s.report.gpus[1], 31);
    gpu_sample_xid(&s.report.gpus[1], 31);
    scene_look(&s, 1000);
    scene_look(&s, 1000);
    assert_true(inventory_next_xid(gpu, &xid));
    assert_int_equal(xid, 31);
    assert_true(inventory_next_xid(gpu, &xid));
    assert_false(inventory_next_xid(gpu, &xid));
    for (uint32_t i = 0; i < 100; i++)
        gpu_sample_xid(&s.report.gpus[1], i);
    scene_look(&s, 1000);
    for (uint32_t i = 100 - GPU_XIDS_MAX; i < 100; i++) {
        assert_true(inventory_next_xid(gpu, &xid));
        assert_int_equal(xid, i);
    }
    assert_false(inventory_next_xid(gpu, &xid));
    assert_int_equal(gpu->seen.xid_count, 102);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),       cmocka_unit_test(test_one_owner),
        cmocka_unit_test(test_elsewhere), cmocka_unit_test(test_names),
        cmocka_unit_test(test_visible),   cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_clean),     cmocka_unit_test(test_sick),
        cmocka_unit_test(test_xids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
