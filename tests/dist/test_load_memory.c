/* load memory: however many ranks load a model, each holds its shards and one chunk of the file,
 * and all together read the file once. Measured: the peak of resident memory during weights_load
 * (VmHWM, reset before) and the bytes that read calls gave (/proc/self/io). */
#include "tests/dist/train_scene.h"
#include "worker/weights.h"

#include <malloc.h>
#include <sys/stat.h>

enum {
    PEAK_BYTES_MAX = 6 << 20,    /* a chunk is 4 MiB */
    READ_BYTES_MORE = 256 << 10, /* a rank's own: headers, /proc */
};

static const struct model_config wide = {.family = MODEL_FAMILY_LLAMA,
                                         .vocab_size = 8192,
                                         .hidden_size = 256,
                                         .intermediate_size = 1024,
                                         .layers = 4,
                                         .heads = 4,
                                         .kv_heads = 4,
                                         .head_dim = 64,
                                         .context_max = 4096,
                                         .rms_norm_eps = 1e-5,
                                         .rope_theta = 10000,
                                         .initializer_range = 0.02,
                                         .tie_embeddings = true};

/* The number after `key` in a file of /proc/self; -1: none. */
static int64_t proc_number(const char *file, const char *key)
{
    char text[4096];
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        (void)close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *at = strstr(text, key);
    return at != NULL ? strtoll(at + strlen(key), NULL, 10) : -1;
}

/* Peak of resident memory counts from now. */
static bool reset_peak(void)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, "5", 1) == 1;
    if (fd >= 0)
        (void)close(fd);
    return good;
}

/* Prints what a second load of the weights takes, all else being there: "peak P read R". */
static int play_load(struct rank *rank, void *context, struct err *err)
{
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20); /* what is freed is given back, not kept */
    static const char status[] = "/proc/self/status", io[] = "/proc/self/io";
    TRY(weights_load(&rank->fsdp, rank->plan->model_dir, rank->stream, err));
    int64_t resident = proc_number(status, "VmRSS:"), begun = proc_number(io, "rchar:");
    if (!reset_peak() || resident < 0 || begun < 0)
        return err_set(err, ERR_INTERNAL, "this system does not tell of a process's memory");
    TRY(weights_load(&rank->fsdp, rank->plan->model_dir, rank->stream, err));
    int64_t sums[2] = {(proc_number(status, "VmHWM:") - resident) * 1024,
                       proc_number(io, "rchar:") - begun};
    int64_t most = sums[0];
    for (int r = 0; r < rank->world; r++) { /* the largest of any rank */
        int64_t of_rank = r == rank->number ? sums[0] : 0;
        TRY(rank_sum(rank, &of_rank, 1, DTYPE_I64, err));
        most = of_rank > most ? of_rank : most;
    }
    TRY(rank_sum(rank, sums, 2, DTYPE_I64, err));
    if (rank->number == 0)
        printf("peak %" PRId64 " read %" PRId64 "\n", most, sums[1]);
    return 0;
}

static void test_ranks(void **state)
{
    struct err err = {0};
    struct train_scene scene;
    struct stat file;
    train_scene_open(&scene, "\"seq_len\":64,\"batch\":{\"sequences\":8}");
    MUST_WORK(model_init_weights(&wide, scene.folder, 7, &err), &err);
    CLEANUP(mem_free_ptr) char *weights = io_join(scene.folder, "model.safetensors");
    assert_int_equal(stat(weights, &file), 0);
    assert_true(file.st_size > 4 * PEAK_BYTES_MAX); /* a rank that loads it all is seen */
    for (uint32_t world = 1; world <= 8; world *= 8) {
        CLEANUP(mem_free_ptr) char *out = train_scene_run(&scene, world, play_load, NULL);
        int64_t peak = strtoll(strstr(out, "peak ") + strlen("peak "), NULL, 10);
        int64_t bytes = strtoll(strstr(out, "read ") + strlen("read "), NULL, 10);
        print_message("%u ranks: at most %.1f MiB a rank beyond its shards, %.2f times the file "
                      "read by all\n",
                      world, (double)peak / 1048576, (double)bytes / (double)file.st_size);
        assert_true(peak >= 0 && peak <= PEAK_BYTES_MAX);
        assert_true(bytes >= file.st_size / 2); /* it is measured */
        assert_true(bytes <= file.st_size + (int64_t)world * READ_BYTES_MORE);
    }
    train_scene_close(&scene);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    printf("skipped: ThreadSanitizer's own memory would be measured with the rank's\n");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_ranks, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
