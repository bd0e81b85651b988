/* mem_measured: see mem_measured.h. The first step warms up; of the others the median counts, of
 * each figure by itself, so that one step in which the machine did something else moves none. */
#include "common/mem_measured.h"

#include "common/limits.h"
#include "common/median.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/number.h"

#include <math.h>

enum { MEASURED_FILE_BYTES = 1 << 18 };

/* ---- reading ---- */

/* Of the steps after the first; of one step it is that; of none `none`. */
static double measured_median(const json_t *steps, double none)
{
    double seconds[MEM_MEASURED_STEPS_MAX];
    size_t count = 0, all = json_array_size(steps);
    for (size_t i = all > 1; i < all && count < MEM_MEASURED_STEPS_MAX; i++)
        seconds[count++] = json_real_value(json_array_get(steps, i));
    return count > 0 ? median_sort(seconds, count) : none;
}

static const char *measured_wait_name(int wait)
{
    return metric_name(METRIC_GATHER_WAIT_S + (enum metric_id)wait);
}

int mem_measured_read(const char *path, struct mem_measured *ret, struct err *err)
{
    CLEANUP(json_unref) json_t *json = NULL;
    struct mem_measured measured = {.run = true};
    TRY(json_parse_own_file(path, MEASURED_FILE_BYTES, &json, err));
    TRY(json_get_i64(json, "device_bytes", ERR_CORRUPT, &measured.device_bytes, err));
    TRY(json_get_i64(json, "host_bytes", ERR_CORRUPT, &measured.host_bytes, err));
    TRY(json_get_i64(json, "taken_bytes", ERR_CORRUPT, &measured.taken_bytes, err));
    TRY(json_get_i64(json, "layers", ERR_CORRUPT, &measured.layers, err));
    if (measured.layers < 1 || measured.layers > LIMIT_LAYERS)
        return err_set(err, ERR_CORRUPT, "%s: layers: %lld", path, (long long)measured.layers);
    const json_t *peak = json_object_get(json, "peak");
    for (int c = 0; c < MEM_CATEGORY_COUNT; c++)
        TRY(json_get_i64(peak, mem_category_name((enum mem_category)c), ERR_CORRUPT,
                         &measured.peak[c], err));
    measured.step_s = measured_median(json_object_get(json, "steps"), 0);
    measured.layer_s = measured_median(json_object_get(json, "layer"), 0);
    measured.mlp_s = measured_median(json_object_get(json, "mlp"), 0);
    measured.processor_s = measured_median(json_object_get(json, "processor"), 0);
    const json_t *waits = json_object_get(json, "waits");
    for (int wait = 0; wait < MEM_WAITS; wait++)
        measured.waits_s[wait] =
            measured_median(json_object_get(waits, measured_wait_name(wait)), -1);
    *ret = measured;
    return 0;
}

/* ---- telling ---- */

static json_t *measured_waits_json(const struct mem_measured *measured)
{
    json_t *waits = json_object();
    for (int wait = 0; wait < MEM_WAITS && measured->run; wait++)
        if (measured->waits_s[wait] >= 0 &&
            json_object_set_new(waits, measured_wait_name(wait),
                                json_real(measured->waits_s[wait])) != 0)
            json_unref(&waits);
    return waits;
}

json_t *mem_measured_json(const struct mem_measured *measured)
{
    json_t *peak = json_object();
    for (int c = 0; c < MEM_CATEGORY_COUNT; c++)
        if (json_object_set_new(peak, mem_category_name((enum mem_category)c),
                                json_integer(measured->peak[c])) != 0)
            json_unref(&peak);
    return json_pack(
        "{s:b, s:s?, s:o, s:f, s:I, s:f, s:f, s:o, s:I, s:I, s:I, s:o}", "run", (int)measured->run,
        "why", measured->why[0] != '\0' ? measured->why : NULL, "step_s",
        measured->run ? json_real(measured->step_s) : json_null(), "processor_s",
        measured->processor_s, "layers", (json_int_t)measured->layers, "layer_s", measured->layer_s,
        "mlp_s", measured->mlp_s, "waits", measured_waits_json(measured), "device_bytes",
        (json_int_t)measured->device_bytes, "host_bytes", (json_int_t)measured->host_bytes,
        "taken_bytes", (json_int_t)measured->taken_bytes, "peak", peak);
}

/* A step of all layers: those left out take as long as the others, but for the replays, of which
 * there are more than theirs would be. */
static double measured_whole(const struct mem_estimate *estimate,
                             const struct mem_measured *measured)
{
    const struct mem_layout *layout = &estimate->plan.layout;
    double all = (double)layout->config.layers, worked = (double)measured->layers;
    double replays = (double)time_work_replays(layout, 0);
    double timed = (double)time_work_replays(layout, layout->config.layers - measured->layers);
    double more =
        (all - worked) * measured->layer_s + (replays - timed * all / worked) * measured->mlp_s;
    return measured->step_s + (double)estimate->spec.grad_accum * more;
}

static void measured_text_waits(const struct mem_measured *measured, struct buf *out)
{
    const char *before = "\n  of a step: ";
    for (int wait = 0; wait < MEM_WAITS; wait++) {
        if (measured->waits_s[wait] < 0)
            continue;
        buf_printf(out, "%s%s %s", before, measured_wait_name(wait),
                   number_plain(measured->waits_s[wait], 4).text);
        before = ", ";
    }
}

static void measured_text_rehearsal(const struct mem_estimate *estimate, double whole_s,
                                    struct buf *out)
{
    const struct time_plan *time = &estimate->time;
    double step_s = whole_s + time->network_wait_s;
    buf_printf(out,
               "  rehearsed: rank 0 of %lld, copies of its own stood for what others send; the "
               "network's time is not in it\n  predicted with the network: a step %s s, %s s "
               "of it waiting for collectives (modelled: they take %s s, the rest beside the "
               "work), %s tokens/s, %s a rank\n",
               (long long)estimate->spec.gpus, number_plain(step_s, 4).text,
               number_plain(time->network_wait_s, 4).text, number_plain(time->network_s, 4).text,
               number_plain(time->tokens / step_s, 5).text,
               number_plain(time->tokens / step_s / (double)estimate->spec.gpus, 5).text);
}

void mem_measured_text(const struct mem_estimate *estimate, const struct mem_measured *measured,
                       struct buf *out)
{
    int64_t layers = estimate->plan.layout.config.layers;
    double step_s = measured_whole(estimate, measured);
    double rate = estimate->time.tokens / step_s, faster = estimate->time.step_s / step_s;
    buf_printf(out, "a step, measured: %s s; a layer %s s", number_plain(measured->step_s, 4).text,
               number_plain(measured->layer_s, 4).text);
    if (measured->layers < layers) {
        int64_t replays = time_work_replays(&estimate->plan.layout, 0);
        buf_printf(out, ", %lld of %lld worked: all would take %s s", (long long)measured->layers,
                   (long long)layers, number_plain(step_s, 4).text);
        if (replays > 0)
            buf_printf(out, ", with %lld replays at %s s each", (long long)replays,
                       number_plain(measured->mlp_s, 4).text);
    }
    buf_printf(out, "\n  %s tokens/s, %s a rank", number_plain(rate, 5).text,
               number_plain(rate / (double)estimate->spec.gpus, 5).text);
    if (isfinite(estimate->time.mfu_causal))
        buf_printf(out, ", MFU causal %.1f %%, full %.1f %%",
                   100 * faster * estimate->time.mfu_causal,
                   100 * faster * estimate->time.mfu_full);
    measured_text_waits(measured, out);
    buf_printf(out, "\n  held: %.2f GiB of the device, planned %.2f",
               (double)measured->device_bytes * 0x1p-30,
               (double)estimate->plan.arena_bytes[MEM_ARENA_DEVICE] * 0x1p-30);
    if (measured->taken_bytes > 0)
        buf_printf(out, "; with driver and libraries %.2f, planned %.2f",
                   (double)measured->taken_bytes * 0x1p-30,
                   (double)estimate->plan.peak_device_bytes * 0x1p-30);
    buf_printf(out, "; %.2f GiB pinned\n", (double)measured->host_bytes * 0x1p-30);
    if (estimate->spec.rehearse)
        measured_text_rehearsal(estimate, step_s, out);
}

json_t *mem_measured_report_json(const struct mem_estimate *estimate,
                                 const struct mem_measured *measured)
{
    const struct time_plan *time = &estimate->time;
    must(estimate->rates != NULL);
    bool rehearsed = estimate->spec.rehearse; /* else the network was there, and is in the step */
    double network_s = rehearsed ? time->network_s : 0;
    double wait_s = rehearsed ? time->network_wait_s : 0;
    double whole_s = measured_whole(estimate, measured), step_s = whole_s + wait_s;
    double rate = time->tokens / step_s, faster = time->step_s / step_s;
    return json_pack(
        "{s:b, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:s, s:f, s:f, s:f, s:o, s:o, "
        "s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
        "rehearsed", (int)rehearsed, "world", (json_int_t)estimate->spec.gpus, "layers",
        (json_int_t)estimate->plan.layout.config.layers, "layers_worked",
        (json_int_t)measured->layers, "layer_s", measured->layer_s, "step_s", measured->step_s,
        "whole_step_s", whole_s, "network_s", network_s, "network_wait_s", wait_s, "network",
        estimate->rates->source, "predicted_step_s", step_s, "tokens_per_s", rate,
        "tokens_per_s_gpu", rate / (double)estimate->spec.gpus, "mfu_causal",
        json_number(faster * time->mfu_causal), "mfu_full", json_number(faster * time->mfu_full),
        "device_bytes", (json_int_t)measured->device_bytes, "planned_device_bytes",
        (json_int_t)estimate->plan.arena_bytes[MEM_ARENA_DEVICE], "taken_bytes",
        (json_int_t)measured->taken_bytes, "planned_taken_bytes",
        (json_int_t)estimate->plan.peak_device_bytes, "host_bytes",
        (json_int_t)measured->host_bytes, "planned_host_bytes",
        (json_int_t)estimate->plan.arena_bytes[MEM_ARENA_HOST], "waits",
        measured_waits_json(measured));
}
