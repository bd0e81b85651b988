/* fuzz_experiment: the body of POST /v1/experiments. A spec that was taken is taken again when it
 * is printed; each of its points is a body with a label, or says why not. */
#include "common/experiment_spec.h"
#include "common/mem.h"
#include "common/must.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void experiment_points(const struct experiment_spec *spec)
{
    for (int64_t i = 0; i < spec->points; i++) {
        struct err err = {.code = ERR_NONE};
        struct experiment_point point;
        int rc = experiment_spec_point(spec, i, &point, &err);
        if (rc != 0) {
            fuzz_refused(rc, &err);
            return;
        }
        CLEANUP(json_unref) json_t *label = json_string(point.label);
        must(label != NULL && strchr(point.label, '\n') == NULL);
        must(json_is_object(json_object_get(point.body, "ithaca")));
        experiment_point_done(&point);
    }
}

static void experiment_survives(const struct experiment_spec *spec)
{
    struct err err;
    struct experiment_spec again;
    CLEANUP(json_unref) json_t *printed = experiment_spec_json(spec);
    fuzz_json_survives(printed);
    must(experiment_spec_parse(printed, &again, &err) == 0 && again.points == spec->points);
    CLEANUP(json_unref) json_t *twice = experiment_spec_json(&again);
    must(json_equal(printed, twice));
    experiment_points(&again);
    must(json_equal(printed, twice)); /* points leave the grid as it is */
    experiment_spec_done(&again);
}

static void experiment_try(const char *text, size_t size)
{
    struct err err = {.code = ERR_NONE};
    struct experiment_spec spec;
    CLEANUP(json_unref) json_t *body = NULL;
    int rc = json_parse(text, size, "body", &body, &err);
    if (rc == 0)
        rc = experiment_spec_parse(body, &spec, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        return;
    }
    fuzz_taken++;
    must(spec.points >= 1 && spec.points <= LIMIT_EXPERIMENT_POINTS);
    experiment_survives(&spec);
    experiment_spec_done(&spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    experiment_try((const char *)data, size);
    must(mem_live() == live);
    return 0;
}
