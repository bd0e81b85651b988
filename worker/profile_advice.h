/* profile_advice: what a profile suggests: for each cause of lost time that is worth a word, the
 * setting that removes it, with what that costs by the plan of the changed job, and whether it fits
 * there; where there is no setting, what was found.
 *
 *   [{"cause", "share": of all steps' time, "text", "set": {field: value} or null,
 *     "device_bytes": more a rank takes (may be below 0), "host_bytes": more all ranks take,
 *     "fits": or null with "set"}]
 *
 * At most PROFILE_ADVICE_MAX: settings that fit, what was found, settings that do not fit; each by
 * share. A change that the job cannot make is not in the list. */
#pragma once
#include "common/json.h"
#include "worker/profile_sums.h"

enum { PROFILE_ADVICE_MAX = 5 };

int profile_advice_make(const struct profile_job *job, const struct profile_sums *sums,
                        json_t **ret, struct err *err);
