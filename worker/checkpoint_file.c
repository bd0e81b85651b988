/* checkpoint_file: see checkpoint_file.h. Bytes go through a bounded host buffer between device and
 * file, and through the hash on their way. */
#include "worker/checkpoint_file.h"

#include "common/mem.h"
#include "common/must.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    CHECKPOINT_CHUNK_BYTES = 4 << 20, /* large enough to stream */
    CHECKPOINT_HEADER_WORDS = 8,
    CHECKPOINT_WORD_BYTES = 8
};
static const char checkpoint_magic[CHECKPOINT_WORD_BYTES + 1] = "ITHCKP1\n";

static void checkpoint_file_digest(XXH3_state_t *state, char ret_hex[IO_HASH_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    for (size_t i = 0; i < sizeof canonical.digest; i++) {
        ret_hex[2 * i] = digits[canonical.digest[i] >> 4];
        ret_hex[2 * i + 1] = digits[canonical.digest[i] & 15];
    }
    ret_hex[IO_HASH_BYTES - 1] = '\0';
}

static int64_t checkpoint_header_bytes(int64_t units)
{
    return (CHECKPOINT_HEADER_WORDS + units) * CHECKPOINT_WORD_BYTES;
}

int64_t checkpoint_file_bytes(const struct fsdp *fsdp)
{
    int64_t elements = 0;
    for (int64_t u = 0; u < fsdp->unit_count; u++)
        elements += fsdp->units[u].shard;
    return checkpoint_header_bytes(fsdp->unit_count) +
           CHECKPOINT_PARTS * elements * (int64_t)sizeof(float);
}

struct checkpoint_sink {
    const struct fsdp *fsdp;
    struct stream *stream;
    int fd;
    XXH3_state_t hash;
    void *chunk; /* CHECKPOINT_CHUNK_BYTES */
};

static int checkpoint_sink_put(struct checkpoint_sink *sink, const void *bytes, size_t length,
                               struct err *err)
{
    (void)XXH3_128bits_update(&sink->hash, bytes, length); /* fails only on NULL */
    return io_write_full(sink->fd, bytes, length, err);
}

static int checkpoint_sink_header(struct checkpoint_sink *sink, int64_t step, struct err *err)
{
    const struct fsdp *fsdp = sink->fsdp;
    int64_t *words = sink->chunk;
    size_t length = (size_t)checkpoint_header_bytes(fsdp->unit_count);
    must(length <= CHECKPOINT_CHUNK_BYTES);
    memset(words, 0, length);
    memcpy(words, checkpoint_magic, CHECKPOINT_WORD_BYTES);
    words[1] = fsdp->index;
    words[2] = fsdp->shards;
    words[3] = step;
    words[4] = fsdp->unit_count;
    for (int64_t u = 0; u < fsdp->unit_count; u++)
        words[CHECKPOINT_HEADER_WORDS + u] = fsdp->units[u].shard;
    return checkpoint_sink_put(sink, words, length, err);
}

static int checkpoint_sink_floats(struct checkpoint_sink *sink, const float *values, int64_t count,
                                  struct err *err)
{
    const int64_t chunk = CHECKPOINT_CHUNK_BYTES / (int64_t)sizeof(float);
    struct device *device = sink->fsdp->device;
    for (int64_t at = 0; at < count; at += chunk) {
        size_t length = (size_t)(count - at < chunk ? count - at : chunk) * sizeof(float);
        TRY(device->dev->copy(device, sink->stream, sink->chunk, values + at, length, err));
        TRY(device->dev->sync(device, sink->stream, err));
        TRY(checkpoint_sink_put(sink, sink->chunk, length, err));
    }
    return 0;
}

static int checkpoint_sink_all(struct checkpoint_sink *sink, int64_t step, struct err *err)
{
    TRY(checkpoint_sink_header(sink, step, err));
    for (int64_t u = 0; u < sink->fsdp->unit_count; u++) {
        const struct fsdp_unit *unit = &sink->fsdp->units[u];
        TRY(checkpoint_sink_floats(sink, unit->master, unit->shard, err));
        TRY(checkpoint_sink_floats(sink, unit->m, unit->shard, err));
        TRY(checkpoint_sink_floats(sink, unit->v, unit->shard, err));
    }
    return 0;
}

int checkpoint_file_write(const char *path, const struct fsdp *fsdp, struct stream *stream,
                          int64_t step, struct checkpoint_entry *ret_entry, struct err *err)
{
    CLEANUP(mem_free_ptr) void *chunk = mem_new(1, CHECKPOINT_CHUNK_BYTES);
    CLEANUP(io_file_abort) struct io_file file = {.fd = -1};
    if (chunk == NULL)
        return mem_fail(err, CHECKPOINT_CHUNK_BYTES, "a checkpoint's buffer");
    TRY(io_file_create(&file, path, 0600, err));
    struct checkpoint_sink sink = {.fsdp = fsdp, .stream = stream, .fd = file.fd, .chunk = chunk};
    (void)XXH3_128bits_reset(&sink.hash); /* fails only on NULL */
    int rc = checkpoint_sink_all(&sink, step, err);
    if (rc != 0)
        return err_wrap(err, rc, "%s: ", path);
    TRY(io_file_commit(&file, err));
    ret_entry->bytes = checkpoint_file_bytes(fsdp);
    checkpoint_file_digest(&sink.hash, ret_entry->hash);
    return 0;
}

static void checkpoint_close_fd(const int *fd)
{
    if (*fd >= 0)
        (void)close(*fd); /* only read */
}

int checkpoint_file_hash(const char *path, char ret_hex[IO_HASH_BYTES], struct err *err)
{
    CLEANUP(mem_free_ptr) char *chunk = mem_new(1, CHECKPOINT_CHUNK_BYTES);
    CLEANUP(checkpoint_close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    int64_t bytes = 0;
    if (chunk == NULL)
        return mem_fail(err, CHECKPOINT_CHUNK_BYTES, "a checkpoint's buffer");
    if (fd < 0)
        return err_set_errno(err, errno, "%s", path);
    TRY(io_file_size(path, &bytes, err));
    XXH3_state_t hash;
    (void)XXH3_128bits_reset(&hash);
    for (int64_t at = 0; at < bytes; at += CHECKPOINT_CHUNK_BYTES) {
        int64_t left = bytes - at;
        size_t length = (size_t)(left < CHECKPOINT_CHUNK_BYTES ? left : CHECKPOINT_CHUNK_BYTES);
        int rc = io_read_full(fd, chunk, length, err);
        if (rc != 0)
            return err_wrap(err, rc, "%s: ", path);
        (void)XXH3_128bits_update(&hash, chunk, length);
    }
    checkpoint_file_digest(&hash, ret_hex);
    return 0;
}

static int checkpoint_file_take(struct checkpoint_file *file, const char *path,
                                const struct model_shape *shape, struct err *err)
{
    int64_t words[CHECKPOINT_HEADER_WORDS], bytes;
    TRY(io_file_size(path, &bytes, err));
    if (bytes < checkpoint_header_bytes(shape->unit_count))
        return err_set(err, ERR_CORRUPT, "has %lld bytes, fewer than a header", (long long)bytes);
    TRY(io_pread_full(file->fd, words, sizeof words, 0, err));
    file->index = words[1];
    file->shards = words[2];
    file->step = words[3];
    file->units = words[4];
    if (memcmp(words, checkpoint_magic, CHECKPOINT_WORD_BYTES) != 0 || words[5] != 0 ||
        words[6] != 0 || words[7] != 0)
        return err_set(err, ERR_CORRUPT, "not a checkpoint file of this version");
    if (file->units != shape->unit_count || file->shards < 1 || file->shards > LIMIT_RANKS ||
        file->index < 0 || file->index >= file->shards)
        return err_set(err, ERR_CORRUPT, "is not of this model");
    size_t units = (size_t)file->units;
    file->shard = mem_new(2 * units, sizeof *file->shard);
    if (file->shard == NULL)
        return mem_fail(err, 2 * units * sizeof *file->shard, "a checkpoint's table");
    file->offset = file->shard + units;
    TRY(io_pread_full(file->fd, file->shard, units * sizeof *file->shard, sizeof words, err));
    int64_t at = checkpoint_header_bytes(file->units);
    for (size_t u = 0; u < units; u++) {
        int64_t elements = shape->unit_elements[u];
        if (file->shard[u] < 1 || file->shard[u] > elements + MODEL_SHAPE_ALIGN ||
            file->shard[u] * file->shards < elements)
            return err_set(err, ERR_CORRUPT, "is not of this model");
        file->offset[u] = at;
        at += CHECKPOINT_PARTS * file->shard[u] * (int64_t)sizeof(float);
    }
    if (at != bytes)
        return err_set(err, ERR_CORRUPT, "has %lld bytes, its header says %lld", (long long)bytes,
                       (long long)at);
    return 0;
}

int checkpoint_file_open(const char *path, const struct model_shape *shape,
                         struct checkpoint_file *ret, struct err *err)
{
    struct checkpoint_file file = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (file.fd < 0)
        return err_set_errno(err, errno, "%s", path);
    int rc = checkpoint_file_take(&file, path, shape, err);
    if (rc != 0) {
        checkpoint_file_close(&file);
        return err_wrap(err, rc, "%s: ", path);
    }
    *ret = file;
    return 0;
}

void checkpoint_file_close(struct checkpoint_file *file)
{
    checkpoint_close_fd(&file->fd);
    mem_free(file->shard); /* and offset, behind it */
    *file = (struct checkpoint_file){.fd = -1};
}

int checkpoint_file_read(const struct checkpoint_file *file, int64_t unit,
                         enum checkpoint_part part, int64_t first, int64_t count, float *ret,
                         struct err *err)
{
    must(unit >= 0 && unit < file->units && first >= 0 && count >= 0);
    must(first + count <= file->shard[unit]);
    int64_t element = (int64_t)part * file->shard[unit] + first;
    return io_pread_full(file->fd, ret, (size_t)count * sizeof *ret,
                         file->offset[unit] + element * (int64_t)sizeof *ret, err);
}
