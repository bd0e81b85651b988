/* time_plan: how long an optimizer step of a job takes, before it is run: the work of a rank
 * (time_work.h) at the rates of a machine (time_rates.h). A pure function.
 *
 *     time_plan_make(&job, sequences, &rates, &time);
 *     time.step_s, time.tokens_per_s, time.mfu_causal ...
 *
 * What may run beside the work of its phase (prefetched gathers, exchanges under `overlap`, copies
 * to and from the host or files) costs what it takes beyond that work: a phase lasts as long as the
 * longest of its work, its network, its copies in each direction and its files. Where nothing runs
 * beside (the CPU backend) all of it adds up. All ranks are taken to be equally fast and loaded.
 *
 * MFU (arXiv 2204.02311, appendix B) is model FLOPs, which count nothing that is recomputed, over
 * what the device's maker promises: 6 a weight and token (4 where it is frozen and has no gradient:
 * adapters' own are not counted), and for attention
 *   causal  12 L H d a pair of query and key that is needed;
 *   full    12 L H d S a token, as if every query saw all S keys: the habit of most papers. */
#pragma once
#include "common/time_rates.h"
#include "common/time_work.h"

struct time_plan {
    double step_s;
    double seconds[TIME_PHASE_COUNT][TIME_PART_COUNT]; /* add up to step_s */
    double tokens;                                     /* of a step, all ranks */
    double tokens_per_s;                               /* all ranks */
    double network_s;                /* of a step's collectives, those beside the work too */
    double network_wait_s;           /* what of these step_s has: the rest runs beside the work */
    double flops_causal, flops_full; /* of the model, a step, all ranks */
    double mfu_causal, mfu_full;     /* 0..1; NaN where the peak is not known */
};

void time_plan_make(const struct time_job *job, int64_t sequences, const struct time_rates *rates,
                    struct time_plan *ret);

/* Seconds of a step in which only this share of the layers works; head and update are whole. */
double time_plan_layers_s(const struct time_plan *time, double share);

/* Model FLOPs of `tokens` tokens with `pairs` pairs of query and key, forward and backward. */
double time_plan_flops(const struct model_config *config, bool frozen, double tokens, double pairs);
