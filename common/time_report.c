/* time_report: see time_report.h. */
#include "common/time_report.h"

#include "common/must.h"
#include "common/number.h"

#include <math.h>

static double report_phase_seconds(const struct time_plan *time, int phase)
{
    double seconds = 0;
    for (int part = 0; part < TIME_PART_COUNT; part++)
        seconds += time->seconds[phase][part];
    return seconds;
}

static json_t *report_phase(const struct time_plan *time, int phase)
{
    json_t *json = json_pack("{s:s, s:f}", "phase", time_phase_name((enum time_phase)phase),
                             "seconds", report_phase_seconds(time, phase));
    for (int part = 0; part < TIME_PART_COUNT && json != NULL; part++)
        if (json_object_set_new(json, time_part_name((enum time_part)part),
                                json_real(time->seconds[phase][part])) != 0)
            json_unref(&json);
    return json;
}

static json_t *report_phases(const struct time_plan *time)
{
    json_t *phases = json_array();
    int bad = phases == NULL;
    for (int phase = 0; phase < TIME_PHASE_COUNT; phase++)
        bad |= json_array_append_new(phases, report_phase(time, phase));
    if (bad == 0)
        return phases;
    json_decref(phases);
    return NULL;
}

json_t *time_report_json(const struct mem_estimate *estimate)
{
    const struct time_plan *time = &estimate->time;
    const struct time_rates *rates = estimate->rates;
    must(rates != NULL);
    return json_pack(
        "{s:s, s:f, s:f, s:f, s:o, s:o, s:o, s:b, s:s, s:o}", "object", "time_plan",
        "predicted_step_s", time->step_s, "tokens_per_s", time->tokens_per_s, "tokens_per_s_gpu",
        time->tokens_per_s / (double)estimate->spec.gpus, "mfu_causal",
        json_number(time->mfu_causal), "mfu_full", json_number(time->mfu_full), "peak_flops",
        rates->peak_flops > 0 ? json_real(rates->peak_flops) : json_null(), "calibrated",
        (int)rates->measured, "rates", rates->source, "phases", report_phases(time));
}

void time_report_text(const struct mem_estimate *estimate, struct buf *out)
{
    const struct time_plan *time = &estimate->time;
    const struct time_rates *rates = estimate->rates;
    must(rates != NULL);
    buf_printf(out, "a step, predicted: %s s, %s tokens/s, %s a rank",
               number_plain(time->step_s, 4).text, number_plain(time->tokens_per_s, 4).text,
               number_plain(time->tokens_per_s / (double)estimate->spec.gpus, 4).text);
    if (!isnan(time->mfu_causal))
        buf_printf(out, "; MFU %.1f %% causal, %.1f %% full (of %.4g TF/s)", time->mfu_causal * 100,
                   time->mfu_full * 100, rates->peak_flops * 1e-12);
    buf_printf(out, "\n  %-14s", "seconds");
    for (int part = 0; part < TIME_PART_COUNT; part++)
        buf_printf(out, " %10s", time_part_name((enum time_part)part));
    buf_printf(out, " %10s\n", "all");
    for (int phase = 0; phase < TIME_PHASE_COUNT; phase++) {
        double all = report_phase_seconds(time, phase);
        if (all == 0)
            continue;
        buf_printf(out, "  %-14s", time_phase_name((enum time_phase)phase));
        for (int part = 0; part < TIME_PART_COUNT; part++)
            buf_printf(out, " %10s", number_plain(time->seconds[phase][part], 4).text);
        buf_printf(out, " %10s\n", number_plain(all, 4).text);
    }
    buf_printf(out, "  rates: %s\n", rates->source);
}
