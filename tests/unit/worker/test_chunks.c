/* chunks: streams run in any order that their events allow, and the result is always that of one
 * thing after another. The device here does nothing at the call: each stream has a list of what it
 * was given, and the lists are worked off in a random order, a wait holding its stream until its
 * event has come. Without any one kind of wait some order must compute something else. */
#include "worker/chunks.h"

#include "common/mem.h"
#include "common/must.h"
#include "common/rng.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/testing.h"

#include <inttypes.h>
#include <string.h>

/* ---- a device that puts everything off ---- */

enum { QUEUE_MAX = 4096, STREAMS_MAX = 4, ELEMENTS = 8 };

struct task;
struct event {
    const struct task *record; /* the last; NULL: none */
    int64_t run;               /* in which it was made: what is older has come by */
};

struct task {
    enum { TASK_COPY, TASK_RECORD, TASK_WAIT, TASK_WORK } kind;
    void *to;
    const void *from;
    size_t bytes;
    const struct task *record; /* that is waited for; NULL: none */
    struct chunk chunk;        /* of work */
    bool done;
};

struct stream {
    struct task tasks[QUEUE_MAX];
    int count, next;
};

static struct {
    struct stream *streams[STREAMS_MAX]; /* 0: the default one */
    int count;
    int64_t run;
    const struct event *skip[CHUNKS_SLOTS]; /* waits for these ... */
    const struct stream *skip_on;           /* ... on this stream (NULL: on any) are dropped */
} lazy;

static struct task *lazy_add(struct stream *stream)
{
    struct stream *on = stream == NULL ? lazy.streams[0] : stream;
    must(on->count < QUEUE_MAX);
    struct task *task = &on->tasks[on->count++];
    *task = (struct task){0};
    return task;
}

static int lazy_copy(struct device *device, struct stream *stream, void *to, const void *from,
                     size_t bytes, struct err *err)
{
    (void)device, (void)err;
    struct task *task = lazy_add(stream);
    task->kind = TASK_COPY;
    task->to = to;
    task->from = from;
    task->bytes = bytes;
    return 0;
}

static int lazy_stream_new(struct device *device, struct stream **ret, struct err *err)
{
    (void)device, (void)err;
    must(lazy.count < STREAMS_MAX);
    *ret = mem_new(1, sizeof **ret);
    assert_non_null(*ret);
    lazy.streams[lazy.count++] = *ret;
    return 0;
}

static void lazy_stream_free(struct device *device, struct stream *stream)
{
    mem_free(stream);
}

static int lazy_event_new(struct device *device, struct event **ret, struct err *err)
{
    (void)device, (void)err;
    *ret = mem_new(1, sizeof **ret);
    assert_non_null(*ret);
    return 0;
}

static void lazy_event_free(struct device *device, struct event *event)
{
    mem_free(event);
}

static int lazy_record(struct device *device, struct event *event, struct stream *stream,
                       struct err *err)
{
    (void)device, (void)err;
    struct task *task = lazy_add(stream);
    task->kind = TASK_RECORD;
    event->record = task;
    event->run = lazy.run;
    return 0;
}

static int lazy_wait(struct device *device, struct event *event, struct stream *stream,
                     struct err *err)
{
    (void)device, (void)err;
    const struct stream *on = stream == NULL ? lazy.streams[0] : stream;
    bool skipped = event == lazy.skip[0] || event == lazy.skip[1];
    if (skipped && (lazy.skip_on == NULL || lazy.skip_on == on))
        return 0;
    struct task *task = lazy_add(stream);
    task->kind = TASK_WAIT;
    task->record = event->run == lazy.run ? event->record : NULL;
    return 0;
}

static void lazy_work(const struct chunk *chunk)
{
    float *const *d = chunk->device;
    for (int64_t i = 0; i < chunk->count; i++) {
        d[CHUNK_M][i] = d[CHUNK_M][i] * 3 + d[CHUNK_GRAD][i];
        d[CHUNK_MASTER][i] += d[CHUNK_M][i];
    }
}

/* false: it must wait. */
static bool lazy_do(struct task *task)
{
    if (task->kind == TASK_WAIT && task->record != NULL && !task->record->done)
        return false;
    if (task->kind == TASK_COPY)
        memcpy(task->to, task->from, task->bytes);
    if (task->kind == TASK_WORK)
        lazy_work(&task->chunk);
    task->done = true;
    return true;
}

/* Works the lists off. A stream is favoured for a while, so that it gets far ahead. */
static void lazy_run(uint64_t order)
{
    int left = 0, stuck = 0;
    for (int i = 0; i < lazy.count; i++)
        left += lazy.streams[i]->count;
    for (uint64_t draw = 0; left > 0; draw++) {
        uint64_t at = order << 20 | draw / (1 + order % 7);
        struct stream *stream =
            lazy.streams[rng_below(testing_seed(), RNG_STREAM_TEST, at, (uint64_t)lazy.count)];
        bool done = stream->next < stream->count && lazy_do(&stream->tasks[stream->next]);
        stream->next += done;
        left -= done;
        stuck = done ? 0 : stuck + 1;
        must(stuck < 100000);
    }
    for (int i = 0; i < lazy.count; i++)
        lazy.streams[i]->count = lazy.streams[i]->next = 0;
    lazy.run++;
}

/* ---- what is computed ---- */

enum { COUNT = 5 * ELEMENTS + 3, PASSES = 3 };

struct scene {
    struct device *device;
    struct device_ops ops;
    struct arena arena;
    struct chunks chunks;
    float host[CHUNK_KINDS][COUNT];
    float fetched[COUNT], copied[PASSES][COUNT]; /* device memory */
    struct event *there;                         /* what was fetched */
};

static void scene_open(struct scene *s)
{
    struct err err = {0};
    memset(s, 0, sizeof *s);
    memset(&lazy, 0, sizeof lazy);
    assert_int_equal(device_cpu_open(1, &s->device, &err), 0);
    s->ops = *s->device->dev;
    s->ops.copy = lazy_copy;
    s->ops.stream_new = lazy_stream_new;
    s->ops.stream_free = lazy_stream_free;
    s->ops.event_new = lazy_event_new;
    s->ops.event_free = lazy_event_free;
    s->ops.event_record = lazy_record;
    s->ops.event_wait = lazy_wait;
    s->device->dev = &s->ops;
    struct stream *main = NULL;
    assert_int_equal(lazy_stream_new(s->device, &main, &err), 0);
    arena_init(&s->arena, s->device, NULL);
    unsigned kinds = 1u << CHUNK_MASTER | 1u << CHUNK_M | 1u << CHUNK_GRAD;
    assert_int_equal(chunks_init(&s->chunks, s->device, ELEMENTS, kinds, &s->arena, &err), 0);
    assert_int_equal(arena_commit(&s->arena, &err), 0);
    assert_int_equal(lazy_event_new(s->device, &s->there, &err), 0);
}

static void scene_close(struct scene *s)
{
    chunks_done(&s->chunks);
    chunks_done(&s->chunks); /* of nothing */
    arena_done(&s->arena);
    mem_free(s->there);
    mem_free(lazy.streams[0]);
    s->device->dev->close(s->device);
}

static void scene_fill(struct scene *s)
{
    for (int kind = 0; kind < CHUNK_KINDS; kind++)
        for (int i = 0; i < COUNT; i++)
            s->host[kind][i] = (float)(100 * kind + i);
}

static struct chunk scene_chunk(struct scene *s, int64_t at, unsigned kinds)
{
    struct chunk chunk = {.count = COUNT - at < ELEMENTS ? COUNT - at : ELEMENTS};
    for (int kind = 0; kind < CHUNK_KINDS; kind++)
        if (kinds >> kind & 1)
            chunk.host[kind] = s->host[kind] + at;
    return chunk;
}

/* Weights are fetched on the stream of the copies. */
static int scene_fetch(struct scene *s, struct err *err)
{
    struct chunks *chunks = &s->chunks;
    TRY(chunks_begin(chunks, NULL, err));
    for (int64_t at = 0; at < COUNT; at += ELEMENTS) {
        struct chunk chunk = scene_chunk(s, at, 1u << CHUNK_MASTER);
        TRY(chunks_in(chunks, &chunk, chunks->in, err));
        TRY(lazy_copy(s->device, chunks->in, s->fetched + at, chunk.device[CHUNK_MASTER],
                      (size_t)chunk.count * sizeof(float), err));
        TRY(chunks_out(chunks, &chunk, chunks->in, err));
    }
    return lazy_record(s->device, s->there, chunks->in, err);
}

static int scene_update(struct scene *s, struct err *err)
{
    struct chunks *chunks = &s->chunks;
    TRY(chunks_begin(chunks, NULL, err));
    for (int64_t at = 0; at < COUNT; at += ELEMENTS) {
        struct chunk chunk =
            scene_chunk(s, at, 1u << CHUNK_MASTER | 1u << CHUNK_M | 1u << CHUNK_GRAD);
        chunk.back = 1u << CHUNK_MASTER | 1u << CHUNK_M;
        TRY(chunks_in(chunks, &chunk, NULL, err));
        struct task *work = lazy_add(NULL);
        work->kind = TASK_WORK;
        work->chunk = chunk;
        TRY(chunks_out(chunks, &chunk, NULL, err));
    }
    return chunks_end(chunks, NULL, err);
}

/* Fetched while the update is under way, used, the gradient written by the default stream; again
 * and again. */
static int scene_queue(struct scene *s, struct err *err)
{
    for (int pass = 0; pass < PASSES; pass++) {
        TRY(scene_fetch(s, err));
        TRY(scene_update(s, err));
        TRY(lazy_copy(s->device, NULL, s->host[CHUNK_GRAD], s->host[CHUNK_M], sizeof s->host[0],
                      err));
        TRY(lazy_wait(s->device, s->there, NULL, err));
        TRY(lazy_copy(s->device, NULL, s->copied[pass], s->fetched, sizeof s->fetched, err));
    }
    return 0;
}

/* The same, one thing after another; nothing of it is on the device. */
static void scene_want(struct scene *s)
{
    scene_fill(s);
    for (int pass = 0; pass < PASSES; pass++) {
        memcpy(s->copied[pass], s->host[CHUNK_MASTER], sizeof s->host[0]);
        struct chunk all = {
            .count = COUNT,
            .device = {s->host[CHUNK_MASTER], s->host[CHUNK_M], NULL, s->host[CHUNK_GRAD]}};
        lazy_work(&all);
        memcpy(s->host[CHUNK_GRAD], s->host[CHUNK_M], sizeof s->host[0]);
    }
}

/* How many of so many orders compute something else. */
static int scene_wrong(struct scene *s, const struct scene *want, int orders)
{
    struct err err = {0};
    int wrong = 0;
    for (int order = 0; order < orders; order++) {
        scene_fill(s);
        assert_int_equal(scene_queue(s, &err), 0);
        lazy_run((uint64_t)order);
        wrong += memcmp(s->host, want->host, sizeof s->host) != 0 ||
                 memcmp(s->copied, want->copied, sizeof s->copied) != 0;
    }
    return wrong;
}

static void test_any_order(void **state)
{
    static struct scene s, want;
    scene_want(&want);
    scene_open(&s);
    assert_int_equal(scene_wrong(&s, &want, 500), 0);
    scene_close(&s);
}

static void test_every_wait_is_needed(void **state)
{
    static struct scene s, want;
    scene_want(&want);
    scene_open(&s);
    const struct chunks *c = &s.chunks;
    const struct {
        const char *what;
        const struct event *events[CHUNKS_SLOTS];
        const struct stream *on;
    } waits[] = {
        {"begun", {c->begun, c->begun}, NULL},
        {"filled", {c->filled[0], c->filled[1]}, NULL},
        {"worked", {c->worked[0], c->worked[1]}, NULL},
        {"emptied, to be filled", {c->emptied[0], c->emptied[1]}, c->in},
        {"emptied, at the end", {c->emptied[0], c->emptied[1]}, lazy.streams[0]},
    };
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        memcpy(lazy.skip, waits[i].events, sizeof lazy.skip);
        lazy.skip_on = waits[i].on;
        int wrong = scene_wrong(&s, &want, 200);
        if (wrong == 0)
            fail_msg("nobody misses the wait for %s; ITHACA_TEST_SEED=%" PRIu64, waits[i].what,
                     testing_seed());
    }
    memset(lazy.skip, 0, sizeof lazy.skip);
    scene_close(&s);
}

static void test_no_memory(void **state)
{
    struct err err = {0};
    struct device *device = NULL;
    assert_int_equal(device_cpu_open(1, &device, &err), 0);
    for (int64_t after = 1;; after++) {
        struct arena arena;
        struct chunks chunks;
        arena_init(&arena, device, NULL);
        mem_fault_after(after);
        int rc = chunks_init(&chunks, device, ELEMENTS, 1u << CHUNK_GRAD, &arena, &err);
        if (rc == 0)
            rc = arena_commit(&arena, &err);
        mem_fault_after(0);
        chunks_done(&chunks);
        arena_done(&arena);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
    }
    device->dev->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_every_wait_is_needed),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
