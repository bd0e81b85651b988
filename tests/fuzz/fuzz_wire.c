/* fuzz_wire: the bytes of a connection. Every frame decoded is encoded again to the bytes that it
 * was; bytes that come one by one give the same frames and the same end as all at once. */
#include "common/mem.h"
#include "common/must.h"
#include "common/wire.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { IN_BYTES = 4 * LIMIT_FRAME_BYTES };

static void wire_same(const struct wire_frame *frame, const char *bytes, size_t size)
{
    struct err err;
    struct buf out;
    buf_init(&out, 2 * (size_t)LIMIT_FRAME_BYTES);
    must(wire_encode(frame, &out, &err) == 0);
    /* An error's name that this version does not know became "internal". */
    if (frame->type != WIRE_FAILED || frame->failed.code != ERR_INTERNAL)
        must(out.length == size && memcmp(out.data, bytes, size) == 0);
    buf_done(&out);
}

/* Takes all whole frames off `in`; rc of the decoder, which ends a connection when not 0. */
static int wire_drain(struct buf *in, size_t *frames, bool encode)
{
    for (;;) {
        struct err err = {.code = ERR_NONE};
        struct wire_frame frame;
        size_t taken = 0;
        int rc = wire_decode(in, &frame, &taken, &err);
        if (rc != 0)
            fuzz_refused(rc, &err);
        if (rc != 0 || taken == 0)
            return rc;
        must(taken <= in->length && strcmp(wire_type_name(frame.type), "?") != 0);
        if (encode)
            wire_same(&frame, in->data, taken);
        buf_drop_front(in, taken);
        ++*frames;
        fuzz_taken++;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    size_t whole_frames = 0, single_frames = 0;
    struct buf whole, single;
    buf_init(&whole, IN_BYTES);
    buf_init(&single, IN_BYTES);
    buf_append(&whole, data, size);
    int whole_rc = wire_drain(&whole, &whole_frames, true);
    int single_rc = 0;
    for (size_t i = 0; i < size && single_rc == 0; i++) {
        buf_append(&single, data + i, 1);
        single_rc = wire_drain(&single, &single_frames, false);
    }
    must(whole_rc == single_rc && whole_frames == single_frames);
    buf_done(&whole);
    buf_done(&single);
    must(mem_live() == live);
    return 0;
}
