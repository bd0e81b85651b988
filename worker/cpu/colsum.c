/* colsum: threads split the columns; a column is summed in blocks of 64 rows, blocks added in
 * order, by one thread: the same bits for any thread count. 95 GB/s (bench_ops, tiny-llama, one
 * core of an EPYC of family 26, 2026-11). */
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/ops_cpu.h"
#include "worker/cpu/simd.h"

#include <string.h>

enum { BLOCK_ROWS = 64, COLUMNS = 256 /* of a thread's turn */ };

CPU_CLONES static void colsum_columns(const float *x, int64_t rows, int64_t width, int64_t count,
                                      float *out)
{
    float part[COLUMNS];
    for (int64_t first = 0; first < rows; first += BLOCK_ROWS) {
        int64_t end = first + BLOCK_ROWS < rows ? first + BLOCK_ROWS : rows;
        memset(part, 0, sizeof part);
        for (int64_t row = first; row < end; row++) {
#pragma omp simd
            for (int64_t column = 0; column < count; column++)
                part[column] += x[row * width + column];
        }
#pragma omp simd
        for (int64_t column = 0; column < count; column++)
            out[column] += part[column];
    }
}

int cpu_colsum(struct device *device, struct stream *stream, const struct ops_colsum *args,
               struct err *err)
{
    (void)stream, (void)err;
    int64_t width = args->width;
#pragma omp parallel for num_threads(device_cpu_threads(device)) schedule(static)
    for (int64_t first = 0; first < width; first += COLUMNS)
        colsum_columns((const float *)args->x + first, args->rows, width,
                       width - first < COLUMNS ? width - first : COLUMNS, args->out + first);
    return 0;
}
