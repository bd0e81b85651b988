/* fuzz_launch_plan: plan.json and the payload of a PLAN frame. A plan that is taken is taken again
 * when it is printed. */
#include "common/launch_plan.h"
#include "common/mem.h"
#include "common/must.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void plan_try(const char *text, size_t size)
{
    struct err err = {.code = ERR_NONE};
    struct launch_plan plan, again;
    CLEANUP(json_unref) json_t *json = NULL;
    int rc = json_parse(text, size, "plan", &json, &err);
    if (rc == 0)
        rc = launch_plan_parse(json, &plan, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        return;
    }
    fuzz_taken++;
    must(plan.world >= 1 && plan.world <= LIMIT_RANKS && plan.attempt >= 1);
    must(plan.job_dir[0] == '/' && plan.model_dir[0] == '/' && strchr(plan.job_id, '/') == NULL);
    CLEANUP(json_unref) json_t *printed = launch_plan_json(&plan);
    must(printed != NULL);
    fuzz_json_survives(printed);
    must(launch_plan_parse(printed, &again, &err) == 0);
    CLEANUP(json_unref) json_t *reprinted = launch_plan_json(&again);
    must(json_equal(printed, reprinted));
    launch_plan_done(&plan);
    launch_plan_done(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    plan_try((const char *)data, size);
    must(mem_live() == live);
    return 0;
}
