/* fuzz_job: the body of POST /v1/fine_tuning/jobs. A spec that was taken is taken again when it is
 * printed, before and after job_spec_resolve(), and resolving twice changes nothing. */
#include "common/job_spec.h"
#include "common/mem.h"
#include "common/must.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static char *job_print(const struct job_spec *spec)
{
    CLEANUP(json_unref) json_t *json = job_spec_json(spec);
    must(json != NULL);
    return fuzz_print(json);
}

static void job_survives(const struct job_spec *spec)
{
    struct err err;
    struct job_spec again;
    CLEANUP(json_unref) json_t *json = job_spec_json(spec);
    must(json != NULL && job_spec_parse(json, &again, &err) == 0);
    CLEANUP(mem_free_ptr) char *first = job_print(spec);
    CLEANUP(mem_free_ptr) char *second = job_print(&again);
    must(strcmp(first, second) == 0);
    CLEANUP(json_unref) json_t *answer = job_spec_ithaca_json(spec);
    fuzz_json_survives(answer);
    job_spec_done(&again);
}

static void job_resolve(const struct job_spec *spec, const struct job_facts *facts)
{
    struct err err = {.code = ERR_NONE};
    struct job_spec resolved = *spec; /* metadata is borrowed */
    int rc = job_spec_resolve(&resolved, facts, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        must(memcmp(&resolved, spec, sizeof resolved) == 0);
        return;
    }
    job_survives(&resolved);
    CLEANUP(mem_free_ptr) char *first = job_print(&resolved);
    must(job_spec_resolve(&resolved, facts, &err) == 0);
    CLEANUP(mem_free_ptr) char *second = job_print(&resolved);
    must(strcmp(first, second) == 0);
}

static void job_try(const char *text, size_t size)
{
    static const struct job_facts facts[] = {
        {.ranks_max = 1, .heads = 1, .kv_heads = 1, .layers = 1, .context_max = 1},
        {.ranks_max = 8, .heads = 32, .kv_heads = 8, .layers = 32, .context_max = 8192},
        {.ranks_max = LIMIT_RANKS, .heads = LIMIT_HEADS, .kv_heads = LIMIT_HEADS, .layers = 1024},
    };
    struct err err = {.code = ERR_NONE};
    CLEANUP(json_unref) json_t *body = NULL;
    int rc = json_parse(text, size, "body", &body, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        must(body == NULL);
        return;
    }
    fuzz_json_survives(body);
    struct job_spec spec;
    rc = job_spec_parse(body, &spec, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        return;
    }
    fuzz_taken++;
    job_survives(&spec);
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        job_resolve(&spec, &facts[i]);
    job_spec_done(&spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    job_try((const char *)data, size);
    must(mem_live() == live);
    return 0;
}
