/* wire: see wire.h for the frame.
 *
 * One function a payload says its fields in order, for both directions: a codec either appends a
 * field to a buf or takes it off the input, so encoder and decoder cannot drift apart. A codec that
 * met something illegal goes bad, and stays so; the frame is checked once, at its end. */
#include "common/wire.h"

#include "common/must.h"
#include "common/utf8.h"

#include <string.h>

enum { WIRE_HEADER_BYTES = 16, WIRE_LENGTH_OFFSET = 8 };
static const uint32_t wire_magic = 0x31485449u;

enum wire_direction { WIRE_UP, WIRE_DOWN };

struct wire_row {
    const char *name; /* "HELLO"; NULL for a number that is no type */
    enum wire_direction direction;
};
static const struct wire_row wire_rows[] = {
#define X(id, number, way, doc) [number] = {.name = #id, .direction = WIRE_##way},
#include "api/frames.def"
#undef X
};

static const char *const wire_phase_names[WIRE_PHASE_COUNT] = {
#define X(id, name) [WIRE_PHASE_##id] = name,
    WIRE_PHASE_TABLE(X)
#undef X
};

const char *wire_phase_name(enum wire_phase phase)
{
    must((unsigned)phase < WIRE_PHASE_COUNT);
    return wire_phase_names[phase];
}

/* One payload on its way out or in. */
struct codec {
    struct buf *out;  /* encoding: fields are appended here; NULL when decoding */
    const char *in;   /* decoding: the bytes not yet taken */
    size_t in_length; /* decoding: their number */
    const char *bad;  /* what is wrong; NULL while nothing is */
};

static void codec_check(struct codec *codec, bool fine, const char *wrong)
{
    if (!fine && codec->bad == NULL)
        codec->bad = wrong;
}

static void codec_bytes(struct codec *codec, void *bytes, size_t length)
{
    if (codec->out != NULL) {
        buf_append(codec->out, bytes, length);
        return;
    }
    codec_check(codec, length <= codec->in_length, "the payload is too short");
    if (codec->bad != NULL) {
        memset(bytes, 0, length);
        return;
    }
    memcpy(bytes, codec->in, length);
    codec->in += length;
    codec->in_length -= length;
}

/* An integer of `size` bytes, little-endian. */
static uint64_t codec_integer(struct codec *codec, uint64_t value, size_t size)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
    codec_bytes(codec, bytes, size);
    uint64_t result = 0;
    for (size_t i = 0; i < size; i++)
        result |= (uint64_t)bytes[i] << (8 * i);
    return result;
}

static void codec_u8(struct codec *codec, uint8_t *value)
{
    *value = (uint8_t)codec_integer(codec, *value, sizeof *value);
}

static void codec_u16(struct codec *codec, uint16_t *value)
{
    *value = (uint16_t)codec_integer(codec, *value, sizeof *value);
}

static void codec_u32(struct codec *codec, uint32_t *value)
{
    *value = (uint32_t)codec_integer(codec, *value, sizeof *value);
}

static void codec_u64(struct codec *codec, uint64_t *value)
{
    *value = codec_integer(codec, *value, sizeof *value);
}

static void codec_f64(struct codec *codec, double *value)
{
    uint64_t bits;
    memcpy(&bits, value, sizeof bits);
    codec_u64(codec, &bits);
    memcpy(value, &bits, sizeof bits);
}

/* A string in a field of `size` bytes, its NUL included. */
static void codec_text(struct codec *codec, char *text, size_t size)
{
    uint16_t length = 0;
    if (codec->out != NULL) {
        codec_check(codec, memchr(text, '\0', size) != NULL, "a string is too long");
        if (codec->bad != NULL)
            return;
        utf8_scrub(text); /* a sentence about a file may carry any byte; it must not be lost */
        length = (uint16_t)strlen(text);
    }
    codec_u16(codec, &length);
    codec_check(codec, length < size, "a string is too long");
    if (codec->bad != NULL)
        return;
    codec_bytes(codec, text, length);
    if (codec->out != NULL)
        return;
    text[length] = '\0';
    codec_check(codec, utf8_valid(text, length), "a string is not UTF-8");
}

static void wire_hello(struct codec *codec, struct wire_hello *hello)
{
    codec_text(codec, hello->job_id, sizeof hello->job_id);
    codec_u32(codec, &hello->attempt);
    codec_u32(codec, &hello->rank);
    codec_u32(codec, &hello->pid);
    codec_bytes(codec, hello->secret, sizeof hello->secret);
}

static void wire_phase(struct codec *codec, uint32_t *phase)
{
    codec_u32(codec, phase);
    codec_check(codec, *phase < WIRE_PHASE_COUNT, "no such phase");
}

static void wire_heartbeat(struct codec *codec, struct wire_heartbeat *heartbeat)
{
    codec_u64(codec, &heartbeat->step);
    wire_phase(codec, &heartbeat->phase);
    codec_u64(codec, &heartbeat->coll_seq);
}

static void wire_metrics(struct codec *codec, struct wire_metrics *metrics)
{
    codec_u64(codec, &metrics->step);
    codec_f64(codec, &metrics->wall_s);
    codec_u32(codec, &metrics->count);
    codec_check(codec, metrics->count <= WIRE_METRICS_MAX, "too many metric points");
    for (uint32_t i = 0; i < metrics->count && codec->bad == NULL; i++) {
        codec_u16(codec, &metrics->points[i].metric);
        codec_f64(codec, &metrics->points[i].value);
        codec_check(codec, metrics->points[i].metric < METRIC_COUNT, "no such metric");
    }
}

static void wire_event(struct codec *codec, struct wire_event *event)
{
    codec_u8(codec, &event->level);
    codec_check(codec, event->level <= 2, "no such event level");
    codec_u64(codec, &event->step);
    codec_text(codec, event->text, sizeof event->text);
}

static void wire_done(struct codec *codec, struct wire_done *done)
{
    codec_u64(codec, &done->steps);
    codec_u64(codec, &done->trained_tokens);
    codec_f64(codec, &done->final_loss);
}

static void wire_checkpointed(struct codec *codec, struct wire_checkpointed *checkpointed)
{
    codec_u64(codec, &checkpointed->step);
    codec_u64(codec, &checkpointed->bytes);
}

static void wire_paused(struct codec *codec, struct wire_paused *paused)
{
    codec_u64(codec, &paused->step);
    codec_u64(codec, &paused->trained_tokens);
}

static void wire_failed(struct codec *codec, struct wire_failed *failed)
{
    char code[ERR_FIELD_MAX] = "";
    if (codec->out != NULL) {
        codec_check(codec, failed->code < ERR_COUNT, "no such error code");
        if (codec->bad != NULL)
            return;
        memcpy(code, err_code_name(failed->code), strlen(err_code_name(failed->code)) + 1);
    }
    codec_text(codec, code, sizeof code);
    if (codec->out == NULL) {
        enum err_code known = err_code_parse(code);
        failed->code = known != ERR_NONE ? known : ERR_INTERNAL;
    }
    codec_u64(codec, &failed->step);
    wire_phase(codec, &failed->phase);
    codec_text(codec, failed->text, sizeof failed->text);
}

/* The plan is the whole payload; decoded, it stays where it lies. */
static void wire_plan(struct codec *codec, struct wire_frame *frame)
{
    const char *json = codec->out != NULL ? frame->plan.json : codec->in;
    size_t length = codec->out != NULL ? frame->plan.length : codec->in_length;
    codec_check(codec, utf8_valid(json, length), "the plan is not UTF-8");
    if (codec->out != NULL) {
        buf_append(codec->out, json, length);
        return;
    }
    frame->plan.json = json;
    frame->plan.length = length;
    codec->in += length;
    codec->in_length = 0;
}

static void wire_payload(struct codec *codec, struct wire_frame *frame)
{
    switch (frame->type) {
    case WIRE_HELLO:
        wire_hello(codec, &frame->hello);
        break;
    case WIRE_PLAN:
        wire_plan(codec, frame);
        break;
    case WIRE_HEARTBEAT:
        wire_heartbeat(codec, &frame->heartbeat);
        break;
    case WIRE_METRICS:
        wire_metrics(codec, &frame->metrics);
        break;
    case WIRE_EVENT:
        wire_event(codec, &frame->event);
        break;
    case WIRE_DONE:
        wire_done(codec, &frame->done);
        break;
    case WIRE_FAILED:
        wire_failed(codec, &frame->failed);
        break;
    case WIRE_CHECKPOINTED:
        wire_checkpointed(codec, &frame->checkpointed);
        break;
    case WIRE_PAUSED:
        wire_paused(codec, &frame->paused);
        break;
    case WIRE_ACK:
    case WIRE_SEEN:
        codec_u32(codec, &frame->number);
        break;
    case WIRE_PROFILE:
        codec_u32(codec, &frame->number);
        codec_check(codec, frame->number >= 1 && frame->number <= LIMIT_PROFILE_STEPS,
                    "too many steps to profile, or none");
        break;
    case WIRE_READY:
        codec_u64(codec, &frame->ready.steps_total);
        break;
    case WIRE_CANCEL:
    case WIRE_PAUSE:
    case WIRE_CHECKPOINT:
        break;
    }
}

/* The row of a type, or NULL. */
static const struct wire_row *wire_row_of(unsigned type)
{
    if (type >= sizeof wire_rows / sizeof wire_rows[0] || wire_rows[type].name == NULL)
        return NULL;
    return &wire_rows[type];
}

const char *wire_type_name(unsigned type)
{
    const struct wire_row *row = wire_row_of(type);
    return row != NULL ? row->name : "?";
}

/* Rules that type and sequence number obey; a sentence when they do not. */
static const char *wire_header_wrong(unsigned type, uint32_t seq)
{
    const struct wire_row *row = wire_row_of(type);
    if (row == NULL)
        return "no such type";
    if (row->direction == WIRE_DOWN && seq != 0)
        return "a frame to a rank has no sequence number";
    return NULL;
}

int wire_encode(const struct wire_frame *frame, struct buf *out, struct err *err)
{
    const char *wrong = wire_header_wrong(frame->type, frame->seq);
    if (wrong != NULL)
        return err_set(err, ERR_PROTOCOL, "frame %s: %s", wire_type_name(frame->type), wrong);
    size_t start = out->length;
    struct wire_frame copy = *frame; /* the codec takes fields it may write */
    struct codec codec = {.out = out};
    codec_integer(&codec, wire_magic, 4);
    codec_integer(&codec, copy.type, 2);
    codec_integer(&codec, 0, 2);
    codec_integer(&codec, 0, 4); /* the length, below */
    codec_integer(&codec, copy.seq, 4);
    wire_payload(&codec, &copy);
    size_t payload = out->length - start;
    int rc = buf_error(out, err);
    if (rc == 0) {
        must(payload >= WIRE_HEADER_BYTES);
        payload -= WIRE_HEADER_BYTES;
        codec_check(&codec, payload <= LIMIT_FRAME_BYTES, "the payload is too long");
        if (codec.bad != NULL)
            rc = err_set(err, ERR_PROTOCOL, "frame %s: %s", wire_type_name(copy.type), codec.bad);
    }
    if (rc != 0) {
        out->length = start; /* no half frame stays behind */
        return rc;
    }
    for (size_t i = 0; i < 4; i++)
        out->data[start + WIRE_LENGTH_OFFSET + i] = (char)(unsigned char)(payload >> (8 * i));
    return 0;
}

int wire_decode(const struct buf *in, struct wire_frame *ret_frame, size_t *ret_bytes,
                struct err *err)
{
    *ret_bytes = 0;
    if (in->length < WIRE_HEADER_BYTES)
        return 0;
    struct codec header = {.in = in->data, .in_length = WIRE_HEADER_BYTES};
    uint64_t magic = codec_integer(&header, 0, 4);
    unsigned type = (unsigned)codec_integer(&header, 0, 2);
    uint64_t zero = codec_integer(&header, 0, 2);
    size_t length = (size_t)codec_integer(&header, 0, 4);
    uint32_t seq = (uint32_t)codec_integer(&header, 0, 4);
    if (magic != wire_magic || zero != 0)
        return err_set(err, ERR_PROTOCOL, "not a frame of this version");
    const char *wrong = wire_header_wrong(type, seq);
    if (wrong == NULL && length > LIMIT_FRAME_BYTES)
        wrong = "the payload is too long";
    if (wrong != NULL)
        return err_set(err, ERR_PROTOCOL, "frame type %u: %s", type, wrong);
    if (in->length - WIRE_HEADER_BYTES < length)
        return 0;
    struct wire_frame frame = {.type = (enum wire_type)type, .seq = seq};
    struct codec codec = {.in = in->data + WIRE_HEADER_BYTES, .in_length = length};
    wire_payload(&codec, &frame);
    codec_check(&codec, codec.in_length == 0, "the payload is too long for its type");
    if (codec.bad != NULL)
        return err_set(err, ERR_PROTOCOL, "frame %s: %s", wire_type_name(type), codec.bad);
    *ret_frame = frame;
    *ret_bytes = WIRE_HEADER_BYTES + length;
    return 0;
}
