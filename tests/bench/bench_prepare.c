/* bench_prepare: a training file to a token shard, the whole of it: reading, JSON, template,
 * tokenizer, writing.
 *
 *   bench_prepare MODEL_DIR FILE THREADS     MODEL_DIR: tokenizer.json, tokenizer_config.json */
#include "common/clock.h"
#include "common/dataset.h"
#include "common/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct err err = {0};
    int64_t bytes = 0;
    struct dataset dataset;
    char out[64], report[64];
    if (argc != 4) {
        fprintf(stderr, "usage: bench_prepare MODEL_DIR FILE THREADS\n");
        return 64;
    }
    (void)snprintf(out, sizeof out, "/tmp/bench_prepare-%d.tok", (int)getpid());
    (void)snprintf(report, sizeof report, "/tmp/bench_prepare-%d.json", (int)getpid());
    const struct dataset_request request = {.path = argv[2],
                                            .model_dir = argv[1],
                                            .out_path = out,
                                            .report_path = report,
                                            .seq_len = 1 << 20,
                                            .threads = (int)strtol(argv[3], NULL, 10)};
    int64_t before = clock_monotonic_ns();
    int rc = io_file_size(argv[2], &bytes, &err);
    if (rc == 0)
        rc = dataset_prepare(&request, &err);
    double seconds = (double)(clock_monotonic_ns() - before) * 1e-9;
    if (rc == 0)
        rc = dataset_open(out, &dataset, &err);
    (void)unlink(out);
    (void)unlink(report);
    if (rc != 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("%s, %s threads: %.1f MB, %lld tokens, %.2f s with loading: %.2f MB/s, %.3f Mtok/s\n",
           argv[2], argv[3], (double)bytes * 1e-6, (long long)dataset.tokens, seconds,
           (double)bytes / seconds * 1e-6, (double)dataset.tokens / seconds * 1e-6);
    dataset_close(&dataset);
    return 0;
}
