/* wire: every type round-trips, cut and spoilt frames are told apart, no bytes crash the decoder.
 */
#include "common/mem.h"
#include "common/rng.h"
#include "common/wire.h"
#include "tests/lib/cmocka.h"

#include <math.h>
#include <string.h>

enum { HEADER_BYTES = 16 };
static const char test_plan[] = "{\"job_id\":\"ftjob-1\"}";

static struct wire_frame hello(void)
{
    struct wire_frame frame = {
        .type = WIRE_HELLO,
        .seq = 1,
        .hello = {.job_id = "ftjob-abc", .attempt = 2, .rank = 63, .pid = 0xfffffff0u},
    };
    for (int i = 0; i < WIRE_SECRET_BYTES; i++)
        frame.hello.secret[i] = (uint8_t)(i * 9);
    return frame;
}

static struct wire_frame metrics(uint32_t count)
{
    struct wire_frame frame = {.type = WIRE_METRICS,
                               .seq = 0xffffffffu,
                               .metrics = {.step = 1ull << 40, .wall_s = 1.7e9, .count = count}};
    for (uint32_t i = 0; i < count; i++)
        frame.metrics.points[i] =
            (struct wire_point){.metric = (uint16_t)(i % METRIC_COUNT), .value = i * 0.1 - 1};
    return frame;
}

/* One frame of each type; *ret_count of them. */
static const struct wire_frame *all_frames(size_t *ret_count)
{
    static struct wire_frame frames[16];
    size_t n = 0;
    frames[n++] = hello();
    frames[n++] = (struct wire_frame){.type = WIRE_PLAN,
                                      .plan = {.json = test_plan, .length = strlen(test_plan)}};
    frames[n++] =
        (struct wire_frame){.type = WIRE_READY, .seq = 2, .ready = {.steps_total = 1ull << 40}};
    frames[n++] = (struct wire_frame){
        .type = WIRE_HEARTBEAT,
        .seq = 3,
        .heartbeat = {.step = 12, .phase = WIRE_PHASE_BACKWARD, .coll_seq = 1ull << 50}};
    frames[n++] = metrics(WIRE_METRICS_MAX);
    frames[n++] =
        (struct wire_frame){.type = WIRE_EVENT,
                            .seq = 5,
                            .event = {.level = 2, .step = 7, .text = "gr\xc3\xbc\xc3\x9f Gott"}};
    frames[n++] = (struct wire_frame){
        .type = WIRE_DONE, .seq = 6, .done = {.steps = 30, .trained_tokens = 1, .final_loss = 0.5}};
    frames[n++] = (struct wire_frame){
        .type = WIRE_FAILED,
        .seq = 7,
        .failed = {
            .code = ERR_NONFINITE, .step = 9, .phase = WIRE_PHASE_FORWARD, .text = "loss is NaN"}};
    frames[n++] = (struct wire_frame){.type = WIRE_CANCEL};
    frames[n++] = (struct wire_frame){.type = WIRE_PAUSE};
    frames[n++] = (struct wire_frame){.type = WIRE_CHECKPOINT};
    frames[n++] = (struct wire_frame){.type = WIRE_ACK, .seq = 8, .number = WIRE_CANCEL};
    frames[n++] = (struct wire_frame){.type = WIRE_SEEN, .number = 0xdeadbeefu};
    frames[n++] = (struct wire_frame){
        .type = WIRE_CHECKPOINTED, .seq = 9, .checkpointed = {.step = 20, .bytes = 1ull << 41}};
    frames[n++] = (struct wire_frame){
        .type = WIRE_PAUSED, .seq = 10, .paused = {.step = 20, .trained_tokens = 99}};
    frames[n++] = (struct wire_frame){.type = WIRE_PROFILE, .number = LIMIT_PROFILE_STEPS};
    *ret_count = n;
    return frames;
}

static void encode(struct buf *out, const struct wire_frame *frame)
{
    struct err err;
    if (wire_encode(frame, out, &err) != 0)
        fail_msg("%s: %s", wire_type_name(frame->type), err.text);
}

static void test_every_type_round_trips(void **state)
{
    size_t count;
    const struct wire_frame *frames = all_frames(&count);
    size_t rows = 0;
#define X(id, number, direction, doc) rows++;
#include "api/frames.def"
#undef X
    assert_int_equal(count, rows);
    struct buf stream;
    struct buf again;
    buf_init(&stream, 1 << 20);
    buf_init(&again, 1 << 20);
    for (size_t i = 0; i < count; i++)
        encode(&stream, &frames[i]);
    size_t total = stream.length;
    for (size_t i = 0; i < count; i++) {
        struct err err;
        struct wire_frame frame;
        size_t bytes;
        assert_int_equal(wire_decode(&stream, &frame, &bytes, &err), 0);
        assert_true(bytes >= HEADER_BYTES);
        assert_int_equal(frame.type, frames[i].type);
        assert_int_equal(frame.seq, frames[i].seq);
        if (frame.type == WIRE_FAILED) {
            assert_int_equal(frame.failed.code, ERR_NONFINITE);
            assert_string_equal(frame.failed.text, "loss is NaN");
        }
        buf_clear(&again); /* the same bytes again: every field has come through */
        encode(&again, &frame);
        assert_int_equal(again.length, bytes);
        assert_memory_equal(again.data, stream.data, bytes);
        buf_drop_front(&stream, bytes);
        total -= bytes;
    }
    assert_int_equal(total, 0);
    buf_done(&stream);
    buf_done(&again);
    assert_int_equal(mem_live(), 0);
}

static void test_layout_is_the_documented_one(void **state)
{
    struct buf out;
    buf_init(&out, 1000);
    encode(&out, &(struct wire_frame){.type = WIRE_ACK, .seq = 0x01020304, .number = 9});
    assert_int_equal(out.length, 20);
    assert_memory_equal(out.data, "ITH1\x0c\0\0\0\x04\0\0\0\x04\x03\x02\x01\x09\0\0\0", 20);
    buf_clear(&out);
    encode(&out, &(struct wire_frame){.type = WIRE_EVENT, .seq = 1, .event = {.text = "hi"}});
    assert_memory_equal(out.data + HEADER_BYTES, "\0\0\0\0\0\0\0\0\0\x02\0hi", 13);
    assert_int_equal(out.length, HEADER_BYTES + 13);
    buf_done(&out);
}

/* Every field in its place, of every type that has some: a rank of one build speaks to the daemon
 * of another. 0x11 and on: no byte is like its neighbour. */
static void test_payloads_are_the_documented_ones(void **state)
{
    static const struct {
        struct wire_frame frame;
        const char *payload;
        size_t length;
    } cases[] = {
#define PAYLOAD(bytes) bytes, sizeof bytes - 1
        {{.type = WIRE_HELLO,
          .hello = {.job_id = "job",
                    .attempt = 0x14131211,
                    .rank = 0x24232221,
                    .pid = 0x34333231,
                    .secret = "0123456789abcdefghijklmnopqrstu"}},
         PAYLOAD("\3\0job\x11\x12\x13\x14!\"#$1234"
                 "0123456789abcdefghijklmnopqrstu\0")},
        {{.type = WIRE_PLAN, .plan = {.json = "{}", .length = 2}}, PAYLOAD("{}")},
        {{.type = WIRE_READY, .ready = {.steps_total = 0x1817161514131211}},
         PAYLOAD("\x11\x12\x13\x14\x15\x16\x17\x18")},
        {{.type = WIRE_HEARTBEAT,
          .heartbeat = {.step = 0x1817161514131211, .phase = 3, .coll_seq = 0x2827262524232221}},
         PAYLOAD("\x11\x12\x13\x14\x15\x16\x17\x18"
                 "\3\0\0\0"
                 "!\"#$%&'(")},
        {{.type = WIRE_METRICS,
          .metrics = {.step = 0x1817161514131211,
                      .wall_s = 0.5,
                      .count = 1,
                      .points = {{.metric = 2, .value = -2}}}},
         PAYLOAD("\x11\x12\x13\x14\x15\x16\x17\x18"
                 "\0\0\0\0\0\0\xe0\x3f"
                 "\1\0\0\0"
                 "\2\0"
                 "\0\0\0\0\0\0\0\xc0")},
        {{.type = WIRE_EVENT, .event = {.level = 1, .step = 0x1817161514131211, .text = "hi"}},
         PAYLOAD("\1"
                 "\x11\x12\x13\x14\x15\x16\x17\x18"
                 "\2\0hi")},
        {{.type = WIRE_DONE,
          .done = {.steps = 0x1817161514131211,
                   .trained_tokens = 0x2827262524232221,
                   .final_loss = 0.5}},
         PAYLOAD("\x11\x12\x13\x14\x15\x16\x17\x18"
                 "!\"#$%&'("
                 "\0\0\0\0\0\0\xe0\x3f")},
        {{.type = WIRE_FAILED,
          .failed = {.code = ERR_NOMEM, .step = 0x1817161514131211, .phase = 4, .text = "no"}},
         PAYLOAD("\15\0out_of_memory"
                 "\x11\x12\x13\x14\x15\x16\x17\x18"
                 "\4\0\0\0"
                 "\2\0no")},
        {{.type = WIRE_CHECKPOINTED,
          .checkpointed = {.step = 0x1817161514131211, .bytes = 0x2827262524232221}},
         PAYLOAD("\x11\x12\x13\x14\x15\x16\x17\x18"
                 "!\"#$%&'(")},
        {{.type = WIRE_PAUSED,
          .paused = {.step = 0x1817161514131211, .trained_tokens = 0x2827262524232221}},
         PAYLOAD("\x11\x12\x13\x14\x15\x16\x17\x18"
                 "!\"#$%&'(")},
        {{.type = WIRE_PROFILE, .number = 0x21}, PAYLOAD("!\0\0\0")},
    };
    struct buf out;
    buf_init(&out, 1000);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buf_clear(&out);
        encode(&out, &cases[i].frame);
        assert_int_equal(out.length, HEADER_BYTES + cases[i].length);
        assert_memory_equal(out.data + HEADER_BYTES, cases[i].payload, cases[i].length);
    }
    buf_done(&out);
}

static void test_non_finite_values_pass(void **state)
{
    struct err err;
    struct buf out;
    struct wire_frame frame = metrics(2);
    frame.metrics.points[0].value = NAN;
    frame.metrics.points[1].value = -INFINITY;
    buf_init(&out, 1000);
    encode(&out, &frame);
    struct wire_frame back;
    size_t bytes;
    assert_int_equal(wire_decode(&out, &back, &bytes, &err), 0);
    assert_true(isnan(back.metrics.points[0].value));
    assert_true(isinf(back.metrics.points[1].value));
    assert_int_equal(back.metrics.count, 2);
    buf_done(&out);
}

static void test_cut_frames_ask_for_more(void **state)
{
    size_t count;
    const struct wire_frame *frames = all_frames(&count);
    struct buf out;
    buf_init(&out, 1 << 20);
    for (size_t i = 0; i < count; i++) {
        buf_clear(&out);
        encode(&out, &frames[i]);
        for (size_t length = 0; length < out.length; length++) {
            /* A block of exactly that length: the address sanitizer sees a byte read beyond it. */
            char *copy = mem_new(1, length);
            memcpy(copy, out.data, length);
            struct buf cut = {.data = copy, .length = length, .length_max = 1 << 20};
            struct err err;
            struct wire_frame frame;
            size_t bytes = 99;
            assert_int_equal(wire_decode(&cut, &frame, &bytes, &err), 0);
            assert_int_equal(bytes, 0);
            mem_free(copy);
        }
    }
    buf_done(&out);
}

static void assert_refused(const struct buf *in, const char *wanted)
{
    struct err err;
    struct wire_frame frame;
    size_t bytes;
    assert_int_equal(wire_decode(in, &frame, &bytes, &err), -ERR_PROTOCOL);
    assert_int_equal(bytes, 0);
    if (strstr(err.text, wanted) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, wanted);
}

static void test_spoilt_headers_are_refused(void **state)
{
    struct buf out;
    buf_init(&out, 1000);
    /* Every other value of magic and reserved bytes, every other type without this payload. */
    for (size_t at = 0; at < 8; at++) {
        for (unsigned value = 0; value < 256; value++) {
            buf_clear(&out);
            struct wire_frame frame = hello();
            encode(&out, &frame);
            if ((unsigned char)out.data[at] == value || (at == 4 && value == WIRE_PLAN))
                continue;
            out.data[at] = (char)(unsigned char)value;
            assert_refused(&out, at == 4 || at == 5 ? "frame" : "not a frame");
        }
    }
    buf_clear(&out);
    encode(&out, &(struct wire_frame){.type = WIRE_CANCEL});
    out.data[12] = 1;
    assert_refused(&out, "sequence number");
    out.data[12] = 0;
    out.data[10] = 2; /* 128 KiB to come: refused before they do */
    assert_refused(&out, "too long");
    out.data[10] = 0;
    out.data[8] = 1;
    buf_char(&out, 'x');
    assert_refused(&out, "too long for its type");
    buf_clear(&out);
    encode(&out, &(struct wire_frame){.type = WIRE_SEEN, .number = 1});
    out.data[8] = 3;
    assert_refused(&out, "too short");
    buf_done(&out);
}

static void test_spoilt_payloads_are_refused(void **state)
{
    struct buf out;
    buf_init(&out, 4000);
    encode(&out, &(struct wire_frame){.type = WIRE_EVENT, .seq = 1, .event = {.text = "hello"}});
    char *payload = out.data + HEADER_BYTES;
    payload[0] = 3;
    assert_refused(&out, "level");
    payload[0] = 0;
    payload[11] = '\0';
    assert_refused(&out, "UTF-8");
    payload[11] = (char)0xff;
    assert_refused(&out, "UTF-8");
    payload[11] = 'h';
    payload[10] = 4; /* a string of 1029 bytes */
    assert_refused(&out, "string is too long");
    payload[9] = 0; /* of 1024: no room for its NUL */
    assert_refused(&out, "string is too long");
    buf_clear(&out);
    struct wire_frame frame = metrics(1);
    encode(&out, &frame);
    out.data[HEADER_BYTES + 16] = WIRE_METRICS_MAX + 1;
    assert_refused(&out, "too many");
    out.data[HEADER_BYTES + 16] = 1;
    out.data[HEADER_BYTES + 20] = METRIC_COUNT;
    assert_refused(&out, "metric");
    buf_clear(&out);
    encode(&out, &(struct wire_frame){.type = WIRE_HEARTBEAT, .seq = 1});
    out.data[HEADER_BYTES + 8] = WIRE_PHASE_COUNT;
    assert_refused(&out, "phase");
    buf_clear(&out);
    encode(&out, &(struct wire_frame){.type = WIRE_PLAN, .plan = {.json = "{}", .length = 2}});
    out.data[HEADER_BYTES] = (char)0xff;
    assert_refused(&out, "the plan is not UTF-8");
    buf_clear(&out);
    encode(&out, &(struct wire_frame){.type = WIRE_PROFILE, .number = 1});
    out.data[HEADER_BYTES] = 0;
    assert_refused(&out, "too many steps to profile, or none");
    out.data[HEADER_BYTES + 3] = 1;
    assert_refused(&out, "too many steps to profile, or none");
    buf_done(&out);
}

static void test_unknown_error_code_becomes_internal(void **state)
{
    struct err err;
    struct buf out;
    buf_init(&out, 4000);
    encode(&out, &(struct wire_frame){.type = WIRE_FAILED, .seq = 1, .failed = {.code = ERR_IO}});
    out.data[HEADER_BYTES + 2] = 'x';
    struct wire_frame frame;
    size_t bytes;
    assert_int_equal(wire_decode(&out, &frame, &bytes, &err), 0);
    assert_int_equal(frame.failed.code, ERR_INTERNAL);
    buf_done(&out);
}

static void test_encoder_refuses_and_leaves_nothing(void **state)
{
    struct err err;
    struct buf out;
    buf_init(&out, 200 * 1024);
    encode(&out, &(struct wire_frame){.type = WIRE_READY, .seq = 1});
    size_t before = out.length;
    struct wire_frame bad[] = {
        {.type = WIRE_CANCEL, .seq = 1},
        {.type = (enum wire_type)99},
        {.type = WIRE_METRICS, .metrics = {.count = WIRE_METRICS_MAX + 1}},
        {.type = WIRE_HEARTBEAT, .heartbeat = {.phase = WIRE_PHASE_COUNT}},
        {.type = WIRE_EVENT},
        {.type = WIRE_PLAN, .plan = {.length = LIMIT_FRAME_BYTES + 1}},
        {.type = WIRE_PLAN, .plan = {.json = "\xff", .length = 1}},
        {.type = WIRE_FAILED, .failed = {.code = ERR_COUNT}},
        {.type = WIRE_PROFILE, .number = 0},
        {.type = WIRE_PROFILE, .number = LIMIT_PROFILE_STEPS + 1},
    };
    memset(bad[4].event.text, 'x', sizeof bad[4].event.text); /* no NUL */
    char *long_plan = mem_new(1, LIMIT_FRAME_BYTES + 1);
    memset(long_plan, ' ', LIMIT_FRAME_BYTES + 1);
    bad[5].plan.json = long_plan;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(wire_encode(&bad[i], &out, &err), -ERR_PROTOCOL);
        assert_int_equal(out.length, before);
    }
    bad[5].plan.length = LIMIT_FRAME_BYTES;
    out.length = 0;
    encode(&out, &bad[5]);
    struct wire_frame frame;
    size_t bytes;
    assert_int_equal(wire_decode(&out, &frame, &bytes, &err), 0);
    assert_int_equal(bytes, HEADER_BYTES + LIMIT_FRAME_BYTES);
    buf_done(&out);
    mem_free(long_plan);
}

static void test_encoder_full_buffer(void **state)
{
    struct err err;
    struct buf out;
    struct wire_frame frame = hello();
    for (size_t room = 1; room < 80; room++) {
        buf_init(&out, room);
        int rc = wire_encode(&frame, &out, &err);
        if (rc != 0) {
            assert_int_equal(rc, -ERR_TOO_LARGE);
            assert_int_equal(out.length, 0);
        }
        buf_done(&out);
    }
    buf_init(&out, 1000);
    mem_fault_after(1);
    assert_int_equal(wire_encode(&frame, &out, &err), -ERR_NOMEM);
    buf_done(&out);
    assert_int_equal(mem_live(), 0);
}

static void test_text_that_is_not_utf8_still_arrives(void **state)
{
    struct err err;
    struct buf out;
    buf_init(&out, 4000);
    encode(&out, &(struct wire_frame){
                     .type = WIRE_EVENT, .seq = 1, .event = {.text = "file \xe9t\xc3\xa9 \xc3"}});
    struct wire_frame frame;
    size_t bytes;
    assert_int_equal(wire_decode(&out, &frame, &bytes, &err), 0);
    assert_string_equal(frame.event.text, "file ?t\xc3\xa9 ?");
    buf_done(&out);
}

/* Random bytes, and true frames with a few bytes changed: an answer or ERR_PROTOCOL, never more. */
static void test_random_bytes(void **state)
{
    enum { ROUNDS = 20000 };
    const uint64_t seed = 20261129;
    print_message("seed %llu\n", (unsigned long long)seed);
    size_t count;
    const struct wire_frame *frames = all_frames(&count);
    struct buf out;
    buf_init(&out, 1 << 20);
    int accepted = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t stream = RNG_STREAM_TEST + round;
        buf_clear(&out);
        encode(&out, &frames[round % count]);
        if (rng_below(seed, stream, 0, 8) == 0)
            for (uint64_t i = HEADER_BYTES; i < out.length; i++)
                out.data[i] = (char)(unsigned char)rng_below(seed, stream, i, 256);
        for (uint64_t i = rng_below(seed, stream, 1000, 4); i > 0; i--)
            out.data[rng_below(seed, stream, 1000 + i, out.length)] =
                (char)(unsigned char)rng_below(seed, stream, 2000 + i, 256);
        size_t length = rng_below(seed, stream, 3000, 4) == 0
                            ? rng_below(seed, stream, 3001, out.length + 1)
                            : out.length;
        char *copy = mem_new(1, length);
        memcpy(copy, out.data, length);
        struct buf in = {.data = copy, .length = length, .length_max = 1 << 20};
        struct err err;
        struct wire_frame frame;
        size_t bytes;
        int rc = wire_decode(&in, &frame, &bytes, &err);
        assert_true(rc == 0 || rc == -ERR_PROTOCOL);
        assert_true(bytes <= length);
        accepted += rc == 0 && bytes > 0;
        mem_free(copy);
    }
    assert_in_range(accepted, 1, ROUNDS - 1);
    buf_done(&out);
}

static void test_names(void **state)
{
    assert_string_equal(wire_phase_name(WIRE_PHASE_BACKWARD), "backward");
    assert_string_equal(wire_type_name(WIRE_SEEN), "SEEN");
    assert_string_equal(wire_type_name(0), "?");
    assert_string_equal(wire_type_name(9999), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_round_trips),
        cmocka_unit_test(test_layout_is_the_documented_one),
        cmocka_unit_test(test_payloads_are_the_documented_ones),
        cmocka_unit_test(test_non_finite_values_pass),
        cmocka_unit_test(test_cut_frames_ask_for_more),
        cmocka_unit_test(test_spoilt_headers_are_refused),
        cmocka_unit_test(test_spoilt_payloads_are_refused),
        cmocka_unit_test(test_unknown_error_code_becomes_internal),
        cmocka_unit_test(test_encoder_refuses_and_leaves_nothing),
        cmocka_unit_test(test_encoder_full_buffer),
        cmocka_unit_test(test_text_that_is_not_utf8_still_arrives),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
