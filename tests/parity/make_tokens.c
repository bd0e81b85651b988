/* make_tokens: a token shard of random documents, all of one length, every token but the first
 * trained, for programs that train beside ours on the same tokens.
 *
 *     make_tokens OUT.tok VOCAB LENGTH DOCUMENTS SEED */
#include "common/dataset.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int write_documents(const char *path, int64_t vocab, int64_t length, int64_t documents,
                           uint64_t seed, struct err *err)
{
    CLEANUP(mem_free_ptr) int32_t *ids = mem_new((size_t)length, sizeof *ids);
    CLEANUP(mem_free_ptr) uint8_t *trained = mem_new((size_t)length, 1);
    struct dataset_writer *writer = NULL;
    must(ids != NULL && trained != NULL);
    memset(trained + 1, 1, (size_t)length - 1);
    TRY(dataset_writer_new(path, vocab, &writer, err));
    int rc = 0;
    for (int64_t d = 0; rc == 0 && d < documents; d++) {
        for (int64_t t = 0; t < length; t++)
            ids[t] = (int32_t)rng_below(seed, RNG_STREAM_TEST, (uint64_t)(d * length + t),
                                        (uint64_t)vocab);
        rc = dataset_writer_add(writer, ids, trained, length, err);
    }
    if (rc == 0)
        rc = dataset_writer_commit(writer, err);
    dataset_writer_free(writer);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: make_tokens OUT.tok VOCAB LENGTH DOCUMENTS SEED\n");
        return 64;
    }
    struct err err = {0};
    int64_t number[4];
    for (int i = 0; i < 4; i++)
        number[i] = strtoll(argv[2 + i], NULL, 10);
    must(number[0] > 0 && number[1] > 1 && number[2] > 0);
    int rc = write_documents(argv[1], number[0], number[1], number[2], (uint64_t)number[3], &err);
    if (rc != 0)
        fprintf(stderr, "make_tokens: %s\n", err.text);
    return rc == 0 ? 0 : 1;
}
