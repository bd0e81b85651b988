/* job_spec_resolve: the values that depend on model and machine. Until a planner weighs memory
 * against time, "auto" is the plain choice: nothing kept off the device, nothing recomputed, no
 * context parallelism. Resolving twice changes nothing. */
#include "common/job_spec.h"
#include "common/must.h"

#include <stdio.h>

/* Tokens in a loss tile by default: logits of 1024 tokens and 128 Ki vocabulary are 512 MiB. */
enum { JOB_TILE_LOSS_TOKENS = 1024, JOB_EPOCHS_DEFAULT = 3 };

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
    if (spec->gpus > facts->ranks_max)
        return err_set_field(err, ERR_DOES_NOT_FIT, "ithaca.gpus",
                             "ithaca.gpus is %lld and this machine has %lld ranks; ask for 1 to "
                             "%lld",
                             (long long)spec->gpus, (long long)facts->ranks_max,
                             (long long)facts->ranks_max);
    if (!spec->fsdp && spec->gpus > 1)
        return err_set_field(err, ERR_UNSUPPORTED, "ithaca.fsdp",
                             "ithaca.fsdp false with %lld ranks is not served by this version "
                             "yet; use true, or ithaca.gpus 1",
                             (long long)spec->gpus);
    return 0;
}

static int job_resolve_context(struct job_spec *spec, const struct job_facts *facts,
                               struct err *err)
{
    static const char why[] = "with context_parallel.kind none (what auto is in this version)";
    if (spec->context_kind == JOB_context_kind_AUTO)
        spec->context_kind = JOB_context_kind_NONE;
    must(spec->context_kind == JOB_context_kind_NONE); /* the others are not served yet */
    TRY(job_settle(&spec->ulysses, 1, "ithaca.context_parallel.ulysses", why, err));
    TRY(job_settle(&spec->ring, 1, "ithaca.context_parallel.ring", why, err));
    return job_settle(&spec->heads_per_stage, facts->heads,
                      "ithaca.context_parallel.heads_per_stage",
                      "(all heads) unless context_parallel.kind is upipe", err);
}

static int job_resolve_memory(struct job_spec *spec, struct err *err)
{
    if (spec->recompute == JOB_recompute_AUTO)
        spec->recompute = JOB_recompute_NONE;
    if (spec->offload == JOB_offload_AUTO)
        spec->offload = JOB_offload_NONE;
    if (spec->states == JOB_states_AUTO)
        spec->states = JOB_states_DEVICE;
    if (spec->overlap == JOB_toggle_AUTO)
        spec->overlap = JOB_toggle_OFF;
    if (spec->stream_residual == JOB_toggle_AUTO)
        spec->stream_residual = JOB_toggle_OFF;
    /* A tile longer than the sequence is the sequence. */
    if (spec->tile_mlp == JOB_AUTO || spec->tile_mlp > spec->seq_len)
        spec->tile_mlp = spec->seq_len;
    if (spec->tile_loss == JOB_AUTO)
        spec->tile_loss = JOB_TILE_LOSS_TOKENS;
    if (spec->tile_loss > spec->seq_len)
        spec->tile_loss = spec->seq_len;
    return job_settle(&spec->keep_input_every, 1, "ithaca.keep_input_every",
                      "unless recompute is attention", err);
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

int job_spec_resolve(struct job_spec *spec, const struct job_facts *facts, struct err *err)
{
    must(facts->ranks_max >= 1 && facts->heads >= 1);
    struct job_spec resolved = *spec;
    TRY(job_resolve_ranks(&resolved, facts, err));
    TRY(job_resolve_context(&resolved, facts, err));
    TRY(job_resolve_memory(&resolved, err));
    TRY(job_resolve_schedule(&resolved, err));
    TRY(job_resolve_evaluation(&resolved, err));
    int64_t data_ranks = resolved.gpus / (resolved.ulysses * resolved.ring);
    TRY(job_settle(&resolved.grad_accum, (resolved.sequences + data_ranks - 1) / data_ranks,
                   "ithaca.batch.grad_accum", "(batch.sequences / gpus, rounded up) or \"auto\"",
                   err));
    if (resolved.max_steps == 0 && resolved.n_epochs <= 0)
        resolved.n_epochs = JOB_EPOCHS_DEFAULT;
    *spec = resolved;
    return 0;
}
