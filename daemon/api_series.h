/* api_series: a job's metrics for charts: down-sampled series (sampler.h), and the memory that it
 * planned and took. A job may have millions of points, so they are read a page at a turn of the
 * loop while the request waits. */
#pragma once
#include "daemon/api.h"

/* GET .../metrics with max_points; the other handler's parameters are read already. Answers later.
 */
int api_series_answer(struct api *api, struct http_request *request,
                      const struct store_point_query *wanted, int64_t rank, int64_t points_max,
                      struct err *err);
api_handler api_series_memory; /* GET .../memory */

/* A series without points, in JSON; NULL when out of memory. */
json_t *api_series_json(enum metric_id metric, int64_t attempt, int64_t rank);
/* One more point, [step, value, time]; wall_s: Unix time. ERR_NOMEM. */
int api_series_put(json_t *series, int64_t step, double value, double wall_s, struct err *err);
