/* telemetry: two arrays allocated once. Points of one job lie together only by chance, so after the
 * commit each distinct run of equal job ids gives a note; a listener minds no note too many. */
#include "daemon/telemetry.h"

#include "common/mem.h"
#include "common/must.h"

#include <stdio.h>
#include <string.h>

int telemetry_init(struct telemetry *telemetry, struct store *store, struct bus *bus,
                   struct err *err)
{
    *telemetry = (struct telemetry){.store = store, .bus = bus};
    telemetry->points = mem_new(LIMIT_POINTS_BATCH, sizeof *telemetry->points);
    telemetry->job_ids = mem_new(LIMIT_POINTS_BATCH, sizeof *telemetry->job_ids);
    if (telemetry->points == NULL || telemetry->job_ids == NULL) {
        telemetry_done(telemetry);
        return mem_fail(err, LIMIT_POINTS_BATCH * sizeof *telemetry->points, "metric points");
    }
    return 0;
}

void telemetry_done(struct telemetry *telemetry)
{
    mem_free(telemetry->points);
    mem_free(telemetry->job_ids);
    *telemetry = (struct telemetry){.count = 0};
}

int telemetry_add(struct telemetry *telemetry, const char *job_id, int64_t attempt, int64_t rank,
                  const struct wire_metrics *metrics, struct err *err)
{
    must(metrics->count <= WIRE_METRICS_MAX);
    if (telemetry->count + metrics->count > LIMIT_POINTS_BATCH)
        TRY(telemetry_flush(telemetry, err));
    for (uint32_t i = 0; i < metrics->count; i++) {
        size_t at = telemetry->count++;
        (void)snprintf(telemetry->job_ids[at], sizeof telemetry->job_ids[at], "%s", job_id);
        telemetry->points[at] = (struct store_point){
            .job_id = telemetry->job_ids[at],
            .attempt = attempt,
            .step = (int64_t)metrics->step,
            .rank = rank,
            .metric = (enum metric_id)metrics->points[i].metric,
            .value = metrics->points[i].value,
            .wall_s = metrics->wall_s,
        };
    }
    return 0;
}

int telemetry_flush(struct telemetry *telemetry, struct err *err)
{
    if (telemetry->count == 0)
        return 0;
    int64_t row = 0;
    TRY(store_points_insert(telemetry->store, telemetry->points, telemetry->count, &row, err));
    for (size_t i = 0; i < telemetry->count; i++) {
        bool last = i + 1 == telemetry->count ||
                    strcmp(telemetry->job_ids[i], telemetry->job_ids[i + 1]) != 0;
        if (last)
            bus_publish(telemetry->bus,
                        &(struct bus_note){.job_id = telemetry->job_ids[i], .point_row = row});
    }
    telemetry->count = 0;
    return 0;
}
