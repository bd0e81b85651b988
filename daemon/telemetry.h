/* telemetry: the metric points that came since the last commit, of all jobs. One transaction stores
 * them; then the bus is told once for each job. What could not be stored stays for the next try. */
#pragma once
#include "common/err.h"
#include "common/limits.h"
#include "daemon/bus.h"
#include "daemon/store.h"

#include <stddef.h>
#include <stdint.h>

struct telemetry {
    struct store *store;
    struct bus *bus;
    struct store_point *points;          /* (LIMIT_POINTS_BATCH) of them `count` used */
    char (*job_ids)[LIMIT_ID_BYTES + 1]; /* (LIMIT_POINTS_BATCH) what points[i].job_id points to */
    size_t count;
};

int telemetry_init(struct telemetry *telemetry, struct store *store, struct bus *bus,
                   struct err *err);
void telemetry_done(struct telemetry *telemetry); /* what was not stored is lost */

/* Adds all points of a frame or none. When there is no room it stores first; an error then means
 * that the frame was not taken. */
int telemetry_add(struct telemetry *telemetry, const char *job_id, int64_t attempt, int64_t rank,
                  const struct wire_metrics *metrics, struct err *err);
int telemetry_flush(struct telemetry *telemetry, struct err *err); /* nothing to do is fine */
