/* dataset: opening a token shard. The file is mapped read-only and checked once, in full, in the
 * order of the format: header, sizes, hash, then what the hash cannot know (a writer's own fault):
 * offsets rise, ids are below the vocabulary, flags are 0 or 1. After that nothing re-checks. */
#include "common/dataset.h"

#include "common/dataset_file.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "shards are mapped as they are");
_Static_assert(sizeof(struct dataset_header) == DATASET_HEADER_BYTES, "as drawn in dataset.h");

void dataset_close(struct dataset *dataset)
{
    if (dataset->map != NULL)
        (void)munmap(dataset->map, (size_t)dataset->map_bytes); /* our own mapping */
    *dataset = (struct dataset){0};
}

static int dataset_map(const char *path, struct dataset *dataset, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0)
        return err_set_errno(err, errno, "%s", path);
    int rc = 0;
    if (fstat(fd, &info) != 0) {
        rc = err_set_errno(err, errno, "%s", path);
    } else if (info.st_size < DATASET_HEADER_BYTES + 16) {
        rc = err_set(err, ERR_CORRUPT, "%s: %lld bytes are too few for a token shard", path,
                     (long long)info.st_size);
    } else {
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
            rc = err_set_errno(err, errno, "%s: map", path);
        } else {
            dataset->map = map;
            dataset->map_bytes = info.st_size;
        }
    }
    (void)close(fd); /* opened for reading; the mapping stays */
    return rc;
}

/* Bytes of a shard with these counts, or -1 when they cannot be. */
static int64_t dataset_bytes(const struct dataset_header *header)
{
    int64_t offsets = 0;
    int64_t tokens = 0;
    int64_t bytes = 0;
    if (header->examples < 0 || header->tokens < 0 || header->examples == INT64_MAX ||
        __builtin_mul_overflow(header->examples + 1, 8, &offsets) ||
        __builtin_mul_overflow(header->tokens, 5, &tokens) ||
        __builtin_add_overflow(offsets, tokens, &bytes) ||
        __builtin_add_overflow(bytes, DATASET_HEADER_BYTES + 8, &bytes))
        return -1;
    return bytes;
}

static int dataset_check_contents(const struct dataset *dataset, const char *path, struct err *err)
{
    const int64_t *offsets = dataset->offsets;
    if (offsets[0] != 0 || offsets[dataset->examples] != dataset->tokens)
        return err_set(err, ERR_CORRUPT, "%s: its offsets do not span its tokens", path);
    for (int64_t e = 0; e < dataset->examples; e++)
        if (offsets[e + 1] <= offsets[e])
            return err_set(err, ERR_CORRUPT, "%s: example %lld has no tokens", path, (long long)e);
    int64_t trained = 0;
    for (int64_t t = 0; t < dataset->tokens; t++) {
        if (dataset->ids[t] < 0 || dataset->ids[t] >= dataset->vocab)
            return err_set(err, ERR_CORRUPT, "%s: token %lld has the id %d of a vocabulary of %lld",
                           path, (long long)t, dataset->ids[t], (long long)dataset->vocab);
        if (dataset->trained[t] > 1)
            return err_set(err, ERR_CORRUPT, "%s: token %lld has a flag of %d", path, (long long)t,
                           dataset->trained[t]);
        trained += dataset->trained[t];
    }
    if (trained != dataset->trained_tokens)
        return err_set(err, ERR_CORRUPT, "%s: %lld trained tokens where the header says %lld", path,
                       (long long)trained, (long long)dataset->trained_tokens);
    if (dataset->vocab < 1) /* of a shard without tokens */
        return err_set(err, ERR_CORRUPT, "%s: a vocabulary of %lld", path,
                       (long long)dataset->vocab);
    return 0;
}

static int dataset_check(struct dataset *dataset, const char *path, struct err *err)
{
    struct dataset_header header;
    const char *bytes = dataset->map;
    must(bytes != NULL);
    memcpy(&header, bytes, sizeof header);
    if (memcmp(header.magic, DATASET_MAGIC, sizeof header.magic) != 0)
        return err_set(err, ERR_CORRUPT, "%s: not a token shard of this version", path);
    if (dataset_bytes(&header) != dataset->map_bytes)
        return err_set(err, ERR_CORRUPT, "%s: %lld bytes long, not what its header says", path,
                       (long long)dataset->map_bytes);
    uint64_t hash = 0;
    size_t hashed = (size_t)dataset->map_bytes - sizeof hash;
    memcpy(&hash, bytes + hashed, sizeof hash);
    if (io_hash64(bytes, hashed) != hash)
        return err_set(err, ERR_CORRUPT, "%s: its hash does not match its bytes", path);
    for (size_t i = 0; i < sizeof header.zero; i++)
        if (header.zero[i] != 0)
            return err_set(err, ERR_CORRUPT, "%s: reserved bytes are not zero", path);
    dataset->examples = header.examples;
    dataset->tokens = header.tokens;
    dataset->trained_tokens = header.trained_tokens;
    dataset->vocab = header.vocab;
    dataset->offsets = (const int64_t *)(const void *)(bytes + DATASET_HEADER_BYTES);
    dataset->ids = (const int32_t *)(const void *)(dataset->offsets + header.examples + 1);
    dataset->trained = (const uint8_t *)(dataset->ids + header.tokens);
    return dataset_check_contents(dataset, path, err);
}

int dataset_open(const char *path, struct dataset *ret, struct err *err)
{
    struct dataset dataset = {0};
    TRY(dataset_map(path, &dataset, err));
    int rc = dataset_check(&dataset, path, err);
    if (rc != 0) {
        dataset_close(&dataset);
        return rc;
    }
    *ret = dataset;
    return 0;
}
