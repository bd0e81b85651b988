/* experiment_search: halving between the longest that runs and the shortest that does not. */
#include "daemon/experiment_search.h"

#include "common/must.h"

int64_t experiment_search_next(const struct experiment_probe *probes, size_t count, int64_t min,
                               int64_t step)
{
    int64_t good = 0, bad = INT64_MAX;
    must(step > 0 && min > 0);
    for (size_t i = 0; i < count; i++) {
        if (probes[i].outcome == EXPERIMENT_BREAKS)
            return 0;
        if (probes[i].outcome == EXPERIMENT_RUNS && probes[i].seq_len > good)
            good = probes[i].seq_len;
        if (probes[i].outcome == EXPERIMENT_TOO_LONG && probes[i].seq_len < bad)
            bad = probes[i].seq_len;
    }
    if (bad == INT64_MAX || bad <= min)
        return 0;
    int64_t low = good > 0 ? good : min;
    if (bad - low > step) {
        int64_t middle = low + (bad - low) / 2;
        int64_t round = middle / step * step; /* a rounder number, where there is one between */
        return round > low ? round : middle;
    }
    return good > 0 ? 0 : min;
}
