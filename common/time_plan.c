/* time_plan: see time_plan.h. */
#include "common/time_plan.h"

#include <math.h>

/* What can be busy at once. */
enum plan_lane { LANE_WORK, LANE_NETWORK, LANE_OUT, LANE_IN, LANE_FILE, LANE_COUNT };

static enum plan_lane plan_lane(const struct time_item *item, bool beside)
{
    if (!beside || !item->beside)
        return LANE_WORK;
    switch (item->op) {
    case TIME_TO_HOST:
        return LANE_OUT;
    case TIME_FROM_HOST:
        return LANE_IN;
    case TIME_FILE_WRITE:
    case TIME_FILE_READ:
        return LANE_FILE;
    default:
        return LANE_NETWORK;
    }
}

/* Backward and what it does again are one loop over layers. */
static enum time_phase plan_loop(enum time_phase phase)
{
    return phase == TIME_PHASE_RECOMPUTE ? TIME_PHASE_BACKWARD : phase;
}

/* What the longest lane takes beyond the work of its loop counts as waiting for it. */
static void plan_wait(const double lanes[TIME_PHASE_COUNT][LANE_COUNT], struct time_plan *plan)
{
    for (int phase = 0; phase < TIME_PHASE_COUNT; phase++) {
        int longest = LANE_WORK;
        for (int lane = 0; lane < LANE_COUNT; lane++)
            if (lanes[phase][lane] > lanes[phase][longest])
                longest = lane;
        enum time_part part = longest == LANE_NETWORK ? TIME_PART_EXCHANGE : TIME_PART_COPIES;
        double wait = lanes[phase][longest] - lanes[phase][LANE_WORK];
        plan->seconds[phase][part] += wait; /* 0 where work takes longest */
        plan->network_wait_s += longest == LANE_NETWORK ? wait : 0;
    }
}

double time_plan_layers_s(const struct time_plan *time, double share)
{
    double step_s = 0;
    for (int phase = 0; phase < TIME_PHASE_COUNT; phase++)
        for (int part = 0; part < TIME_PART_COUNT; part++)
            step_s += time->seconds[phase][part] *
                      (phase == TIME_PHASE_LOSS || phase == TIME_PHASE_UPDATE ? 1 : share);
    return step_s;
}

double time_plan_flops(const struct model_config *config, bool frozen, double tokens, double pairs)
{
    double h = (double)config->hidden_size, f = (double)config->intermediate_size;
    double q = (double)(config->heads * config->head_dim);
    double kv = (double)(config->kv_heads * config->head_dim), layers = (double)config->layers;
    double weights = layers * (2 * h * q + 2 * h * kv + 3 * h * f) + h * (double)config->vocab_size;
    return (frozen ? 4 : 6) * weights * tokens + 12 * layers * q * pairs;
}

void time_plan_make(const struct time_job *job, int64_t sequences, const struct time_rates *rates,
                    struct time_plan *ret)
{
    struct time_work work;
    double lanes[TIME_PHASE_COUNT][LANE_COUNT] = {{0}};
    struct time_plan plan = {.tokens = (double)sequences * (double)job->seq_len};
    time_work_make(job, &work);
    for (int i = 0; i < work.count; i++) {
        const struct time_item *item = &work.items[i];
        enum plan_lane lane = plan_lane(item, rates->beside);
        double seconds =
            item->calls * time_rates_seconds(rates, item->op, item->size, item->width, item->work);
        enum time_part part = time_op_part(item->op);
        bool network = part == TIME_PART_EXCHANGE || part == TIME_PART_SHARDING;
        lanes[plan_loop(item->phase)][lane] += seconds;
        plan.network_s += network ? seconds : 0;
        plan.network_wait_s += network && lane == LANE_WORK ? seconds : 0;
        if (lane == LANE_WORK)
            plan.seconds[item->phase][part] += seconds;
    }
    plan_wait(lanes, &plan);
    for (int phase = 0; phase < TIME_PHASE_COUNT; phase++)
        for (int part = 0; part < TIME_PART_COUNT; part++)
            plan.step_s += plan.seconds[phase][part];
    bool frozen = job->layout->lora_r > 0;
    double sequence_pairs = time_work_pairs(job) / (double)job->layout->slots;
    double length = (double)job->seq_len;
    const struct model_config *config = &job->layout->config;
    plan.tokens_per_s = plan.step_s > 0 ? plan.tokens / plan.step_s : 0;
    plan.flops_causal =
        time_plan_flops(config, frozen, plan.tokens, (double)sequences * sequence_pairs);
    plan.flops_full = time_plan_flops(config, frozen, plan.tokens, plan.tokens * length);
    double peak = rates->peak_flops * (double)job->layout->mesh.world * plan.step_s;
    plan.mfu_causal = peak > 0 ? plan.flops_causal / peak : (double)NAN;
    plan.mfu_full = peak > 0 ? plan.flops_full / peak : (double)NAN;
    *ret = plan;
}
