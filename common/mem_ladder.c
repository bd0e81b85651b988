/* mem_ladder: see mem_ladder.h. A bar is the one below it with one thing changed. Tiles count from
 * their bar on: below it MLP runs over all tokens of a rank at once, and so does the loss. */
#include "common/mem_ladder.h"

#include "common/mem_report.h"
#include "common/must.h"
#include "common/time_report.h"

#include <stdio.h>

#define LADDER_TABLE(X)                                                           \
    X(NOTHING, "nothing", "each rank holds everything; a sequence is one rank's") \
    X(FSDP, "+ FSDP", "parameters, gradients, moments sharded")                   \
    X(ULYSSES, "+ Ulysses", "a sequence shared by all ranks")                     \
    X(RECOMPUTE, "+ recomputation", "layers keep their input")                    \
    X(OFFLOAD, "+ offload", "on the host")                                        \
    X(TILES, "+ tiling", "MLP and loss in tiles of tokens")                       \
    X(UPIPE, "+ Untied Ulysses", "one head a rank at a time, buffers used again") \
    X(KEEP_O, "+ O kept off the device", "attention is not run again; inputs of every 8th layer")

#define X(id, name, text) LADDER_##id,
enum ladder_step { LADDER_TABLE(X) LADDER_COUNT };
#undef X
_Static_assert((int)LADDER_COUNT == MEM_LADDER_BARS, "a bar for each step");

static void ladder_start(struct job_spec *spec)
{
    spec->fsdp = false;
    spec->context_kind = JOB_context_kind_NONE;
    spec->ulysses = spec->ring = spec->heads_per_stage = spec->keep_input_every = JOB_AUTO;
    spec->recompute = JOB_recompute_NONE;
    spec->offload = JOB_offload_NONE;
    spec->states = JOB_states_DEVICE;
    spec->stream_residual = JOB_toggle_OFF;
    spec->overlap = JOB_overlap_OFF;
    spec->tile_mlp = spec->tile_loss = LIMIT_SEQ_LEN;
}

static void ladder_step(struct job_spec *spec, enum ladder_step step)
{
    switch (step) {
    case LADDER_NOTHING:
        ladder_start(spec);
        break;
    case LADDER_FSDP:
        spec->fsdp = true;
        break;
    case LADDER_ULYSSES:
        spec->context_kind = JOB_context_kind_ULYSSES;
        break;
    case LADDER_RECOMPUTE:
        spec->recompute = JOB_recompute_INPUT;
        break;
    case LADDER_OFFLOAD:
        spec->offload = JOB_offload_HOST;
        break;
    case LADDER_TILES:
        spec->tile_mlp = spec->tile_loss = JOB_AUTO;
        break;
    case LADDER_UPIPE:
        spec->context_kind = JOB_context_kind_UPIPE;
        spec->heads_per_stage = 1;
        break;
    case LADDER_KEEP_O:
        spec->recompute = JOB_recompute_ATTENTION;
        spec->keep_input_every = 8;
        break;
    case LADDER_COUNT:
        must(false);
    }
}

int mem_ladder_make(const struct mem_ask *ask, struct mem_ladder *ret, struct err *err)
{
#define X(id, name_, text_) [LADDER_##id] = {.name = name_, .text = text_},
    struct mem_ladder ladder = {.bars = {LADDER_TABLE(X)}};
#undef X
    struct job_spec spec = *ask->spec;
    struct mem_ask bar_ask = *ask;
    bar_ask.spec = &spec;
    bar_ask.planned = bar_ask.unchecked = true; /* what it would take, were it computed */
    for (int i = 0; i < MEM_LADDER_BARS; i++) {
        struct mem_ladder_bar *bar = &ladder.bars[i];
        ladder_step(&spec, (enum ladder_step)i);
        if (spec.keep_input_every > ask->shape->config.layers)
            spec.keep_input_every = ask->shape->config.layers;
        int rc = mem_estimate_make(&bar_ask, &bar->estimate, err);
        bar->legal = rc == 0;
        if (rc == -ERR_UNSUPPORTED || rc == -ERR_DOES_NOT_FIT) {
            (void)snprintf(bar->why, sizeof bar->why, "%s", err->text);
        } else if (rc != 0) {
            mem_ladder_done(&ladder);
            return rc;
        }
    }
    *ret = ladder;
    return 0;
}

void mem_ladder_done(struct mem_ladder *ladder)
{
    for (int i = 0; i < MEM_LADDER_BARS; i++)
        mem_estimate_done(&ladder->bars[i].estimate);
}

static json_t *ladder_bar_json(const struct mem_ladder_bar *bar)
{
    json_t *plan = bar->legal ? mem_report_json(&bar->estimate, false) : json_null();
    bool timed = bar->legal && bar->estimate.rates != NULL;
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "name", bar->name, "adds", bar->text, "plan",
                     plan, "time", timed ? time_report_json(&bar->estimate) : json_null(),
                     "measured", mem_measured_json(&bar->measured), "error",
                     bar->legal ? json_null() : json_string(bar->why));
}

json_t *mem_ladder_json(const struct mem_ladder *ladder)
{
    json_t *bars = json_array();
    int bad = bars == NULL;
    for (int i = 0; i < MEM_LADDER_BARS; i++)
        bad |= json_array_append_new(bars, ladder_bar_json(&ladder->bars[i]));
    if (bad == 0)
        return json_pack("{s:s, s:o}", "object", "memory_ladder", "bars", bars);
    json_decref(bars);
    return NULL;
}

static void ladder_row(struct buf *out, const char *name, const int64_t *categories,
                       int64_t device_bytes, int64_t host_bytes, double step_s)
{
    buf_printf(out, "%-24s", name);
    for (int c = 0; c < MEM_CATEGORY_COUNT; c++)
        buf_printf(out, " %13.3f", (double)categories[c] * 0x1p-30);
    buf_printf(out, " %9.3f %10.3f", (double)device_bytes * 0x1p-30, (double)host_bytes * 0x1p-30);
    if (step_s > 0)
        buf_printf(out, " %10.4g", step_s);
}

static void ladder_measured(struct buf *out, const struct mem_measured *m)
{
    if (m->run) {
        ladder_row(out, "  measured", m->peak, m->device_bytes, m->host_bytes, m->step_s);
        buf_text(out, "\n");
    } else if (m->why[0] != '\0') {
        buf_printf(out, "  not measured: %s\n", m->why);
    }
}

void mem_ladder_text(const struct mem_ladder *ladder, struct buf *out)
{
    buf_printf(out, "%-24s", "GiB a rank, at the peak");
    for (int c = 0; c < MEM_CATEGORY_COUNT; c++)
        buf_printf(out, " %13s", mem_category_name((enum mem_category)c));
    buf_printf(out, " %9s %10s %10s\n", "all", "host", "step s");
    for (int i = 0; i < MEM_LADDER_BARS; i++) {
        const struct mem_ladder_bar *bar = &ladder->bars[i];
        if (!bar->legal) {
            buf_printf(out, "%-24s %s\n", bar->name, bar->why);
            continue;
        }
        const struct mem_plan *plan = &bar->estimate.plan;
        ladder_row(out, bar->name, plan->peak_category, plan->peak_device_bytes,
                   plan->arena_bytes[MEM_ARENA_HOST], bar->estimate.time.step_s);
        buf_text(out, bar->estimate.fits ? " fits\n" : "\n");
        ladder_measured(out, &bar->measured);
    }
}
