/* bench_profile: what a profile costs the steps that are profiled: tiny-llama on one rank of one
 * thread, every other step with a profile of its own, in pairs next to each other.
 *
 *     bench_profile [PAIRS] [SEQ_LEN] [tiny|cuda]      tiny: the tests' smallest model, whose
 *                                                      operations take microseconds: the worst
 *                                                      case; cuda: tiny-llama on the GPU
 *
 * Prints medians over pairs of the ratio of processor time and of wall time, with quartiles, the
 * events of a step, and what one costs. */
#include "common/median.h"
#include "tests/lib/rank_scene.h"
#include "worker/profile.h"
#include "worker/step.h"

enum { PAIRS_MAX = 1000, WARM_STEPS = 3 };

struct taken {
    double cpu_s, wall_s;
    int64_t events;
};

static struct taken step(struct rank_scene *s, int64_t number, bool profiled)
{
    const struct profile_options options = {.world = 1, .attempt = 1, .events_max = 1 << 17};
    const struct profile_file *file = NULL;
    struct profile *profile = NULL;
    struct step_result result;
    struct taken taken = {.events = 0};
    struct rank *rank = &s->rank;
    if (profiled)
        MUST_WORK(
            profile_new(rank->device, &rank->exposed, rank->record, &options, &profile, &s->err),
            &s->err);
    rank->device->profile = profile;
    int64_t wall_ns = clock_monotonic_ns(), cpu_ns = clock_process_ns();
    MUST_WORK(step_run(rank, number, &result, &s->err), &s->err);
    taken.cpu_s = (double)(clock_process_ns() - cpu_ns) * 1e-9;
    taken.wall_s = (double)(clock_monotonic_ns() - wall_ns) * 1e-9;
    rank->device->profile = NULL;
    if (profiled) {
        MUST_WORK(profile_stop(profile, &file, &s->err), &s->err);
        taken.events = file->head.count;
    }
    profile_free(profile);
    return taken;
}

static void print(const char *what, double *ratios, int pairs)
{
    double median = median_sort(ratios, (size_t)pairs);
    printf("%s %+.2f %% (quartiles %+.2f to %+.2f)\n", what, median * 100, ratios[pairs / 4] * 100,
           ratios[pairs * 3 / 4] * 100);
}

int main(int argc, char **argv)
{
    static double cpu[PAIRS_MAX], wall[PAIRS_MAX], each[PAIRS_MAX];
    int pairs = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 40;
    long seq_len = argc > 2 ? strtol(argv[2], NULL, 10) : 256;
    const char *where = argc > 3 ? argv[3] : "";
    bool tiny = strcmp(where, "tiny") == 0, cuda = strcmp(where, "cuda") == 0;
    const char *model = tiny ? "the tests' model" : cuda ? "tiny-llama on the GPU" : "tiny-llama";
    struct rank_scene s = {.err = {.code = ERR_NONE}};
    struct taken plain = {0}, profiled = {0};
    char fields[128];
    pairs = pairs < 1 || pairs > PAIRS_MAX ? PAIRS_MAX : pairs;
    (void)snprintf(fields, sizeof fields,
                   "\"seq_len\":%ld,\"max_steps\":100000,\"batch\":{\"sequences\":4}", seq_len);
    rank_scene_prepare(&s, fields);
    if (!tiny) {
        CLEANUP(mem_free_ptr) char *dir = mem_printf("%s/llama", s.scene.folder);
        MUST_WORK(model_init_builtin("tiny-llama", dir, 1, &s.err), &s.err);
        mem_free(s.scene.plan.model_dir);
        s.scene.plan.model_dir = mem_strdup(dir);
    }
    if (cuda)
        s.scene.plan.device = LAUNCH_CUDA;
    rank_scene_begin(&s);
    for (int64_t number = 1; number <= WARM_STEPS; number++)
        (void)step(&s, number, false);
    struct taken first_ever = step(&s, WARM_STEPS, true);
    for (int pair = 0; pair < pairs; pair++) {
        int64_t number = WARM_STEPS + 1; /* the same data again and again */
        bool first = pair % 2 == 0;
        struct taken one = step(&s, number, first), two = step(&s, number, !first);
        profiled = first ? one : two;
        plain = first ? two : one;
        cpu[pair] = profiled.cpu_s / plain.cpu_s - 1;
        wall[pair] = profiled.wall_s / plain.wall_s - 1;
        each[pair] = (profiled.cpu_s - plain.cpu_s) * 1e6 / (double)profiled.events;
    }
    printf("%s, seq_len %ld, %d pairs of steps, %.2f ms of processor time, %lld events a step\n",
           model, seq_len, pairs, plain.cpu_s * 1e3, (long long)profiled.events);
    print("processor time", cpu, pairs);
    print("wall time     ", wall, pairs);
    printf("the first profile of the process: its step took %.1f ms\n", first_ever.wall_s * 1e3);
    printf("an event      %.2f us, median\n", median_sort(each, (size_t)pairs));
    rank_scene_close(&s);
    return 0;
}
