/* bench_weights: how fast ranks load a model folder and export it again, beside what the disk
 * gives: the same bytes read from the file and thrown away, written to another and synced, by one
 * process.
 *
 *     bench_weights FOLDER [MIB [RANKS [ROUNDS]]]     FOLDER: scratch, on the disk that is measured
 *
 * Makes a model of about MIB in bf16. "cold": the file's pages are dropped before. Rates are of the
 * file's bytes, the best of the rounds, by the clock and, in parentheses, by the processor time of
 * all ranks together, which other load hardly moves; memory is the peak during a load beyond what
 * is resident before, the largest of any rank. */
#include "common/clock.h"
#include "common/dataset.h"
#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/safetensors.h"
#include "worker/export.h"
#include "worker/rank.h"
#include "worker/weights.h"

#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, RANKS_MAX = 64 };

static struct model_config config = {.family = MODEL_FAMILY_LLAMA,
                                     .vocab_size = 4096,
                                     .hidden_size = 1024,
                                     .intermediate_size = 4096,
                                     .heads = 8,
                                     .kv_heads = 8,
                                     .head_dim = 128,
                                     .context_max = 4096,
                                     .rms_norm_eps = 1e-5,
                                     .rope_theta = 10000,
                                     .initializer_range = 0.02};

struct result {
    double cold, warm, export;   /* seconds, the slowest rank's */
    double warm_cpu, export_cpu; /* seconds of processors, the sum of the ranks' */
    int64_t peak;                /* bytes */
};

static int make_model(const char *dir, int64_t *ret_bytes, struct err *err)
{
    CLEANUP(model_shape_done) struct model_shape shape = {.rows = NULL};
    CLEANUP(mem_free_ptr) char *path = io_join(dir, "model.safetensors");
    CLEANUP(mem_free_ptr) char *config_path = io_join(dir, "config.json");
    CLEANUP(mem_free_ptr) float *values = mem_new(CHUNK, sizeof *values);
    CLEANUP(json_unref) json_t *json = model_config_json(&config);
    struct safetensors_writer *writer = NULL;
    must(path != NULL && config_path != NULL && values != NULL);
    for (int i = 0; i < CHUNK; i++)
        values[i] = 0.02f * (float)(i % 127 - 63);
    TRY(io_make_dirs(dir, 0755, err));
    TRY(json_write_file(config_path, json, 0644, err));
    TRY(model_shape_build(&config, &shape, err));
    TRY(safetensors_writer_new(path, &writer, err));
    for (int64_t i = 0; i < shape.row_count; i++) {
        const int64_t dims[2] = {shape.rows[i].rows, shape.rows[i].cols};
        TRY(safetensors_writer_declare(writer, shape.rows[i].name, DTYPE_BF16, shape.rows[i].dims,
                                       dims, err));
    }
    for (int64_t i = 0; i < shape.row_count; i++)
        for (int64_t at = 0, left; (left = shape.rows[i].elements - at) > 0; at += CHUNK)
            TRY(safetensors_writer_put_f32(writer, values, left < CHUNK ? left : CHUNK, err));
    TRY(safetensors_writer_commit(writer, err));
    safetensors_writer_free(writer);
    return io_file_size(path, ret_bytes, err);
}

static void drop_pages(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0 && fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    (void)close(fd);
}

/* Seconds to read the file, thrown away; and to write as much and sync it. */
static double read_seconds(const char *path)
{
    CLEANUP(mem_free_ptr) char *bytes = mem_new(4, CHUNK);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int64_t start = clock_monotonic_ns();
    must(fd >= 0);
    while (read(fd, bytes, (size_t)4 * CHUNK) > 0)
        continue;
    (void)close(fd);
    return (double)(clock_monotonic_ns() - start) * 1e-9;
}

static double write_seconds(const char *path, int64_t size)
{
    CLEANUP(mem_free_ptr) char *bytes = mem_new(4, CHUNK);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int64_t start = clock_monotonic_ns();
    must(fd >= 0);
    for (int64_t left = size; left > 0;) {
        ssize_t now = write(fd, bytes, left < 4 * CHUNK ? (size_t)left : (size_t)4 * CHUNK);
        must(now > 0);
        left -= now;
    }
    must(fsync(fd) == 0);
    (void)close(fd);
    double seconds = (double)(clock_monotonic_ns() - start) * 1e-9;
    (void)unlink(path);
    return seconds;
}

static int64_t resident(const char *key)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t length = read(fd, text, sizeof text - 1);
    (void)close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *at = strstr(text, key);
    return at != NULL ? strtoll(at + strlen(key), NULL, 10) * 1024 : 0;
}

static void reset_peak(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    must(fd >= 0 && write(fd, "5", 1) == 1);
    (void)close(fd);
}

static double cpu_seconds(void)
{
    struct timespec now;
    must(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The slowest rank's time since start. */
static int seconds_of_all(struct rank *rank, int64_t start, double *ret, struct err *err)
{
    *ret = (double)(clock_monotonic_ns() - start) * 1e-9;
    TRY(coll_barrier(rank->coll, err));
    return 0;
}

static int time_round(struct rank *rank, const char *weights, struct result *best, struct err *err)
{
    double cold = 0, warm = 0, export = 0;
    const char *dir = rank->plan->model_dir;
    TRY(coll_barrier(rank->coll, err));
    if (rank->number == 0)
        drop_pages(weights);
    TRY(coll_barrier(rank->coll, err));
    int64_t before = resident("VmRSS:"), start = clock_monotonic_ns();
    reset_peak();
    TRY(weights_load(&rank->fsdp, dir, NULL, err));
    TRY(seconds_of_all(rank, start, &cold, err));
    int64_t peak = resident("VmHWM:") - before;
    double cpu = cpu_seconds();
    start = clock_monotonic_ns();
    TRY(weights_load(&rank->fsdp, dir, NULL, err));
    double warm_cpu = cpu_seconds() - cpu;
    TRY(seconds_of_all(rank, start, &warm, err));
    cpu = cpu_seconds();
    start = clock_monotonic_ns();
    TRY(export_model(rank, err));
    double export_cpu = cpu_seconds() - cpu;
    TRY(seconds_of_all(rank, start, &export, err));
    *best = (struct result){.cold = fmin(best->cold, cold),
                            .warm = fmin(best->warm, warm),
                            .export = fmin(best->export, export),
                            .warm_cpu = fmin(best->warm_cpu, warm_cpu),
                            .export_cpu = fmin(best->export_cpu, export_cpu),
                            .peak = peak > best->peak ? peak : best->peak};
    return 0;
}

static int run_rank(const struct launch_plan *plan, int number, const char *weights, int rounds,
                    struct result *ret, struct err *err)
{
    struct rank rank;
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
    TRY(rank_open(&rank, plan, number, err));
    *ret = (struct result){.cold = HUGE_VAL,
                           .warm = HUGE_VAL,
                           .export = HUGE_VAL,
                           .warm_cpu = HUGE_VAL,
                           .export_cpu = HUGE_VAL};
    for (int round = 0; round < rounds; round++)
        TRY(time_round(&rank, weights, ret, err));
    rank_close(&rank);
    return 0;
}

static int make_plan(const char *folder, int ranks, struct launch_plan *ret, struct err *err)
{
    static const char spec[] =
        "{\"model\":\"m\",\"training_file\":\"file-a\",\"ithaca\":{\"seq_len\":16}}";
    static const int32_t ids[16] = {1, 2, 3};
    static const uint8_t trained[16] = {0, 1};
    CLEANUP(json_unref) json_t *json = NULL;
    CLEANUP(mem_free_ptr) char *tokens = mem_printf("%s/job/tokens/train.tok", folder);
    CLEANUP(mem_free_ptr) char *tokens_dir = mem_printf("%s/job/tokens", folder);
    struct dataset_writer *writer = NULL;
    *ret = (struct launch_plan){.job_id = "bench",
                                .attempt = 1,
                                .world = (uint32_t)ranks,
                                .heartbeat_limit_ms = 600000,
                                .coll_timeout_ms = 600000,
                                .orphan_limit_ms = 600000,
                                .threads = 1,
                                .job_dir = mem_printf("%s/job", folder),
                                .model_dir = mem_printf("%s/base", folder)};
    (void)snprintf(ret->shm_name, sizeof ret->shm_name, "/ithaca-bench-%d", (int)getpid());
    TRY(json_parse(spec, strlen(spec), "spec", &json, err));
    TRY(job_spec_parse(json, &ret->spec, err));
    ret->spec.gpus = ret->spec.sequences = ranks;
    ret->spec.grad_accum = 1;
    ret->spec.context_kind = JOB_context_kind_NONE;
    ret->spec.ulysses = ret->spec.ring = 1;
    ret->spec.recompute = JOB_recompute_NONE;
    ret->spec.tile_mlp = ret->spec.tile_loss = 16;
    CLEANUP(mem_free_ptr) char *attempt = launch_plan_attempt_dir(ret);
    TRY(io_make_dirs(tokens_dir, 0755, err));
    TRY(io_make_dirs(attempt, 0755, err));
    TRY(dataset_writer_new(tokens, config.vocab_size, &writer, err));
    TRY(dataset_writer_add(writer, ids, trained, 16, err));
    TRY(dataset_writer_commit(writer, err));
    dataset_writer_free(writer);
    return 0;
}

static int run(const char *folder, int64_t mib, int ranks, int rounds, struct err *err)
{
    struct launch_plan plan;
    int64_t bytes = 0;
    struct result *all = mmap(NULL, sizeof *all * RANKS_MAX, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(all != MAP_FAILED);
    config.layers = (mib - 16) / 32 + 1; /* a layer has 16 Mi elements and some */
    TRY(make_plan(folder, ranks, &plan, err));
    TRY(make_model(plan.model_dir, &bytes, err));
    CLEANUP(mem_free_ptr) char *weights = io_join(plan.model_dir, "model.safetensors");
    CLEANUP(mem_free_ptr) char *other = io_join(folder, "other");
    double read_best = HUGE_VAL, cached = HUGE_VAL, write_best = HUGE_VAL;
    for (int round = 0; round < rounds; round++) {
        drop_pages(weights);
        read_best = fmin(read_best, read_seconds(weights));
        cached = fmin(cached, read_seconds(weights));
        write_best = fmin(write_best, write_seconds(other, bytes));
    }
    for (int r = 0; r < ranks; r++)
        if (fork() == 0) {
            must(freopen("/dev/null", "w", stdout) != NULL);
            int rc = run_rank(&plan, r, weights, rounds, &all[r], err);
            if (rc != 0)
                (void)fprintf(stderr, "rank %d: %s\n", r, err->text);
            _exit(rc != 0);
        }
    struct result worst = {.cold = 0};
    for (int r = 0, status = 0; r < ranks; r++) {
        must(wait(&status) > 0 && status == 0);
    }
    for (int r = 0; r < ranks; r++) {
        worst.cold = fmax(worst.cold, all[r].cold);
        worst.warm = fmax(worst.warm, all[r].warm);
        worst.export = fmax(worst.export, all[r].export);
        worst.warm_cpu += all[r].warm_cpu;
        worst.export_cpu += all[r].export_cpu;
        worst.peak = all[r].peak > worst.peak ? all[r].peak : worst.peak;
    }
    double gb = (double)bytes * 1e-9;
    printf("file %.3f GB, %d ranks, best of %d rounds, GB/s of the file's bytes\n", gb, ranks,
           rounds);
    printf("read, thrown away   cold %.2f  cached %.2f\n", gb / read_best, gb / cached);
    printf("load                cold %.2f  cached %.2f (%.2f)  peak %.1f MiB a rank beyond its "
           "shards\n",
           gb / worst.cold, gb / worst.warm, gb / worst.warm_cpu, (double)worst.peak / 1048576);
    printf("write and sync      %.2f\n", gb / write_best);
    printf("export              %.2f (%.2f)\n", gb / worst.export, gb / worst.export_cpu);
    launch_plan_done(&plan);
    return 0;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    int64_t mib = argc > 2 ? strtoll(argv[2], NULL, 10) : 256;
    int ranks = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 2;
    int rounds = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 3;
    if (argc < 2 || mib < 32 || ranks < 1 || ranks > RANKS_MAX || rounds < 1) {
        (void)fprintf(stderr, "usage: bench_weights FOLDER [MIB [RANKS [ROUNDS]]]\n");
        return 64;
    }
    int rc = run(argv[1], mib, ranks, rounds, &err);
    if (rc != 0)
        (void)fprintf(stderr, "bench_weights: %s\n", err.text);
    return rc == 0 ? 0 : err_code_exit(err.code);
}
