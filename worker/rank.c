/* rank: see rank.h. */
#include "worker/rank.h"

#include "common/clock.h"
#include "common/host_memory.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "worker/checkpoint.h"
#include "worker/coll_record.h"
#include "worker/device_cuda.h"
#include "worker/export.h"
#include "worker/profile.h"
#include "worker/resume.h"
#include "worker/scratch.h"
#include "worker/train.h"
#include "worker/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    RANK_EPOCHS_DEFAULT = 3,
    RANK_FAILED_FLUSH_MS = 2000 /* the keeper ends a failing job's ranks soon */
};

void rank_phase(struct rank *rank, int64_t step, enum wire_phase phase)
{
    int64_t now = clock_monotonic_ns();
    rank->phase_ns[rank->phase] += now - rank->phase_since_ns;
    rank->phase_since_ns = now;
    rank->phase = phase;
    if (rank->device != NULL)
        profile_enter(rank->device->profile, PROFILE_PHASE, wire_phase_name(phase), -1);
    coll_record_phase(rank->record, (uint64_t)step, phase);
    report_phase(rank->report, (uint64_t)step, phase);
}

static int rank_open_loader(struct rank *rank, const char *name, bool train, struct loader *loader,
                            struct err *err)
{
    const struct job_spec *spec = &rank->plan->spec;
    CLEANUP(mem_free_ptr) char *folder = io_join(rank->plan->job_dir, "tokens");
    CLEANUP(mem_free_ptr) char *path = folder == NULL ? NULL : io_join(folder, name);
    if (path == NULL)
        return mem_fail(err, strlen(rank->plan->job_dir), "a path");
    if (!train && !io_exists(path))
        return 0;
    struct loader_options options = {
        .path = path,
        .seq_len = spec->seq_len,
        .packing = spec->packing,
        .shuffle = train,
        .seed = (uint64_t)spec->seed,
        .batch = train ? spec->sequences : 0,
        .slots = mem_layout_slots(spec->sequences, spec->grad_accum, rank->mesh.data),
        .rank = rank->place.data,
        .world = rank->mesh.data,
        .uncounted = rank->place.ring > 0 || rank->place.ulysses > 0};
    TRY(loader_init(loader, &options, err));
    if (loader->data.vocab > rank->shape.config.vocab_size)
        return err_set(err, ERR_DATA, "%s: made for %lld token ids, the model has %lld", path,
                       (long long)loader->data.vocab, (long long)rank->shape.config.vocab_size);
    return 0;
}

static int rank_open_data(struct rank *rank, struct err *err)
{
    const struct job_spec *spec = &rank->plan->spec;
    TRY(rank_open_loader(rank, "train.tok", true, &rank->train, err));
    TRY(rank_open_loader(rank, "valid.tok", false, &rank->valid, err));
    rank->steps_total = spec->max_steps;
    if (spec->max_steps == 0)
        rank->steps_total = loader_set_epochs(
            &rank->train, spec->n_epochs > 0 ? spec->n_epochs : RANK_EPOCHS_DEFAULT);
    return 0;
}

static int rank_open_group(struct rank *rank, enum mesh_group kind, struct coll **ret,
                           struct err *err)
{
    struct mesh_ranks group = mesh_group(&rank->mesh, kind, rank->number);
    if (rank->plan->spec.rehearse)
        return coll_rehearse_group(rank->coll, group.index, group.count, ret, err);
    return rank->coll->ops->split(rank->coll, group.first, ret, err);
}

/* Communicators of the groups that share a sequence. */
static int rank_open_context(struct rank *rank, struct context_options *context, struct err *err)
{
    const struct job_spec *spec = &rank->plan->spec;
    *context = (struct context_options){
        .mesh = rank->mesh, .place = rank->place, .overlap = spec->overlap == JOB_overlap_ON};
    if (spec->context_kind == JOB_context_kind_UPIPE)
        context->heads_per_stage = spec->heads_per_stage;
    if (rank->mesh.ulysses > 1)
        TRY(rank_open_group(rank, MESH_GROUP_ULYSSES, &context->ulysses, err));
    if (rank->mesh.ring > 1)
        TRY(rank_open_group(rank, MESH_GROUP_RING, &context->ring, err));
    return 0;
}

/* The plan of this rank's memory, which must be the one that the job was admitted with. */
static int rank_plan_memory(struct rank *rank, struct err *err)
{
    const struct launch_plan *plan = rank->plan;
    TRY(launch_plan_memory(plan, &rank->shape, &rank->memory, err));
    must(rank->memory.layout.slots == rank->train.slots);
    if (plan->memory_digest[0] == '\0' || strcmp(plan->memory_digest, rank->memory.digest) == 0)
        return 0;
    return err_set(err, ERR_PROTOCOL,
                   "the daemon planned this rank's memory as %s, the worker as %s: they are of "
                   "different builds, or the model's config.json has changed",
                   plan->memory_digest, rank->memory.digest);
}

/* What is sharded, and what of it is trained. */
static int rank_open_trained(struct rank *rank, struct err *err)
{
    const struct job_spec *spec = &rank->plan->spec;
    TRY(fsdp_init(&rank->fsdp, &rank->shape, rank->device, rank->coll, spec->fsdp, err));
    rank->trained = &rank->fsdp;
    if (!spec->lora)
        return 0;
    rank->fsdp.kind = FSDP_FROZEN;
    rank->trained = &rank->lora.fsdp;
    return lora_init(&rank->lora, &rank->shape, spec, rank->device, rank->coll, err);
}

/* The file of kept tensors, in the job's folder; its space is taken now. */
static int rank_open_offload(struct rank *rank, struct err *err)
{
    int64_t bytes = rank->memory.arena_bytes[MEM_ARENA_FILE];
    if (bytes == 0)
        return 0;
    CLEANUP(mem_free_ptr)
    char *path = mem_printf("%s/kept-%d", rank->plan->job_dir, rank->number);
    if (path == NULL)
        return mem_fail(err, strlen(rank->plan->job_dir), "a path");
    int rc = offload_open(&rank->model.offload, path, bytes, err);
    if (rc != 0)
        return err_wrap(err, rc, "rank %d, offload: ", rank->number);
    if (rank->number == 0)
        report_event(rank->report, 0, "kept tensors go to a file of %.1f MiB a rank, by %s",
                     (double)bytes * 0x1p-20, offload_how(&rank->model.offload));
    return 0;
}

/* All ranks' memory of this machine, before any of them takes its part: the kernel refuses nobody,
 * it kills whoever is largest when memory is used up. */
static int rank_check_host(struct rank *rank, struct err *err)
{
    const int64_t *planned = rank->memory.arena_bytes;
    bool cpu = rank->plan->device == LAUNCH_CPU; /* whose device memory is the host's, too */
    int64_t bytes = planned[MEM_ARENA_HOST] + (cpu ? planned[MEM_ARENA_DEVICE] : 0);
    if (__builtin_mul_overflow(bytes, rank->plan->world, &bytes))
        bytes = INT64_MAX;
    int rc = host_memory_check(bytes, err);
    if (rc != 0)
        return err_wrap(err, rc, "all ranks together: ");
    return coll_barrier(rank->coll, err);
}

/* Declares all memory, takes it, fills what has a first value. */
static int rank_open_memory(struct rank *rank, struct err *err)
{
    TRY(rank_plan_memory(rank, err));
    const struct mem_layout *layout = &rank->memory.layout;
    const struct job_spec *spec = &rank->plan->spec;
    struct model_options options = {.tokens_max = layout->tokens,
                                    .seq_len = spec->seq_len,
                                    .tile_mlp = layout->tile_mlp,
                                    .tile_loss = layout->tile_loss,
                                    .recompute = layout->recompute,
                                    .keep_input_every = layout->keep_input_every,
                                    .replay_anew = layout->replay_anew,
                                    .seed = (uint64_t)rank->plan->spec.seed,
                                    .layers_away = layout->layers_away,
                                    .layers_filed = layout->layers_filed,
                                    .streamed = layout->streamed,
                                    .first_layer = mem_layout_first_layer(layout, spec),
                                    .time_layers = rank->plan->purpose == LAUNCH_MEASURE};
    TRY(rank_open_context(rank, &options.context, err));
    arena_init(&rank->arena, rank->device, &rank->memory);
    TRY(rank_open_trained(rank, err));
    if (spec->lora)
        options.lora = &rank->lora;
    TRY(fsdp_reserve(&rank->fsdp, &rank->arena, err));
    TRY(model_init(&rank->model, &options, &rank->fsdp, &rank->arena, err));
    TRY(optim_init(&rank->optim, spec, rank->trained, &rank->arena, err));
    TRY(batch_init(&rank->batch, &rank->mesh, rank->place, layout->slots * spec->seq_len,
                   &rank->arena, err));
    if (layout->lora_dropout)
        TRY(batch_want_numbers(&rank->batch, &rank->arena, err));
    TRY(arena_reserve(&rank->arena, MEM_SUMS, 0, &rank->sums, RANK_SUMS * (int64_t)sizeof(int64_t),
                      err));
    struct scratch scratch;
    TRY(scratch_reserve(&scratch, &rank->arena, err));
    TRY(rank_check_host(rank, err));
    TRY(arena_commit(&rank->arena, err));
    const struct arena_block *block = &rank->arena.blocks[MEM_ARENA_DEVICE];
    TRY(coll_lend(rank->coll, block->memory, (size_t)block->bytes, err));
    scratch_lend(&scratch, rank->device);
    TRY(context_connect(&rank->model.context, rank->stream, err));
    TRY(rank_open_offload(rank, err));
    TRY(fsdp_clear(&rank->fsdp, rank->stream, err));
    if (spec->lora)
        TRY(fsdp_clear(&rank->lora.fsdp, rank->stream, err));
    return model_load_constants(&rank->model, rank->stream, err);
}

void rank_check_memory(struct rank *rank)
{
    const struct device_ops *dev = rank->device->dev;
    must(dev->host_bytes_in_use(rank->device) == arena_bytes(&rank->arena, MEM_ARENA_HOST));
    must(dev->bytes_in_use(rank->device) == arena_bytes(&rank->arena, MEM_ARENA_DEVICE));
}

/* Those of the plan's checkpoint, else the first. */
static int rank_open_weights(struct rank *rank, struct err *err)
{
    bool resumed = false;
    int rc = rank->number == 0 ? checkpoint_clean(rank->plan->job_dir, err) : 0;
    TRY(rank_agree(rank, rc, err));
    TRY(resume_start(rank, &resumed, err));
    bool lora = rank->plan->spec.lora; /* its checkpoints hold adapters */
    if (rank->plan->purpose == LAUNCH_MEASURE)
        TRY(weights_random(&rank->fsdp, rank->stream, err));
    else if (lora || !resumed)
        TRY(weights_load(&rank->fsdp, rank->plan->model_dir, rank->stream, err));
    return lora && !resumed ? lora_start(&rank->lora, rank->stream, err) : 0;
}

/* The ranks meet over shared memory; on GPUs NCCL takes over from there. A rank alone on its GPU
 * has nobody to meet: its collectives are copies, as a rehearsed rank's, and NCCL, which takes 0.6
 * GiB even of one rank, is not started. */
int rank_open_device(struct rank *rank, struct err *err)
{
    const struct launch_plan *plan = rank->plan;
    bool cuda = plan->device == LAUNCH_CUDA;
    if (cuda)
        TRY(device_cuda_open(rank->number, &rank->device, err)); /* sees the plan's, in order */
    else
        TRY(device_cpu_open((int)plan->threads, &rank->device, err));
    if (plan->spec.rehearse || (cuda && rank->world == 1))
        return coll_rehearse_open(rank->device, rank->number, rank->world, &rank->coll, err);
    char alone[LIMIT_ID_BYTES + 1]; /* a plan for one rank need not name its memory */
    (void)snprintf(alone, sizeof alone, "/ithaca-alone-%d", (int)getpid());
    struct coll_shm_config shm = {.name = plan->shm_name[0] != '\0' ? plan->shm_name : alone,
                                  .rank = rank->number,
                                  .world = rank->world,
                                  .timeout_ms = plan->coll_timeout_ms};
    TRY(coll_shm_open(&shm, &rank->coll, err));
    if (!cuda)
        return 0;
    return device_cuda_coll_open(rank->device, rank->coll, plan->coll_timeout_ms, &rank->coll, err);
}

/* What notes its collectives, and what they and copies are waited for. */
static int rank_open_watch(struct rank *rank, struct err *err)
{
    CLEANUP(mem_free_ptr) char *attempt_dir = launch_plan_attempt_dir(rank->plan);
    if (attempt_dir == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (io_exists(attempt_dir)) /* a test may have none */
        TRY(coll_record_open(attempt_dir, rank->number, &rank->record, err));
    TRY(exposed_init(&rank->exposed, rank->device, err));
    rank->device->exposed = rank->coll->exposed = &rank->exposed;
    rank->coll->record = rank->record;
    return 0;
}

static int rank_open_parts(struct rank *rank, struct err *err)
{
    const struct launch_plan *plan = rank->plan;
    struct model_config config;
    TRY(report_open(plan, (uint32_t)rank->number, &rank->report, err));
    rank_phase(rank, 0, WIRE_PHASE_START);
    TRY(model_config_load(plan->model_dir, &config, err));
    TRY(model_shape_build(&config, &rank->shape, err));
    TRY(rank_open_device(rank, err));
    report_watch(rank->report, rank->coll);
    TRY(rank_open_watch(rank, err));
    rank_phase(rank, 0, WIRE_PHASE_LOAD);
    rank->mesh = launch_plan_mesh(plan);
    rank->place = mesh_place(&rank->mesh, rank->number);
    TRY(rank_open_data(rank, err));
    TRY(rank_open_memory(rank, err));
    TRY(rank_open_weights(rank, err));
    return coll_barrier(rank->coll, err);
}

int rank_open(struct rank *rank, const struct launch_plan *plan, int number, struct err *err)
{
    must(number >= 0 && number < (int)plan->world);
    *rank = (struct rank){.plan = plan,
                          .number = number,
                          .world = (int)launch_plan_ranks(plan),
                          .progress = {.loss = (double)NAN,
                                       .valid_loss = (double)NAN,
                                       .best_valid_loss = (double)NAN},
                          .saved_step = -1,
                          .phase_since_ns = clock_monotonic_ns()};
    if (plan->spec.profile)
        profile_run_plan(&rank->profiling, plan->spec.profile_steps.first,
                         plan->spec.profile_steps.last);
    TRY(rank_open_parts(rank, err));
    rank_check_memory(rank);
    report_ready(rank->report, rank->steps_total);
    return 0;
}

int rank_sum(struct rank *rank, void *values, int64_t count, enum dtype dtype, struct err *err)
{
    must(count >= 0 && count <= RANK_SUMS && dtype_bytes(dtype) == sizeof(int64_t));
    const struct device_ops *dev = rank->device->dev;
    size_t bytes = (size_t)count * sizeof(int64_t);
    TRY(dev->copy(rank->device, rank->stream, rank->sums, values, bytes, err));
    TRY(coll_all_reduce(rank->coll, rank->stream, rank->sums, count, dtype, err));
    TRY(dev->copy(rank->device, rank->stream, values, rank->sums, bytes, err));
    return dev->sync(rank->device, rank->stream, err);
}

int rank_agree(struct rank *rank, int rc, struct err *err)
{
    enum { WORDS = ERR_TEXT_MAX / sizeof(int64_t) };
    int64_t codes[LIMIT_RANKS] = {0}, words[WORDS] = {0};
    struct err own = *err;
    codes[rank->number] = -rc;
    TRY(rank_sum(rank, codes, rank->world, DTYPE_I64, err));
    int first = 0;
    while (first < rank->world && codes[first] == 0)
        first++;
    if (first == rank->world)
        return 0;
    if (first == rank->number)
        memcpy(words, own.text, strlen(own.text));
    TRY(rank_sum(rank, words, WORDS, DTYPE_I64, err)); /* its sentence, and zeros */
    *err = own;
    if (rc != 0)
        return rc;
    return err_set(err, (enum err_code)codes[first], "rank %d: %s", first, (const char *)words);
}

/* Where the time went, once, at the end. */
static void rank_report_time(struct rank *rank)
{
    double total = 0;
    int64_t coll_ns = 0;
    for (int kind = EXPOSED_GATHER; kind <= EXPOSED_SUMS; kind++)
        coll_ns += rank->exposed_ns[kind];
    for (int phase = WIRE_PHASE_DATA; phase <= WIRE_PHASE_OPTIMIZER; phase++)
        total += (double)rank->phase_ns[phase] * 1e-9;
    total = total > 0 ? total : 1;
    double percent[WIRE_PHASE_COUNT];
    for (int phase = 0; phase < WIRE_PHASE_COUNT; phase++)
        percent[phase] = (double)rank->phase_ns[phase] * 1e-7 / total;
    report_event(rank->report, 0,
                 "time in steps %.2f s: data %.1f%%, forward %.1f%%, backward %.1f%%, optimizer "
                 "%.1f%%; collectives within these %.1f%%",
                 total, percent[WIRE_PHASE_DATA], percent[WIRE_PHASE_FORWARD],
                 percent[WIRE_PHASE_BACKWARD], percent[WIRE_PHASE_OPTIMIZER],
                 (double)coll_ns * 1e-7 / total);
}

/* Where asked for, the weights of the best evaluation instead of the last. */
static int rank_pick_weights(struct rank *rank, struct err *err)
{
    const struct checkpoint_progress *progress = &rank->progress;
    bool found = true;
    if (!rank->plan->spec.eval_export_best || progress->best_step == 0 ||
        progress->best_step == progress->step)
        return 0;
    TRY(resume_return_to(rank, progress->best_step, &found, err));
    if (rank->number != 0)
        return 0;
    if (found)
        report_event(rank->report, 0, "the model is that of step %lld, the best evaluated",
                     (long long)progress->best_step);
    else
        report_event(rank->report, 1,
                     "step %lld, the best evaluated, is lost: the model is the last",
                     (long long)progress->best_step);
    return 0;
}

static int rank_finish(struct rank *rank, struct err *err)
{
    const struct checkpoint_progress *progress = &rank->progress;
    struct wire_done done = {.steps = (uint64_t)progress->step,
                             .trained_tokens = (uint64_t)progress->trained_tokens,
                             .final_loss = isnan(progress->loss) ? 0 : progress->loss};
    if (rank->number == 0)
        rank_report_time(rank);
    rank_phase(rank, progress->step, WIRE_PHASE_EXPORT);
    TRY(rank_pick_weights(rank, err));
    TRY(export_model(rank, err));
    rank_phase(rank, progress->step, WIRE_PHASE_DONE);
    report_done(rank->report, &done);
    return 0;
}

int rank_run(struct rank *rank, struct err *err)
{
    enum train_end end;
    TRY(train_run(rank, &end, err));
    bool orphaned = end == TRAIN_ORPHANED;
    if (orphaned)
        report_event(rank->report, 1,
                     "no daemon came back within %lld s; the checkpoint of step %lld is written",
                     (long long)(rank->plan->orphan_limit_ms / 1000), (long long)rank->saved_step);
    if (end == TRAIN_FINISHED) {
        TRY(rank_finish(rank, err));
    } else {
        rank_phase(rank, rank->progress.step, WIRE_PHASE_DONE);
        report_paused(rank->report, rank->progress.step, rank->progress.trained_tokens);
    }
    report_flush(rank->report, orphaned ? 0 : rank->plan->orphan_limit_ms);
    return 0; /* an orphaned job goes on with the next daemon, as a paused one does */
}

void rank_fail(struct rank *rank, const struct err *reason)
{
    if (rank->coll != NULL)
        rank->coll->ops->abort(rank->coll);
    if (rank->report == NULL)
        return;
    report_failed(rank->report, reason);
    report_flush(rank->report, RANK_FAILED_FLUSH_MS);
}

void rank_close(struct rank *rank)
{
    if (rank->report != NULL)
        report_watch(rank->report, NULL);
    profile_run_drop(rank);
    batch_done(&rank->batch);
    loader_done(&rank->valid);
    loader_done(&rank->train);
    model_done(&rank->model);
    lora_done(&rank->lora);
    fsdp_done(&rank->fsdp);
    if (rank->coll != NULL)
        rank->coll->ops->close(rank->coll);
    coll_record_close(rank->record);
    arena_done(&rank->arena); /* which collectives were lent */
    mem_plan_done(&rank->memory);
    model_shape_done(&rank->shape);
    exposed_done(&rank->exposed);
    if (rank->device != NULL)
        rank->device->dev->close(rank->device);
    report_close(rank->report);
    *rank = (struct rank){0};
}
