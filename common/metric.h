/* metric: the rows of api/metrics.def: what a job measures, by number on the wire and by name in
 * the store and the API. */
#pragma once

enum metric_id {
#define X(id, name, unit, scope, label, doc) METRIC_##id,
#include "api/metrics.def"
#undef X
    METRIC_COUNT
};
const char *metric_name(enum metric_id id); /* "loss" */
const char *metric_unit(enum metric_id id);
enum metric_id metric_parse(const char *name); /* METRIC_COUNT when unknown */
