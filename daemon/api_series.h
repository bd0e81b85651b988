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
