/* local_measure: steps of a planned job, run on this machine (local_run.h) with random weights and
 * tokens, timed, and what they take of memory. */
#pragma once
#include "clients/cli/local_run.h"
#include "common/mem_measured.h"

enum { LOCAL_MEASURE_STEPS = 3, LOCAL_MEASURE_STEPS_MAX = MEM_MEASURED_STEPS_MAX };

/* `steps` of them, the first to warm up. estimate: of this machine's backend, of a model of `ask`'s
 * shape; its memory is the ranks'. What cannot be run is said in ret->why; errors are failures of
 * ours. */
int local_measure(const struct mem_ask *ask, const struct mem_estimate *estimate, int64_t steps,
                  struct mem_measured *ret, struct err *err);
