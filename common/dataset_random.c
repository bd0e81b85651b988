/* dataset_random: one document's tokens are drawn, and written as often as asked for. */
#include "common/dataset_random.h"

#include "common/dataset.h"
#include "common/mem.h"
#include "common/rng.h"

#include <string.h>

static int random_write(struct dataset_writer *writer, int64_t documents, int64_t length,
                        int64_t vocab, struct err *err)
{
    CLEANUP(mem_free_ptr) int32_t *ids = mem_new((size_t)length, sizeof *ids);
    CLEANUP(mem_free_ptr) uint8_t *trained = mem_new((size_t)length, 1);
    if (ids == NULL || trained == NULL)
        return mem_fail(err, (size_t)length * 5, "tokens");
    for (int64_t t = 0; t < length; t++)
        ids[t] = (int32_t)rng_below(1, RNG_STREAM_INIT, (uint64_t)t, (uint64_t)vocab);
    memset(trained, 1, (size_t)length);
    for (int64_t d = 0; d < documents; d++)
        TRY(dataset_writer_add(writer, ids, trained, length, err));
    return dataset_writer_commit(writer, err);
}

int dataset_random_write(const char *path, int64_t documents, int64_t length, int64_t vocab,
                         struct err *err)
{
    struct dataset_writer *writer = NULL;
    TRY(dataset_writer_new(path, vocab, &writer, err));
    int rc = random_write(writer, documents, length, vocab, err);
    dataset_writer_free(writer);
    return rc;
}
