/* job_spec_resolve: the values that depend on model and machine. "auto" is the plain choice here:
 * nothing kept off the device, nothing recomputed, no context parallelism unless degrees ask for it
 * (where that does not fit, the daemon searches: common/plan_search.h). What is legal is
 * common/mesh's word, and a refusal lists it. Resolving twice changes nothing. */
#include "common/job_field.h"
#include "common/job_spec.h"
#include "common/lora_shape.h"
#include "common/mem_measured.h"
#include "common/mesh.h"
#include "common/must.h"

#include <stdio.h>

enum {
    JOB_TILE_LOSS_TOKENS = 1024, /* logits of 1024 tokens and 128 Ki vocabulary are 512 MiB */
    JOB_TILE_MLP_TOKENS = 16384, /* weight gradients of fewer tokens are slower */
    JOB_KEEP_INPUT_EVERY = 4,    /* a quarter of the inputs; three layers replayed at most */
    JOB_EPOCHS_DEFAULT = 3,
    JOB_MEASURE_STEPS = 3 /* the first warms up */
};

/* "auto" becomes `value`; a given value must be it, because `why`. */
static int job_settle(int64_t *field, int64_t value, const char *name, const char *why,
                      struct err *err)
{
    if (*field == JOB_AUTO)
        *field = value;
    if (*field == value)
        return 0;
    return err_set_field(err, ERR_INVALID_VALUE, name, "%s is %lld; it must be %lld %s", name,
                         (long long)*field, (long long)value, why);
}

static int job_resolve_ranks(struct job_spec *spec, const struct job_facts *facts, struct err *err)
{
    if (spec->rehearse)
        spec->gpus = spec->rehearse_world;
    if (job_spec_slots(spec) <= facts->ranks_max)
        return 0;
    if (facts->ranks_max == 1)
        return err_set_field(err, ERR_DOES_NOT_FIT, "ithaca.gpus",
                             "ithaca.gpus is %lld and this machine has 1 rank; ask for 1",
                             (long long)spec->gpus);
    return err_set_field(err, ERR_DOES_NOT_FIT, "ithaca.gpus",
                         "ithaca.gpus is %lld and this machine has %lld ranks; ask for 1 to %lld",
                         (long long)spec->gpus, (long long)facts->ranks_max,
                         (long long)facts->ranks_max);
}

static void job_resolve_kind(struct job_spec *spec)
{
    if (spec->context_kind != JOB_context_kind_AUTO)
        return;
    if (spec->ulysses > 1)
        spec->context_kind = JOB_context_kind_ULYSSES;
    else if (spec->ring > 1)
        spec->context_kind = JOB_context_kind_RING;
    else
        spec->context_kind = JOB_context_kind_NONE;
}

static int job_resolve_ring(struct job_spec *spec, struct err *err)
{
    static const char field[] = "ithaca.context_parallel.ring";
    if (spec->context_kind == JOB_context_kind_NONE)
        return job_settle(&spec->ring, 1, field, "with context_parallel.kind none", err);
    if (spec->ring == JOB_AUTO)
        spec->ring = spec->context_kind == JOB_context_kind_RING ? spec->gpus : 1;
    if (spec->gpus % spec->ring == 0)
        return 0;
    char legal[MESH_LIST_BYTES];
    mesh_ring_list(spec->gpus, legal);
    return err_set_field(err, ERR_INVALID_VALUE, field,
                         "%s is %lld; it must be %s, a divisor of gpus", field,
                         (long long)spec->ring, legal);
}

static bool job_ulysses_fits(int64_t ranks, const struct job_facts *facts, int64_t ulysses)
{
    return ranks % ulysses == 0 && mesh_ulysses_legal(facts->heads, facts->kv_heads, ulysses);
}

static int job_resolve_ulysses(struct job_spec *spec, const struct job_facts *facts,
                               struct err *err)
{
    static const char field[] = "ithaca.context_parallel.ulysses";
    if (spec->context_kind == JOB_context_kind_NONE || spec->context_kind == JOB_context_kind_RING)
        return job_settle(&spec->ulysses, 1, field,
                          "unless context_parallel.kind is ulysses or upipe", err);
    int64_t ranks = spec->gpus / spec->ring;
    if (spec->ulysses == JOB_AUTO) {
        spec->ulysses = ranks;
        while (!job_ulysses_fits(ranks, facts, spec->ulysses))
            spec->ulysses--; /* 1 fits */
    }
    if (job_ulysses_fits(ranks, facts, spec->ulysses))
        return 0;
    char legal[MESH_LIST_BYTES];
    mesh_ulysses_list(facts->heads, facts->kv_heads, ranks, legal);
    return err_set_field(err, ERR_INVALID_VALUE, field,
                         "%s is %lld; it must be %s: it divides gpus / ring (%lld) and the "
                         "model's %lld heads, and divides or is a multiple of its %lld "
                         "key/value heads",
                         field, (long long)spec->ulysses, legal, (long long)ranks,
                         (long long)facts->heads, (long long)facts->kv_heads);
}

static int job_resolve_stage(struct job_spec *spec, const struct job_facts *facts, struct err *err)
{
    static const char field[] = "ithaca.context_parallel.heads_per_stage";
    if (spec->context_kind != JOB_context_kind_UPIPE)
        return job_settle(&spec->heads_per_stage, facts->heads / spec->ulysses, field,
                          "(all heads of a rank) unless context_parallel.kind is upipe", err);
    if (spec->heads_per_stage == JOB_AUTO)
        spec->heads_per_stage = 1;
    if (mesh_stage_legal(facts->heads, facts->kv_heads, spec->ulysses, spec->heads_per_stage))
        return 0;
    char legal[MESH_LIST_BYTES];
    mesh_stage_list(facts->heads, facts->kv_heads, spec->ulysses, legal);
    return err_set_field(err, ERR_INVALID_VALUE, field,
                         "%s is %lld; it must be %s with ulysses %lld and the model's %lld heads "
                         "and %lld key/value heads",
                         field, (long long)spec->heads_per_stage, legal, (long long)spec->ulysses,
                         (long long)facts->heads, (long long)facts->kv_heads);
}

static int job_resolve_overlap(struct job_spec *spec, struct err *err)
{
    if (spec->overlap == JOB_overlap_AUTO)
        spec->overlap = JOB_overlap_OFF;
    if (spec->overlap == JOB_overlap_OFF || spec->context_kind == JOB_context_kind_UPIPE)
        return 0;
    return err_set_field(err, ERR_INVALID_VALUE, "ithaca.overlap",
                         "ithaca.overlap is true; it must be false or \"auto\" unless "
                         "context_parallel.kind is upipe: other kinds have no next stage");
}

static int job_resolve_recompute(struct job_spec *spec, const struct job_facts *facts,
                                 struct err *err)
{
    static const char field[] = "ithaca.keep_input_every";
    if (spec->recompute == JOB_recompute_AUTO)
        spec->recompute = JOB_recompute_NONE;
    if (spec->recompute != JOB_recompute_ATTENTION)
        return job_settle(&spec->keep_input_every, 1, field, "unless recompute is attention", err);
    if (spec->keep_input_every == JOB_AUTO)
        spec->keep_input_every =
            facts->layers < JOB_KEEP_INPUT_EVERY ? facts->layers : JOB_KEEP_INPUT_EVERY;
    if (spec->keep_input_every <= facts->layers)
        return 0;
    return err_set_field(err, ERR_INVALID_VALUE, field,
                         "%s is %lld; it must be from 1 to %lld, the model's layers", field,
                         (long long)spec->keep_input_every, (long long)facts->layers);
}

/* A tile longer than a rank's share of the sequence is that share. */
static void job_resolve_tiles(struct job_spec *spec)
{
    struct mesh mesh = mesh_make((int)spec->gpus, (int)spec->ring, (int)spec->ulysses);
    int64_t shard = mesh_seq_make(&mesh, spec->seq_len).shard;
    if (spec->tile_mlp == JOB_AUTO)
        spec->tile_mlp = JOB_TILE_MLP_TOKENS;
    if (spec->tile_mlp > shard)
        spec->tile_mlp = shard;
    if (spec->tile_loss == JOB_AUTO)
        spec->tile_loss = JOB_TILE_LOSS_TOKENS;
    if (spec->tile_loss > shard)
        spec->tile_loss = shard;
}

static int job_resolve_offload(struct job_spec *spec, struct err *err)
{
    if (spec->offload == JOB_offload_AUTO)
        spec->offload = JOB_offload_NONE;
    if (spec->offload_layers > 0 && spec->offload == JOB_offload_NONE)
        return err_set_field(err, ERR_INVALID_VALUE, "ithaca.offload_layers",
                             "ithaca.offload_layers is for offload host or file; the offload is "
                             "none");
    if (spec->file_layers > 0 && spec->offload != JOB_offload_FILE)
        return err_set_field(err, ERR_INVALID_VALUE, "ithaca.file_layers",
                             "ithaca.file_layers is for offload file; the offload is %s",
                             job_offload_name(spec->offload));
    return 0;
}

static void job_resolve_memory(struct job_spec *spec)
{
    if (spec->states == JOB_states_AUTO)
        spec->states = JOB_states_DEVICE;
    if (spec->stream_residual == JOB_toggle_AUTO)
        spec->stream_residual = JOB_toggle_OFF;
}

static void job_resolve_lora(struct job_spec *spec)
{
    if (spec->lora)
        spec->lora_alpha = lora_shape_alpha(spec);
}

/* A schedule that cannot be what its sender thinks. With steps by epochs the same is known only
 * when the data is; the worker then cuts as worker/optim.h says. */
static int job_resolve_schedule(const struct job_spec *spec, struct err *err)
{
    bool decays = spec->schedule == JOB_schedule_WSD;
    if (spec->decay_steps > 0 && !decays)
        return err_set_field(err, ERR_INVALID_VALUE, "ithaca.optimizer.decay_steps",
                             "ithaca.optimizer.decay_steps is for schedule warmup_stable_decay; "
                             "the schedule is %s",
                             job_schedule_name(spec->schedule));
    if (spec->max_steps == 0 || spec->warmup_steps + spec->decay_steps <= spec->max_steps)
        return 0;
    char decay[64] = "";
    if (decays && spec->decay_steps > 0)
        (void)snprintf(decay, sizeof decay, " and decay_steps %lld", (long long)spec->decay_steps);
    return err_set_field(
        err, ERR_INVALID_VALUE, "ithaca.optimizer.warmup_steps",
        "ithaca.optimizer.warmup_steps %lld%s are more than ithaca.max_steps %lld; "
        "ask for fewer",
        (long long)spec->warmup_steps, decay, (long long)spec->max_steps);
}

static int job_resolve_evaluation(const struct job_spec *spec, struct err *err)
{
    const char *field = spec->eval_early_stop_patience > 0 ? "ithaca.eval.early_stop_patience"
                        : spec->eval_export_best           ? "ithaca.eval.export_best"
                                                           : NULL;
    if (field == NULL || spec->validation_file[0] != '\0')
        return 0;
    return err_set_field(err, ERR_INVALID_VALUE, field,
                         "%s needs a validation_file; give one or leave it out", field);
}

static int job_resolve_measure(struct job_spec *spec, struct err *err)
{
    if (job_spec_measures(spec) && spec->max_steps == 0)
        spec->max_steps = JOB_MEASURE_STEPS;
    if (!job_spec_measures(spec) || spec->max_steps <= MEM_MEASURED_STEPS_MAX)
        return 0;
    return err_set_field(err, ERR_INVALID_VALUE, "ithaca.max_steps",
                         "ithaca.max_steps is %lld; a job that measures makes at most %d",
                         (long long)spec->max_steps, MEM_MEASURED_STEPS_MAX);
}

static int job_resolve_profile(const struct job_spec *spec, struct err *err)
{
    static const char field[] = "ithaca.profile.steps";
    const struct job_span steps = spec->profile_steps;
    if (!spec->profile)
        return 0;
    if (steps.last - steps.first >= LIMIT_PROFILE_STEPS)
        return err_set_field(err, ERR_INVALID_VALUE, field,
                             "%s: %lld to %lld are %lld steps; at most %d are profiled", field,
                             (long long)steps.first, (long long)steps.last,
                             (long long)(steps.last - steps.first + 1), LIMIT_PROFILE_STEPS);
    if (spec->max_steps == 0 || steps.last <= spec->max_steps)
        return 0;
    return err_set_field(err, ERR_INVALID_VALUE, field,
                         "%s: step %lld is beyond ithaca.max_steps %lld; ask for earlier steps",
                         field, (long long)steps.last, (long long)spec->max_steps);
}

int job_spec_settle(struct job_spec *spec, const struct job_facts *facts, struct err *err)
{
    must(facts->ranks_max >= 1 && facts->heads >= 1 && facts->kv_heads >= 1);
    must(facts->layers >= 1);
    struct job_spec resolved = *spec;
    TRY(job_resolve_ranks(&resolved, facts, err));
    job_resolve_kind(&resolved);
    TRY(job_resolve_ring(&resolved, err));
    TRY(job_resolve_ulysses(&resolved, facts, err));
    TRY(job_resolve_stage(&resolved, facts, err));
    TRY(job_resolve_overlap(&resolved, err));
    TRY(job_resolve_recompute(&resolved, facts, err));
    job_resolve_tiles(&resolved);
    job_resolve_memory(&resolved);
    job_resolve_lora(&resolved);
    TRY(job_resolve_offload(&resolved, err));
    TRY(job_resolve_schedule(&resolved, err));
    TRY(job_resolve_evaluation(&resolved, err));
    int64_t data_ranks = resolved.gpus / (resolved.ulysses * resolved.ring);
    TRY(job_settle(&resolved.grad_accum, (resolved.sequences + data_ranks - 1) / data_ranks,
                   "ithaca.batch.grad_accum",
                   "(batch.sequences / data-parallel ranks, rounded up) or \"auto\"", err));
    TRY(job_resolve_measure(&resolved, err));
    TRY(job_resolve_profile(&resolved, err));
    if (resolved.max_steps == 0 && resolved.n_epochs <= 0)
        resolved.n_epochs = JOB_EPOCHS_DEFAULT;
    *spec = resolved;
    return 0;
}

int job_spec_resolve(struct job_spec *spec, const struct job_facts *facts, struct err *err)
{
    struct job_spec resolved = *spec;
    TRY(job_spec_settle(&resolved, facts, err));
    TRY(job_spec_check_served(&resolved, err)); /* "auto" too chose what there is code for */
    *spec = resolved;
    return 0;
}
