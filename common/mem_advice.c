/* mem_advice: see mem_advice.h. A handful of changes, all sets of one, two and three of them tried
 * in turn but for those of which a part would do the same: up to some hundred plans of well below a
 * millisecond each. */
#include "common/mem_advice.h"

#include "common/must.h"
#include "common/number.h"

#include <string.h>

enum { ADVICE_CHANGES_MAX = 3, ADVICE_SETS_MAX = 3 };

/* X(id, text): from what costs nothing to what costs most; at the end what helps where the host is
 * short */
#define ADVICE_TABLE(X)                                            \
    X(FSDP, "fsdp true")                                           \
    X(ACCUM, "batch.grad_accum \"auto\"")                          \
    X(TILES, "tile_mlp and tile_loss \"auto\"")                    \
    X(SHARE, "context_parallel.kind upipe with heads_per_stage 1") \
    X(RECOMPUTE_BOTH, "recompute input_and_attention")             \
    X(RECOMPUTE_ATTENTION, "recompute attention")                  \
    X(RECOMPUTE_INPUT, "recompute input")                          \
    X(OFFLOAD, "offload host")                                     \
    X(HOST_OPTIMIZER, "states host_optimizer")                     \
    X(HOST_STATES, "states host")                                  \
    X(STREAM, "stream_residual true")                              \
    X(DEVICE_STATES, "states device")                              \
    X(DEVICE_KEPT, "offload none")                                 \
    X(FILE_KEPT, "offload file")

#define X(id, text) ADVICE_##id,
enum advice { ADVICE_TABLE(X) ADVICE_COUNT };
#undef X
#define X(id, text) [ADVICE_##id] = text,
static const char *const advice_texts[ADVICE_COUNT] = {ADVICE_TABLE(X)};
#undef X

static bool advice_is_shared(const struct job_spec *spec)
{
    return spec->ulysses > 1 || spec->ring > 1;
}

static void advice_share(struct job_spec *spec)
{
    spec->context_kind = JOB_context_kind_UPIPE;
    spec->heads_per_stage = 1;
    if (!advice_is_shared(spec))
        spec->ulysses = spec->ring = JOB_AUTO;
}

static void advice_recompute(struct job_spec *spec, enum job_recompute recompute)
{
    spec->recompute = recompute;
    spec->keep_input_every = JOB_AUTO;
}

static void advice_apply(struct job_spec *spec, enum advice change)
{
    switch (change) {
    case ADVICE_FSDP:
        spec->fsdp = true;
        break;
    case ADVICE_ACCUM:
        spec->grad_accum = JOB_AUTO;
        break;
    case ADVICE_TILES:
        spec->tile_mlp = spec->tile_loss = JOB_AUTO;
        break;
    case ADVICE_SHARE:
        advice_share(spec);
        break;
    case ADVICE_RECOMPUTE_BOTH:
        advice_recompute(spec, JOB_recompute_INPUT_AND_ATTENTION);
        break;
    case ADVICE_RECOMPUTE_ATTENTION:
        advice_recompute(spec, JOB_recompute_ATTENTION);
        break;
    case ADVICE_RECOMPUTE_INPUT:
        advice_recompute(spec, JOB_recompute_INPUT);
        break;
    case ADVICE_OFFLOAD:
        spec->offload = JOB_offload_HOST;
        break;
    case ADVICE_HOST_OPTIMIZER:
        spec->states = JOB_states_HOST_OPTIMIZER;
        break;
    case ADVICE_HOST_STATES:
        spec->states = JOB_states_HOST;
        break;
    case ADVICE_STREAM:
        spec->stream_residual = JOB_toggle_ON;
        break;
    case ADVICE_DEVICE_STATES:
        spec->states = JOB_states_DEVICE;
        break;
    case ADVICE_FILE_KEPT:
        spec->offload = JOB_offload_FILE;
        break;
    case ADVICE_DEVICE_KEPT:
        spec->offload = JOB_offload_NONE;
        break;
    case ADVICE_COUNT:
        must(false);
    }
}

static void advice_apply_set(const struct mem_ask *ask, unsigned set, struct job_spec *ret)
{
    memcpy(ret, ask->spec, sizeof *ret); /* padding, too: it is compared */
    for (unsigned change = 0; change < ADVICE_COUNT; change++)
        if (set >> change & 1)
            advice_apply(ret, (enum advice)change);
}

/* Whether a change of the set is one already, or is undone by another: a smaller set does it. */
static bool advice_is_more(const struct mem_ask *ask, unsigned set, const struct job_spec *spec)
{
    struct job_spec less;
    for (unsigned change = 0; change < ADVICE_COUNT; change++) {
        if ((set >> change & 1) == 0)
            continue;
        advice_apply_set(ask, set & ~(1U << change), &less);
        /* both are copies of one. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
        if (memcmp(&less, spec, sizeof less) == 0)
            return true;
    }
    return false;
}

/* The need of the job with a set of changes; -1 when it does not fit or is not legal. */
static int64_t advice_try(const struct mem_ask *ask, unsigned set)
{
    struct job_spec spec;
    struct mem_ask changed = *ask;
    struct mem_estimate estimate;
    struct err ignored = {0};
    changed.spec = &spec;
    advice_apply_set(ask, set, &spec);
    if (advice_is_more(ask, set, &spec))
        return -1;
    if (mem_estimate_make(&changed, &estimate, &ignored) != 0)
        return -1;
    int64_t need = estimate.fits ? estimate.plan.peak_device_bytes : -1;
    mem_estimate_done(&estimate);
    return need;
}

/* What else a change sets to "auto", where the job asks for something: with that it is refused. */
static const char *advice_besides(const struct job_spec *spec, enum advice change)
{
    bool recomputes = change == ADVICE_RECOMPUTE_BOTH || change == ADVICE_RECOMPUTE_ATTENTION ||
                      change == ADVICE_RECOMPUTE_INPUT;
    if (recomputes && spec->keep_input_every != JOB_AUTO)
        return ", keep_input_every \"auto\"";
    bool degrees = spec->ulysses != JOB_AUTO || spec->ring != JOB_AUTO;
    if (change == ADVICE_SHARE && degrees && !advice_is_shared(spec))
        return ", ulysses and ring \"auto\"";
    return "";
}

static void advice_write_set(const struct job_spec *spec, unsigned set, int64_t need,
                             struct buf *out)
{
    buf_text(out, out->length > 0 ? "; " : "");
    const char *before = "";
    for (unsigned change = 0; change < ADVICE_COUNT; change++) {
        if ((set >> change & 1) == 0)
            continue;
        buf_printf(out, "%s%s%s", before, advice_texts[change],
                   advice_besides(spec, (enum advice)change));
        before = " and ";
    }
    buf_printf(out, " gives %s GiB", number_plain((double)need * 0x1p-30, 4).text);
}

int mem_advice_write(const struct mem_ask *ask, struct buf *out, struct err *err)
{
    int found = 0;
    for (int size = 1; size <= ADVICE_CHANGES_MAX && found == 0; size++)
        for (unsigned set = 1; set < 1U << ADVICE_COUNT && found < ADVICE_SETS_MAX; set++) {
            int64_t need = __builtin_popcount(set) == size ? advice_try(ask, set) : -1;
            if (need < 0)
                continue;
            advice_write_set(ask->spec, set, need, out);
            found++;
        }
    int64_t longest = 0;
    TRY(mem_estimate_longest(ask, &longest, err));
    if (longest > 0)
        buf_printf(out, "%sseq_len %lld fits with all else as asked", out->length > 0 ? "; " : "",
                   (long long)longest);
    return buf_error(out, err);
}
