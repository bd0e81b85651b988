/* offload: a set that layers use in turn, and their own places: what goes out comes back, by rows
 * or whole, and not when the set has it; tiles; the account; failing allocations.
 * tests/dist/test_offload_parity runs it under training. */
#include "worker/offload.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/testing.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, ROWS = 6, WIDTH = 5, BYTES = ROWS * WIDTH * (int)sizeof(float) };

static struct device *open_device(void)
{
    struct err err = {0};
    struct device *device = NULL;
    assert_int_equal(device_cpu_open(1, &device, &err), 0);
    return device;
}

static const struct offload_options options = {
    .layers = LAYERS, .tokens_max = ROWS, .x_row_bytes = WIDTH * (int)sizeof(float), .away = true};

struct scene {
    struct device *device;
    struct offload offload;
    float set[2][ROWS * WIDTH];          /* of O and LSE */
    float away[2][LAYERS][ROWS * WIDTH]; /* layer 2 keeps its own at hand */
};

static void open_offload(struct scene *s, struct err *err)
{
    static const enum offload_tensor_id ids[] = {OFFLOAD_O, OFFLOAD_LSE};
    assert_int_equal(offload_init(&s->offload, &options, s->device, err), 0);
    for (int t = 0; t < 2; t++) {
        struct offload_tensor *tensor = &s->offload.tensors[ids[t]];
        tensor->work = s->set[t];
        tensor->row_bytes = BYTES / ROWS;
        for (int l = 0; l < LAYERS - 1; l++)
            tensor->places[l] = (struct offload_place){.away = true, .memory = s->away[t][l]};
    }
}

static void open_scene(struct scene *s, struct err *err)
{
    *s = (struct scene){.device = open_device()};
    open_offload(s, err);
}

static void close_scene(struct scene *s)
{
    offload_done(&s->offload);
    s->device->dev->close(s->device);
    assert_int_equal(mem_live(), 0);
}

static void fill(struct scene *s, float value)
{
    for (int i = 0; i < ROWS * WIDTH; i++)
        s->set[0][i] = s->set[1][i] = value + (float)i;
}

static bool row_is(const float *set, int row, float value)
{
    for (int i = 0; i < WIDTH; i++)
        if (set[row * WIDTH + i] != value + (float)(row * WIDTH + i))
            return false;
    return true;
}

static void test_out_and_in(void **state)
{
    static struct scene s;
    struct err err = {0};
    open_scene(&s, &err);
    struct offload *o = &s.offload;
    const struct offload_span all = {.row = 0, .rows = ROWS - 1, .all = ROWS - 1};
    for (int l = 0; l < LAYERS; l++) {
        assert_int_equal(offload_vacate(o, OFFLOAD_ATTENTION, NULL, &err), 0);
        if (l < LAYERS - 1)
            fill(&s, (float)(100 * l));
        assert_int_equal(offload_ready(o, OFFLOAD_ATTENTION, NULL, &err), 0);
        assert_int_equal(offload_out(o, OFFLOAD_ATTENTION, l, &all, NULL, &err), 0);
    }
    assert_false(offload_is_away(o, OFFLOAD_O, LAYERS - 1));
    assert_int_equal(offload_account(o),
                     2 * 2 * (ROWS - 1) * WIDTH * (int)sizeof(float)); /* no unused row */
    assert_int_equal(offload_account(o), 0);
    /* A rank whose turn has no sequence. */
    const struct offload_span none = {0};
    assert_int_equal(offload_in(o, OFFLOAD_ATTENTION, 1, &none, NULL, &err), 0);
    /* Layer 2's set is its own: nothing comes. */
    fill(&s, 7000);
    assert_int_equal(offload_in(o, OFFLOAD_ATTENTION, 2, &all, NULL, &err), 0);
    assert_true(row_is(s.set[0], 0, 7000));
    /* Layer 0's: O by rows, LSE with the first of them. */
    const struct offload_span first = {.row = 0, .rows = 2, .all = ROWS - 1};
    const struct offload_span last = {.row = 2, .rows = ROWS - 3, .all = ROWS - 1};
    assert_int_equal(offload_in(o, OFFLOAD_ATTENTION, 0, &first, NULL, &err), 0);
    assert_true(row_is(s.set[0], 1, 0) && row_is(s.set[0], 2, 7000) && row_is(s.set[1], 4, 0));
    assert_int_equal(offload_in(o, OFFLOAD_ATTENTION, 0, &last, NULL, &err), 0);
    assert_true(row_is(s.set[0], 2, 0) && row_is(s.set[0], ROWS - 2, 0));
    assert_true(row_is(s.set[0], ROWS - 1, 7000)); /* that row was not used */
    assert_int_equal(offload_arrive(o, &all, NULL, &err), 0);
    /* The set has them: they do not come again; once given up they do. */
    fill(&s, 8000);
    assert_int_equal(offload_in(o, OFFLOAD_ATTENTION, 0, &all, NULL, &err), 0);
    assert_true(row_is(s.set[0], 0, 8000));
    assert_int_equal(offload_vacate(o, OFFLOAD_ATTENTION, NULL, &err), 0);
    assert_int_equal(offload_in(o, OFFLOAD_ATTENTION, 0, &all, NULL, &err), 0);
    assert_true(row_is(s.set[0], 0, 0));
    assert_int_equal(offload_in(o, OFFLOAD_ATTENTION, 1, &all, NULL, &err), 0);
    assert_true(row_is(s.set[0], 0, 100) && row_is(s.set[1], 3, 100));
    close_scene(&s);
}

/* A device whose copies are done no sooner than somebody waits for an event behind them: as late as
 * a GPU may do them. */
struct event {
    int after; /* copies */
};

static struct lazy {
    struct {
        void *to;
        const void *from;
        size_t bytes;
    } copies[64];
    int issued, done;
} lazy;

static int lazy_copy(struct device *device, struct stream *stream, void *to, const void *from,
                     size_t bytes, struct err *err)
{
    (void)device, (void)stream, (void)err;
    assert_in_range(lazy.issued, 0, 63);
    lazy.copies[lazy.issued].to = to;
    lazy.copies[lazy.issued].from = from;
    lazy.copies[lazy.issued++].bytes = bytes;
    return 0;
}

static int lazy_event_new(struct device *device, struct event **ret, struct err *err)
{
    (void)device, (void)err;
    *ret = calloc(1, sizeof **ret);
    assert_non_null(*ret);
    return 0;
}

static void lazy_event_free(struct device *device, struct event *event)
{
    free(event);
}

static int lazy_event_record(struct device *device, struct event *event, struct stream *stream,
                             struct err *err)
{
    (void)device, (void)stream, (void)err;
    event->after = lazy.issued;
    return 0;
}

static int lazy_event_wait(struct device *device, struct event *event, struct stream *stream,
                           struct err *err)
{
    (void)device, (void)err;
    for (; stream == NULL && lazy.done < event->after; lazy.done++)
        memcpy(lazy.copies[lazy.done].to, lazy.copies[lazy.done].from,
               lazy.copies[lazy.done].bytes);
    return 0;
}

/* Tile by tile in and out: what is waited for is there, what is not is not waited for. */
static void test_tiles(void **state)
{
    static struct scene s;
    struct err err = {0};
    open_scene(&s, &err);
    struct offload *o = &s.offload;
    const struct device_ops *ops = s.device->dev;
    struct device_ops late = *ops;
    offload_done(o);
    late.copy = lazy_copy;
    late.event_new = lazy_event_new;
    late.event_free = lazy_event_free;
    late.event_record = lazy_event_record;
    late.event_wait = lazy_event_wait;
    s.device->dev = &late;
    open_offload(&s, &err);
    struct offload_span tiles[ROWS];
    for (int t = 0; t < ROWS; t++)
        tiles[t] = (struct offload_span){.row = t, .rows = 1, .all = ROWS, .tile = 1};
    /* Out: a tile is complete, the next is not yet. */
    fill(&s, 100);
    for (int t = 0; t < ROWS; t++) {
        assert_int_equal(offload_ready(o, OFFLOAD_ATTENTION, NULL, &err), 0);
        assert_int_equal(offload_out(o, OFFLOAD_ATTENTION, 0, &tiles[t], NULL, &err), 0);
    }
    assert_int_equal(lazy.issued, ROWS + 1); /* LSE with the last */
    assert_int_equal(lazy.done, 0);
    assert_int_equal(offload_vacate(o, OFFLOAD_ATTENTION, NULL, &err), 0);
    assert_int_equal(lazy.done, lazy.issued);
    assert_true(row_is(s.away[0][0], ROWS - 1, 100) && row_is(s.away[1][0], ROWS - 1, 100));
    /* In. */
    fill(&s, 7000);
    for (int t = 0; t < ROWS; t++)
        assert_int_equal(offload_in(o, OFFLOAD_ATTENTION, 0, &tiles[t], NULL, &err), 0);
    for (int t = 0; t < ROWS; t++) {
        assert_int_equal(offload_arrive(o, &tiles[t], NULL, &err), 0);
        assert_true(row_is(s.set[0], t, 100) && row_is(s.set[1], ROWS - 1, 100));
        assert_true(t == ROWS - 1 || row_is(s.set[0], t + 1, 7000));
    }
    offload_done(o);
    s.device->dev = ops;
    close_scene(&s);
}

static void test_no_memory(void **state)
{
    struct device *device = open_device();
    int64_t live = mem_live(), n = 1;
    for (;; n++) {
        struct err err = {0};
        struct offload offload;
        mem_fault_after(n);
        int rc = offload_init(&offload, &options, device, &err);
        mem_fault_after(0);
        offload_done(&offload); /* half open, too */
        assert_int_equal(mem_live(), live);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
    }
    assert_true(n > OFFLOAD_TENSORS);
    device->dev->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_out_and_in, testing_free),
        cmocka_unit_test_teardown(test_tiles, testing_free),
        cmocka_unit_test_teardown(test_no_memory, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
