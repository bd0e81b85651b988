/* gpu_load: sums over looks. A mean is over time, since looks are evenly spaced. */
#include "daemon/gpu_load.h"

enum { GPU_LOAD_POINTS = 3 };

void gpu_load_add(struct gpu_load *load, const struct gpu_sample *seen)
{
    if (seen->busy_percent >= 0) {
        load->busy_sum += seen->busy_percent;
        load->busy_looks++;
    }
    if (seen->power_mw >= 0) {
        load->power_sum_mw += seen->power_mw;
        load->power_looks++;
    }
    if (seen->temperature_c >= 0) {
        if (load->heat_looks == 0 || seen->temperature_c > load->hottest_c)
            load->hottest_c = seen->temperature_c;
        load->heat_looks++;
    }
}

static void load_point(struct wire_metrics *metrics, enum metric_id metric, int64_t sum,
                       int64_t looks, double per_unit)
{
    if (looks > 0)
        metrics->points[metrics->count++] = (struct wire_point){
            .metric = (uint16_t)metric, .value = (double)sum / (double)looks / per_unit};
}

void gpu_load_take(struct gpu_load *load, struct wire_metrics *metrics)
{
    if (load->step == metrics->step || metrics->count + GPU_LOAD_POINTS > WIRE_METRICS_MAX)
        return;
    load_point(metrics, METRIC_GPU_UTILIZATION, load->busy_sum, load->busy_looks, 100);
    load_point(metrics, METRIC_GPU_POWER_W, load->power_sum_mw, load->power_looks, 1000);
    load_point(metrics, METRIC_GPU_TEMPERATURE_C, load->hottest_c, load->heat_looks > 0, 1);
    *load = (struct gpu_load){.step = metrics->step};
}
