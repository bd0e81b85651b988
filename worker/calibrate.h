/* calibrate: a rank's part in measuring a machine, for common/time_rates.h: all ranks of a plan
 * with purpose CALIBRATE time the device's operations, at several sizes each, at the same time;
 * rank 0 leaves <job_dir>/rates.json. Whoever started the
 * ranks knows what they run on and adds its name.
 *
 * The device's memory is one pool of four regions; operands move through them, so that what a call
 * reads is no nearer to the processor than in a step. A point gets a window of time: the plan's
 * time_limit_s is shared out among the points. */
#pragma once
#include "common/launch_plan.h"
#include "common/time_rates.h"
#include "worker/coll.h"
#include "worker/device.h"

enum { CALIBRATE_REGIONS = 4 };

struct calibrate {
    const struct launch_plan *plan; /* borrowed, as are the next two */
    struct device *device;
    struct coll *coll;
    bool cuda;
    int64_t act; /* bytes of an activation */
    char *pool;  /* of the device: CALIBRATE_REGIONS of region_bytes each */
    int64_t region_bytes;
    int32_t *ids;      /* device (CALIBRATE_IDS) small numbers: token ids, positions */
    char *host;        /* pinned (region_bytes), for copies */
    int64_t window_ns; /* for a point */
    struct time_rates *rates;
};
enum { CALIBRATE_IDS = 1 << 20, CALIBRATE_IDS_BELOW = 1024 };

int calibrate_rank(const struct launch_plan *plan, int number, struct err *err);

/* One call of what is timed; `turn` counts them. */
typedef int calibrate_fn(const struct calibrate *c, const void *args, int64_t turn,
                         struct err *err);
/* Adds a point of `op`: `work` FLOPs or bytes a call. together: every rank makes as many calls. */
int calibrate_point(struct calibrate *c, enum time_op op, double size, double width, double work,
                    bool together, calibrate_fn *run, const void *args, struct err *err);
/* `bytes` of a region, another place each turn. */
void *calibrate_at(const struct calibrate *c, int region, int64_t bytes, int64_t turn);

int calibrate_ops(struct calibrate *c, struct err *err);    /* products and attention */
int calibrate_passes(struct calibrate *c, struct err *err); /* bound by memory */
int calibrate_moves(struct calibrate *c, struct err *err);  /* collectives, copies, files */
