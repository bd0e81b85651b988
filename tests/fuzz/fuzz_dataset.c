/* fuzz_dataset: a token shard. The bytes are tried twice: as they are, and with the hash at their
 * end put right, so that mutations get past it. A shard that opens is as dataset.h draws it, and
 * the writer makes the same bytes of what is in it. */
#include "common/buf.h"
#include "common/dataset.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void dataset_survives(const struct dataset *dataset)
{
    struct err err;
    struct dataset_writer *writer = NULL;
    must(dataset_writer_new(fuzz_path("written.tok"), dataset->vocab, &writer, &err) == 0);
    for (int64_t e = 0; e < dataset->examples; e++) {
        int64_t from = dataset->offsets[e];
        must(dataset->offsets[e + 1] > from && dataset->offsets[e + 1] <= dataset->tokens);
        must(dataset_writer_add(writer, dataset->ids + from, dataset->trained + from,
                                dataset->offsets[e + 1] - from, &err) == 0);
    }
    must(dataset_writer_commit(writer, &err) == 0);
    dataset_writer_free(writer);
    struct buf bytes;
    buf_init(&bytes, (size_t)dataset->map_bytes);
    must(io_read_file(fuzz_path("written.tok"), (size_t)dataset->map_bytes, &bytes, &err) == 0);
    must(bytes.length == (size_t)dataset->map_bytes);
    must(memcmp(bytes.data, dataset->map, bytes.length) == 0);
    buf_done(&bytes);
}

static void dataset_try(const void *bytes, size_t size)
{
    struct err err = {.code = ERR_NONE};
    struct dataset dataset;
    int rc = dataset_open(fuzz_file(bytes, size), &dataset, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        must(rc == -ERR_CORRUPT);
        return;
    }
    must(dataset.examples >= 0 && dataset.examples <= dataset.tokens);
    must(dataset.trained_tokens >= 0 && dataset.trained_tokens <= dataset.tokens);
    fuzz_taken++;
    dataset_survives(&dataset);
    dataset_close(&dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    dataset_try(data, size);
    uint64_t hash = 0;
    if (size > sizeof hash) {
        CLEANUP(mem_free_ptr) uint8_t *mended = mem_new(1, size);
        must(mended != NULL);
        memcpy(mended, data, size);
        hash = io_hash64(mended, size - sizeof hash);
        memcpy(mended + size - sizeof hash, &hash, sizeof hash);
        dataset_try(mended, size);
    }
    must(mem_live() == live);
    return 0;
}
