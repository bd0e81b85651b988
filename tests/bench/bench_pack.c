/* bench_pack: rows packed into sequences, and the order of an epoch: how long it takes, and how
 * much of the sequences stays empty.
 *
 *   bench_pack ROWS SEQ_LEN     rows of 2^6 to SEQ_LEN tokens, as many of each power of two */
#include "common/clock.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/pack.h"
#include "common/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double seconds_since(int64_t before)
{
    return (double)(clock_monotonic_ns() - before) * 1e-9;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct pack pack = {0};
    struct pack_order order = {0};
    int64_t rows = argc == 3 ? strtoll(argv[1], NULL, 10) : 0;
    int64_t seq_len = argc == 3 ? strtoll(argv[2], NULL, 10) : 0;
    CLEANUP(mem_free_ptr) int64_t *lengths = mem_new((size_t)rows, sizeof *lengths);
    if (rows < 1 || seq_len < 64 || seq_len > LIMIT_SEQ_LEN || lengths == NULL) {
        fprintf(stderr, "usage: bench_pack ROWS SEQ_LEN\n");
        return 64;
    }
    int64_t tokens = 0;
    for (int64_t row = 0; row < rows; row++) {
        double draw = (double)rng_below(1, RNG_STREAM_TEST, (uint64_t)row, 1 << 30) * 0x1p-30;
        lengths[row] = (int64_t)exp2(6 + draw * (log2((double)seq_len) - 6));
        tokens += lengths[row];
    }
    int64_t before = clock_monotonic_ns();
    int rc = pack_build(lengths, rows, seq_len, true, &pack, &err);
    double packed_s = seconds_since(before);
    before = clock_monotonic_ns();
    if (rc == 0)
        rc = pack_order_init(&order, 1, pack.sequences, &err);
    if (rc != 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    (void)pack_order_at(&order, 0);
    printf("%lld rows, %lld tokens, %lld sequences of %lld: %.3f %% empty; packed in %.3f s, order "
           "of an epoch in %.3f s\n",
           (long long)rows, (long long)tokens, (long long)pack.sequences, (long long)seq_len,
           100 - 100 * (double)tokens / ((double)pack.sequences * (double)seq_len), packed_s,
           seconds_since(before));
    pack_order_done(&order);
    pack_done(&pack);
    return 0;
}
