/* metric: the table as an array. */
#include "common/metric.h"

#include "common/must.h"

#include <string.h>

struct metric_row {
    const char *name; /* as stored and in the API */
    const char *unit; /* "" for a plain number */
};
static const struct metric_row metric_rows[METRIC_COUNT] = {
#define X(id, text, measure, scope, label, doc) [METRIC_##id] = {.name = text, .unit = measure},
#include "api/metrics.def"
#undef X
};

const char *metric_name(enum metric_id id)
{
    must((unsigned)id < METRIC_COUNT);
    return metric_rows[id].name;
}

const char *metric_unit(enum metric_id id)
{
    must((unsigned)id < METRIC_COUNT);
    return metric_rows[id].unit;
}

enum metric_id metric_parse(const char *name)
{
    for (int id = 0; id < METRIC_COUNT; id++)
        if (strcmp(metric_rows[id].name, name) == 0)
            return (enum metric_id)id;
    return METRIC_COUNT;
}
