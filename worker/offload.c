/* offload: see offload.h. Streams meet by events: a copy out waits for the moment at which its
 * group was complete, not for the work issued since; a copy in for the moment of the call, when all
 * that read its place has been issued. */
#include "worker/offload_private.h"

#include "common/mem.h"
#include "common/must.h"
#include "worker/exposed.h"
#include "worker/offload_file.h"

_Static_assert((int)OFFLOAD_FILE_SLOTS == (int)MEM_CHUNKS_FILE, "a chunk for each slot");

static const struct {
    enum offload_group group;
    bool by_rows;
} offload_table[OFFLOAD_TENSORS] = {
#define X(id, group_, by_rows_) [OFFLOAD_##id] = {.group = OFFLOAD_##group_, .by_rows = by_rows_},
    OFFLOAD_TABLE(X)
#undef X
};

/* ---- opening ---- */

static int offload_open_events(struct offload *offload, struct err *err)
{
    const struct device_ops *dev = offload->device->dev;
    TRY(dev->stream_new(offload->device, &offload->out, err));
    TRY(dev->stream_new(offload->device, &offload->in, err));
    TRY(dev->event_new(offload->device, &offload->moment, err));
    for (int g = 0; g < OFFLOAD_GROUPS; g++) {
        TRY(dev->event_new(offload->device, &offload->ready[g], err));
        TRY(dev->event_new(offload->device, &offload->left[g], err));
        for (int p = 0; p < OFFLOAD_PARTS; p++)
            TRY(dev->event_new(offload->device, &offload->arrived[g][p], err));
    }
    for (int r = 0; r < OFFLOAD_RINGS; r++)
        for (int c = 0; c < OFFLOAD_RING_CHUNKS; c++) {
            struct offload_chunk *chunk = &offload->rings[r].chunks[c];
            TRY(dev->event_new(offload->device, &chunk->full, err));
            TRY(dev->event_new(offload->device, &chunk->free, err));
        }
    return 0;
}

int offload_init(struct offload *offload, const struct offload_options *options,
                 struct device *device, struct err *err)
{
    *offload = (struct offload){.device = device, .options = *options, .holds = {-1, -1, -1}};
    if (!options->away && !options->streamed)
        return 0;
    size_t places = (size_t)(options->layers + options->segment);
    for (int id = 0; id < OFFLOAD_TENSORS; id++) {
        struct offload_tensor *tensor = &offload->tensors[id];
        tensor->places = mem_new(places, sizeof *tensor->places);
        if (tensor->places == NULL)
            return mem_fail(err, places * sizeof *tensor->places, "places of kept tensors");
    }
    return offload_open_events(offload, err);
}

void offload_done(struct offload *offload)
{
    struct device *device = offload->device;
    offload_file_close(offload->file);
    for (int id = 0; id < OFFLOAD_TENSORS; id++)
        mem_free(offload->tensors[id].places);
    if (device == NULL)
        return;
    const struct device_ops *dev = device->dev;
    for (int r = 0; r < OFFLOAD_RINGS; r++)
        for (int c = 0; c < OFFLOAD_RING_CHUNKS; c++) {
            dev->event_free(device, offload->rings[r].chunks[c].full);
            dev->event_free(device, offload->rings[r].chunks[c].free);
        }
    for (int g = 0; g < OFFLOAD_GROUPS; g++) {
        dev->event_free(device, offload->ready[g]);
        dev->event_free(device, offload->left[g]);
        for (int p = 0; p < OFFLOAD_PARTS; p++)
            dev->event_free(device, offload->arrived[g][p]);
    }
    dev->event_free(device, offload->moment);
    dev->stream_free(device, offload->in);
    dev->stream_free(device, offload->out);
    *offload = (struct offload){0};
}

/* Where layers work on it. */
static enum mem_arena offload_at_hand(const struct offload *offload, enum offload_tensor_id id)
{
    bool streamed = offload->options.streamed && (id == OFFLOAD_X || id == OFFLOAD_X_MID);
    return streamed ? MEM_ARENA_HOST : MEM_ARENA_DEVICE;
}

int offload_keep(struct offload *offload, struct arena *arena, enum offload_tensor_id id,
                 int64_t index, const struct offload_name *name, void *slot, int64_t bytes,
                 struct err *err)
{
    enum mem_arena where = arena_where(arena, name->name, name->index);
    if (where == offload_at_hand(offload, id) || !offload->options.away)
        return arena_reserve(arena, name->name, name->index, slot, bytes, err);
    struct offload_place *place = &offload->tensors[id].places[index];
    *place = (struct offload_place){.away = true, .layer = index};
    if (where != MEM_ARENA_FILE)
        return arena_reserve(arena, name->name, name->index, &place->memory, bytes, err);
    const struct mem_buffer *buffer =
        mem_plan_find(arena->plan, MEM_ARENA_FILE, name->name, (int32_t)name->index);
    if (buffer->bytes != mem_file_bytes(bytes))
        return err_set(err, ERR_INTERNAL,
                       "%s %lld: planned with %lld bytes of a file, needed with "
                       "%lld",
                       mem_name_text(name->name), (long long)name->index, (long long)buffer->bytes,
                       (long long)mem_file_bytes(bytes));
    place->offset = buffer->offset;
    return 0;
}

int offload_work(struct offload *offload, struct arena *arena, enum offload_tensor_id id,
                 enum mem_name name, int64_t bytes, struct err *err)
{
    offload->tensors[id].row_bytes = bytes / offload->options.tokens_max;
    return arena_reserve(arena, name, MEM_AT_WORK, &offload->tensors[id].work, bytes, err);
}

int offload_chunks(struct offload *offload, struct arena *arena, int64_t o_bytes, int64_t x_bytes,
                   int64_t piece_bytes, struct err *err)
{
    struct offload_ring *rings = offload->rings;
    for (int i = 0; i < MEM_CHUNKS_O && o_bytes > 0; i++)
        TRY(arena_reserve(arena, MEM_CHUNK, MEM_CHUNK_O + i,
                          &rings[OFFLOAD_RING_O].chunks[rings[OFFLOAD_RING_O].count++].memory,
                          o_bytes, err));
    for (int i = 0; i < MEM_CHUNKS_X && x_bytes > 0; i++) {
        struct offload_ring *ring =
            &rings[i < OFFLOAD_RING_CHUNKS ? OFFLOAD_RING_X : OFFLOAD_RING_DX];
        TRY(arena_reserve(arena, MEM_CHUNK, MEM_CHUNK_X + i, &ring->chunks[ring->count++].memory,
                          x_bytes, err));
    }
    offload->piece_bytes = mem_file_bytes(piece_bytes) + MEM_FILE_ALIGN_BYTES;
    for (int i = 0; i < MEM_CHUNKS_FILE && piece_bytes > 0; i++)
        TRY(arena_reserve(arena, MEM_CHUNK, MEM_CHUNK_FILE + i, &offload->pieces[i],
                          offload->piece_bytes + MEM_FILE_ALIGN_BYTES, err));
    return 0;
}

int offload_open(struct offload *offload, const char *path, int64_t bytes, struct err *err)
{
    return offload_file_open(path, bytes, &offload->file, err);
}

const char *offload_how(const struct offload *offload)
{
    return offload_file_how(offload->file);
}

int64_t offload_account(struct offload *offload)
{
    int64_t bytes = offload->bytes;
    offload->bytes = 0;
    return bytes;
}

/* ---- copies ---- */

int offload_follow(struct offload *offload, struct stream *ahead, struct stream *behind,
                   struct err *err)
{
    const struct device_ops *dev = offload->device->dev;
    TRY(dev->event_record(offload->device, offload->moment, ahead, err));
    return dev->event_wait(offload->device, offload->moment, behind, err);
}

int offload_copy(struct offload *offload, struct stream *stream, void *to, const void *from,
                 int64_t bytes, struct err *err)
{
    offload->bytes += bytes;
    return offload->device->dev->copy(offload->device, stream, to, from, (size_t)bytes, err);
}

static char *offload_piece(const struct offload *offload, int slot)
{
    uintptr_t at = (uintptr_t)offload->pieces[slot];
    return (char *)(at + (-at & (MEM_FILE_ALIGN_BYTES - 1)));
}

/* The pieces are free of the other direction's copies and calls. */
static int offload_turn(struct offload *offload, bool reading, struct err *err)
{
    if (offload->reading) /* out of the pieces */
        TRY(offload->device->dev->sync(offload->device, offload->in, err));
    for (int slot = 0; slot < MEM_CHUNKS_FILE && offload->reading != reading; slot++)
        TRY(offload_file_wait(offload->file, slot, err));
    offload->reading = reading;
    return 0;
}

static int offload_write(struct offload *offload, const char *from, int64_t offset, int64_t bytes,
                         struct err *err)
{
    int slot = offload->next_piece;
    TRY(offload_turn(offload, false, err));
    for (int64_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < offload->piece_bytes ? bytes - at : offload->piece_bytes;
        char *piece = offload_piece(offload, slot);
        TRY(offload_file_wait(offload->file, slot, err));
        TRY(offload_copy(offload, offload->out, piece, from + at, part, err));
        TRY(offload->device->dev->sync(offload->device, offload->out, err));
        TRY(offload_file_start(offload->file, slot, OFFLOAD_FILE_WRITE, piece, offset + at,
                               mem_file_bytes(part), err));
        slot = (slot + 1) % MEM_CHUNKS_FILE;
    }
    offload->next_piece = slot; /* the oldest */
    return 0;
}

/* Three pieces are read ahead of the one that is copied. Reads are of whole pages: of the first
 * and last piece a part is wanted. */
static int offload_read(struct offload *offload, char *to, int64_t from, int64_t bytes,
                        struct err *err)
{
    enum { AHEAD = MEM_CHUNKS_FILE - 1 };
    int64_t room = offload->piece_bytes, begin = from / MEM_FILE_ALIGN_BYTES * MEM_FILE_ALIGN_BYTES;
    int64_t end = mem_file_bytes(from + bytes), count = (end - begin + room - 1) / room;
    TRY(offload_turn(offload, true, err));
    for (int64_t n = 0; n < count + AHEAD; n++) {
        if (n >= AHEAD) {
            int64_t at = begin + (n - AHEAD) * room, slot = (n - AHEAD) % MEM_CHUNKS_FILE;
            int64_t first = at > from ? at : from;
            int64_t last = at + room < from + bytes ? at + room : from + bytes;
            TRY(offload_file_wait(offload->file, (int)slot, err));
            TRY(offload_copy(offload, offload->in, to + (first - from),
                             offload_piece(offload, (int)slot) + (first - at), last - first, err));
        }
        if (n >= count)
            continue;
        if (n >= MEM_CHUNKS_FILE)
            TRY(offload->device->dev->sync(offload->device, offload->in, err));
        int64_t at = begin + n * room;
        TRY(offload_file_start(offload->file, (int)(n % MEM_CHUNKS_FILE), OFFLOAD_FILE_READ,
                               offload_piece(offload, (int)(n % MEM_CHUNKS_FILE)), at,
                               end - at < room ? end - at : room, err));
    }
    return 0;
}

int offload_fetch(struct offload *offload, const struct offload_place *place, int64_t from,
                  void *to, int64_t bytes, struct err *err)
{
    must(place->away);
    if (place->memory != NULL)
        return offload_copy(offload, offload->in, to, (char *)place->memory + from, bytes, err);
    int rc = offload_read(offload, to, place->offset + from, bytes, err);
    return rc == 0 ? 0 : err_wrap(err, rc, "layer %lld: ", (long long)place->layer);
}

/* A tensor's rows that go with a span. */
static int offload_send(struct offload *offload, enum offload_tensor_id id, int64_t index,
                        const struct offload_span *span, struct err *err)
{
    const struct offload_tensor *tensor = &offload->tensors[id];
    const struct offload_place *place = &tensor->places[index];
    bool by_rows = offload_table[id].by_rows && place->memory != NULL;
    if (!by_rows && span->row + span->rows < span->all)
        return 0;
    int64_t at = by_rows ? span->row * tensor->row_bytes : 0;
    int64_t bytes = (by_rows ? span->rows : span->all) * tensor->row_bytes;
    const char *from = (const char *)tensor->work + at;
    if (place->memory != NULL)
        return offload_copy(offload, offload->out, (char *)place->memory + at, from, bytes, err);
    int rc = offload_write(offload, from, place->offset, bytes, err);
    return rc == 0 ? 0 : err_wrap(err, rc, "layer %lld: ", (long long)place->layer);
}

/* ---- groups ---- */

bool offload_is_away(const struct offload *offload, enum offload_tensor_id id, int64_t index)
{
    return offload->tensors[id].places != NULL && offload->tensors[id].places[index].away;
}

static bool offload_any_away(const struct offload *offload, enum offload_group group, int64_t index)
{
    bool any = false;
    for (int id = 0; id < OFFLOAD_TENSORS; id++)
        any = any || (offload_table[id].group == group &&
                      offload_is_away(offload, (enum offload_tensor_id)id, index));
    return any;
}

int offload_ready(struct offload *offload, enum offload_group group, struct stream *stream,
                  struct err *err)
{
    if (!offload->options.away)
        return 0;
    return offload->device->dev->event_record(offload->device, offload->ready[group], stream, err);
}

int offload_out(struct offload *offload, enum offload_group group, int64_t index,
                const struct offload_span *span, struct stream *stream, struct err *err)
{
    const struct device_ops *dev = offload->device->dev;
    if (!offload_any_away(offload, group, index))
        return 0;
    TRY(exposed_enter(offload->device->exposed, EXPOSED_OFFLOAD_OUT, stream, err));
    TRY(dev->event_wait(offload->device, offload->ready[group], offload->out, err));
    for (int id = 0; id < OFFLOAD_TENSORS; id++)
        if (offload_table[id].group == group &&
            offload_is_away(offload, (enum offload_tensor_id)id, index))
            TRY(offload_send(offload, (enum offload_tensor_id)id, index, span, err));
    TRY(dev->event_record(offload->device, offload->left[group], offload->out, err));
    offload->leaving[group] = true;
    offload->holds[group] = index;
    return exposed_leave(offload->device->exposed, stream, err);
}

int offload_vacate(struct offload *offload, enum offload_group group, struct stream *stream,
                   struct err *err)
{
    offload->holds[group] = -1;
    if (!offload->leaving[group])
        return 0;
    offload->leaving[group] = false;
    TRY(exposed_enter(offload->device->exposed, EXPOSED_OFFLOAD_OUT, stream, err));
    TRY(offload->device->dev->event_wait(offload->device, offload->left[group], stream, err));
    return exposed_leave(offload->device->exposed, stream, err);
}

static int offload_part(int64_t row, int64_t all)
{
    return (int)(row * OFFLOAD_PARTS / all);
}

int offload_in(struct offload *offload, enum offload_group group, int64_t index,
               const struct offload_span *span, struct stream *stream, struct err *err)
{
    bool goes_on = span->row > 0 && offload->coming[group] != 0;
    if (span->rows == 0 || !offload_any_away(offload, group, index) ||
        (offload->holds[group] == index && !goes_on))
        return 0;
    TRY(exposed_enter(offload->device->exposed, EXPOSED_OFFLOAD_IN, stream, err));
    /* Which has waited for the copy out: the set has been vacated since. */
    TRY(offload_follow(offload, stream, offload->in, err));
    for (int id = 0; id < OFFLOAD_TENSORS; id++) {
        const struct offload_tensor *tensor = &offload->tensors[id];
        int64_t at = offload_table[id].by_rows ? span->row * tensor->row_bytes : 0;
        int64_t rows = offload_table[id].by_rows ? span->rows : span->row == 0 ? span->all : 0;
        if (offload_table[id].group == group && rows > 0 &&
            offload_is_away(offload, (enum offload_tensor_id)id, index))
            TRY(offload_fetch(offload, &tensor->places[index], at, (char *)tensor->work + at,
                              rows * tensor->row_bytes, err));
    }
    for (int p = offload_part(span->row, span->all);
         p <= offload_part(span->row + span->rows - 1, span->all); p++) {
        TRY(offload->device->dev->event_record(offload->device, offload->arrived[group][p],
                                               offload->in, err));
        offload->coming[group] |= 1u << p;
    }
    offload->holds[group] = index;
    return exposed_leave(offload->device->exposed, stream, err);
}

int offload_arrive(struct offload *offload, const struct offload_span *span, struct stream *stream,
                   struct err *err)
{
    int last = offload_part(span->row + span->rows - 1, span->all);
    for (int g = 0; g < OFFLOAD_GROUPS; g++) {
        unsigned here = offload->coming[g] & ((2u << last) - 1);
        if (here == 0)
            continue;
        offload->coming[g] &= ~here;
        TRY(exposed_enter(offload->device->exposed, EXPOSED_OFFLOAD_IN, stream, err));
        for (int p = 0; p <= last; p++)
            if (here >> p & 1)
                TRY(offload->device->dev->event_wait(offload->device, offload->arrived[g][p],
                                                     stream, err));
        TRY(exposed_leave(offload->device->exposed, stream, err));
    }
    return 0;
}
