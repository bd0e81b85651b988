/* launch_plan: JSON, checked on the way in as if it were hostile: the file lies in a folder, the
 * frame came over a socket. Unknown keys are those that printing the parsed plan does not make. */
#include "common/launch_plan.h"

#include "common/cgroup.h"
#include "common/mem.h"
#include "common/must.h"

#include <string.h>

enum { PLAN_MS_MAX = 24 * 3600 * 1000 };

static json_t *plan_secret_json(const uint8_t secret[WIRE_SECRET_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    char hex[2 * WIRE_SECRET_BYTES];
    for (size_t i = 0; i < WIRE_SECRET_BYTES; i++) {
        hex[2 * i] = digits[secret[i] >> 4];
        hex[2 * i + 1] = digits[secret[i] & 15];
    }
    return json_stringn(hex, sizeof hex);
}

static int plan_take_secret(const json_t *object, uint8_t ret[WIRE_SECRET_BYTES], struct err *err)
{
    static const char digits[] = "0123456789abcdef";
    const char *hex;
    TRY(json_get_string(object, "secret", ERR_CORRUPT, &hex, err));
    const size_t length = (size_t)2 * WIRE_SECRET_BYTES;
    if (strlen(hex) != length || strspn(hex, digits) != length)
        return err_set(err, ERR_CORRUPT, "\"secret\" must be %zu hex digits", length);
    for (size_t i = 0; i < WIRE_SECRET_BYTES; i++)
        ret[i] = (uint8_t)((strchr(digits, hex[2 * i]) - digits) * 16 +
                           (strchr(digits, hex[2 * i + 1]) - digits));
    return 0;
}

/* A string that fits `size` bytes. */
static int plan_take_text(const json_t *object, const char *key, char *ret, size_t size,
                          struct err *err)
{
    const char *text;
    TRY(json_get_string(object, key, ERR_CORRUPT, &text, err));
    if (strlen(text) >= size)
        return err_set(err, ERR_CORRUPT, "\"%s\" is longer than %zu bytes", key, size - 1);
    memcpy(ret, text, strlen(text) + 1);
    return 0;
}

static int plan_take_path(const json_t *object, const char *key, char **ret, struct err *err)
{
    const char *text;
    TRY(json_get_string(object, key, ERR_CORRUPT, &text, err));
    if (text[0] != '/' || strlen(text) >= LIMIT_PATH_BYTES)
        return err_set(err, ERR_CORRUPT, "\"%s\" is not an absolute path", key);
    *ret = mem_strdup(text);
    return *ret != NULL ? 0 : mem_fail(err, strlen(text), "a path");
}

static int plan_take_resume(const json_t *object, struct launch_plan *plan, struct err *err)
{
    const char *from;
    TRY(json_get_string(object, "resume_from", ERR_CORRUPT, &from, err));
    if (from[0] == '\0')
        return 0;
    return plan_take_path(object, "resume_from", &plan->resume_from, err);
}

/* What is killed and removed at the end: it must be this attempt's. */
static int plan_take_cgroup(const json_t *object, struct launch_plan *plan, struct err *err)
{
    if (json_object_get(object, "cgroup") == NULL)
        return 0;
    TRY(plan_take_path(object, "cgroup", &plan->cgroup, err));
    if (!cgroup_is_of(plan->cgroup, plan->job_id, plan->attempt))
        return err_set(err, ERR_CORRUPT, "\"cgroup\" is not the group of this attempt");
    return 0;
}

static int plan_take_integer(const json_t *object, const char *key, int64_t min, int64_t max,
                             int64_t *ret, struct err *err)
{
    TRY(json_get_i64(object, key, ERR_CORRUPT, ret, err));
    if (*ret < min || *ret > max)
        return err_set(err, ERR_CORRUPT, "\"%s\" must be from %lld to %lld", key, (long long)min,
                       (long long)max);
    return 0;
}

static int plan_take_u32(const json_t *object, const char *key, int64_t max, uint32_t *ret,
                         struct err *err)
{
    int64_t value;
    TRY(plan_take_integer(object, key, 1, max, &value, err));
    *ret = (uint32_t)value;
    return 0;
}

/* Ids become parts of paths and names of shared memory. */
static int plan_check_id(const char *key, const char *id, struct err *err)
{
    static const char legal[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    if (id[0] == '\0' || id[strspn(id, legal)] != '\0')
        return err_set(err, ERR_CORRUPT, "\"%s\" must be letters, digits, \"_\" and \"-\"", key);
    return 0;
}

static int64_t plan_degree(int64_t degree)
{
    return degree == JOB_AUTO ? 1 : degree;
}

uint32_t launch_plan_ranks(const struct launch_plan *plan)
{
    return plan->spec.rehearse ? (uint32_t)plan->spec.gpus : plan->world;
}

static int plan_check_layout(const struct launch_plan *plan, struct err *err)
{
    int64_t ring = plan_degree(plan->spec.ring), ulysses = plan_degree(plan->spec.ulysses);
    if (launch_plan_ranks(plan) % (ring * ulysses) != 0)
        return err_set(err, ERR_CORRUPT,
                       "\"world\" %u is not a multiple of ring %lld x ulysses %lld",
                       launch_plan_ranks(plan), (long long)ring, (long long)ulysses);
    return 0;
}

struct mesh launch_plan_mesh(const struct launch_plan *plan)
{
    return mesh_make((int)launch_plan_ranks(plan), (int)plan_degree(plan->spec.ring),
                     (int)plan_degree(plan->spec.ulysses));
}

/* "gpus": one name a rank, none twice; an empty list is the CPU. */
static int plan_take_gpus(const json_t *object, struct launch_plan *plan, struct err *err)
{
    const json_t *gpus = json_object_get(object, "gpus");
    size_t count = json_array_size(gpus);
    if (!json_is_array(gpus) || (count != 0 && count != plan->world))
        return err_set(err, ERR_CORRUPT, "\"gpus\" must be a list of one name a rank, or empty");
    plan->device = count == 0 ? LAUNCH_CPU : LAUNCH_CUDA;
    for (size_t i = 0; i < count; i++) {
        const char *gpu = json_string_value(json_array_get(gpus, i));
        if (gpu == NULL || strlen(gpu) >= LIMIT_GPU_BYTES)
            return err_set(err, ERR_CORRUPT, "\"gpus\"[%zu] is not a GPU's name", i);
        TRY(plan_check_id("gpus", gpu, err));
        (void)snprintf(plan->gpus[i], sizeof plan->gpus[i], "%s", gpu);
        for (size_t j = 0; j < i; j++)
            if (strcmp(plan->gpus[j], gpu) == 0)
                return err_set(err, ERR_CORRUPT, "\"gpus\" names %s twice", gpu);
    }
    return 0;
}

static json_t *plan_gpus_json(const struct launch_plan *plan)
{
    json_t *gpus = json_array();
    for (uint32_t i = 0; plan->device == LAUNCH_CUDA && i < plan->world; i++)
        if (json_array_append_new(gpus, json_string(plan->gpus[i])) != 0) {
            json_decref(gpus);
            return NULL;
        }
    return gpus;
}

int launch_plan_memory(const struct launch_plan *plan, const struct model_shape *shape,
                       struct mem_plan *ret, struct err *err)
{
    const struct mem_request request = {.shape = shape,
                                        .spec = &plan->spec,
                                        .world = (int)launch_plan_ranks(plan),
                                        .backend = plan->device == LAUNCH_CUDA ? MEM_BACKEND_CUDA
                                                                               : MEM_BACKEND_CPU};
    return mem_plan_build(&request, ret, err);
}

static const char *launch_purpose_name(enum launch_purpose purpose)
{
#define X(id, name) [LAUNCH_##id] = name,
    static const char *const names[LAUNCH_PURPOSE_COUNT] = { LAUNCH_PURPOSE_TABLE(X) };
#undef X
    must((unsigned)purpose < LAUNCH_PURPOSE_COUNT);
    return names[purpose];
}

static int plan_take_purpose(const json_t *object, enum launch_purpose *ret, struct err *err)
{
    const char *text;
    TRY(json_get_string(object, "purpose", ERR_CORRUPT, &text, err));
    for (int i = 0; i < LAUNCH_PURPOSE_COUNT; i++)
        if (strcmp(text, launch_purpose_name((enum launch_purpose)i)) == 0) {
            *ret = (enum launch_purpose)i;
            return 0;
        }
    return err_set(err, ERR_CORRUPT, "\"purpose\" is none that is known");
}

static int plan_take(const json_t *object, struct launch_plan *plan, struct err *err)
{
    TRY(plan_take_text(object, "job_id", plan->job_id, sizeof plan->job_id, err));
    TRY(plan_check_id("job_id", plan->job_id, err));
    TRY(plan_take_u32(object, "attempt", INT32_MAX, &plan->attempt, err));
    TRY(plan_take_purpose(object, &plan->purpose, err));
    TRY(plan_take_u32(object, "world", LIMIT_RANKS, &plan->world, err));
    TRY(plan_take_secret(object, plan->secret, err));
    TRY(plan_take_text(object, "socket", plan->socket, sizeof plan->socket, err));
    TRY(plan_take_text(object, "shm_name", plan->shm_name, sizeof plan->shm_name, err));
    if (plan->shm_name[0] == '/')
        TRY(plan_check_id("shm_name", plan->shm_name + 1, err));
    else if (plan->shm_name[0] != '\0' || plan->world > 1)
        return err_set(err, ERR_CORRUPT, "\"shm_name\" must start with a slash");
    TRY(plan_take_path(object, "job_dir", &plan->job_dir, err));
    TRY(plan_take_path(object, "model_dir", &plan->model_dir, err));
    TRY(plan_take_text(object, "model_name", plan->model_name, sizeof plan->model_name, err));
    TRY(plan_take_integer(object, "heartbeat_limit_ms", 1, PLAN_MS_MAX, &plan->heartbeat_limit_ms,
                          err));
    TRY(plan_take_integer(object, "coll_timeout_ms", 1, PLAN_MS_MAX, &plan->coll_timeout_ms, err));
    TRY(plan_take_integer(object, "orphan_limit_ms", 0, PLAN_MS_MAX, &plan->orphan_limit_ms, err));
    TRY(plan_take_u32(object, "threads", 4096, &plan->threads, err));
    TRY(plan_take_gpus(object, plan, err));
    TRY(plan_take_resume(object, plan, err));
    TRY(plan_take_integer(object, "steps_done", 0, INT64_MAX, &plan->steps_done, err));
    TRY(plan_take_text(object, "memory_digest", plan->memory_digest, sizeof plan->memory_digest,
                       err));
    TRY(plan_take_integer(object, "peak_flops", 0, INT64_MAX, &plan->peak_flops, err));
    TRY(plan_take_cgroup(object, plan, err));
    int rc = job_spec_parse(json_object_get(object, "spec"), &plan->spec, err);
    return rc == 0 ? plan_check_layout(plan, err) : err_wrap(err, rc, "\"spec\": ");
}

static int plan_refuse_unknown(const json_t *object, const struct launch_plan *plan,
                               struct err *err)
{
    CLEANUP(json_unref) json_t *known = launch_plan_json(plan);
    if (known == NULL)
        return mem_fail(err, sizeof *plan, "the launch plan");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_object_get(known, key) == NULL)
            return err_set(err, ERR_CORRUPT, "an unknown key");
    }
    return 0;
}

int launch_plan_parse(const json_t *object, struct launch_plan *ret_plan, struct err *err)
{
    if (!json_is_object(object))
        return err_set(err, ERR_CORRUPT, "launch plan: not a JSON object");
    struct launch_plan plan = {0};
    int rc = plan_take(object, &plan, err);
    if (rc == 0)
        rc = plan_refuse_unknown(object, &plan, err);
    if (rc != 0) {
        launch_plan_done(&plan);
        return err_wrap(err, rc, "launch plan: ");
    }
    *ret_plan = plan;
    return 0;
}

int launch_plan_read(const char *attempt_dir, struct launch_plan *ret_plan, struct err *err)
{
    CLEANUP(json_unref) json_t *json = NULL;
    CLEANUP(mem_free_ptr) char *path = io_join(attempt_dir, "plan.json");
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(json_parse_own_file(path, LIMIT_FRAME_BYTES, &json, err));
    int rc = launch_plan_parse(json, ret_plan, err);
    return rc == 0 ? 0 : err_wrap(err, rc, "%s: ", path);
}

json_t *launch_plan_json(const struct launch_plan *plan)
{
    must(plan->world >= 1 && plan->world <= LIMIT_RANKS && plan->attempt >= 1);
    must(plan->job_dir != NULL && plan->model_dir != NULL);
    return json_pack(
        "{s:s, s:I, s:s, s:I, s:o, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:s, s:I, "
        "s:s, s:I, s:s*, s:o}",
        "job_id", plan->job_id, "attempt", (json_int_t)plan->attempt, "purpose",
        launch_purpose_name(plan->purpose), "world", (json_int_t)plan->world, "secret",
        plan_secret_json(plan->secret), "socket", plan->socket, "shm_name", plan->shm_name,
        "job_dir", plan->job_dir, "model_dir", plan->model_dir, "model_name", plan->model_name,
        "heartbeat_limit_ms", (json_int_t)plan->heartbeat_limit_ms, "coll_timeout_ms",
        (json_int_t)plan->coll_timeout_ms, "orphan_limit_ms", (json_int_t)plan->orphan_limit_ms,
        "threads", (json_int_t)plan->threads, "gpus", plan_gpus_json(plan), "resume_from",
        plan->resume_from != NULL ? plan->resume_from : "", "steps_done",
        (json_int_t)plan->steps_done, "memory_digest", plan->memory_digest, "peak_flops",
        (json_int_t)plan->peak_flops, "cgroup", plan->cgroup, "spec", job_spec_json(&plan->spec));
}

void launch_plan_done(struct launch_plan *plan)
{
    mem_free(plan->job_dir);
    mem_free(plan->model_dir);
    plan->job_dir = NULL;
    plan->model_dir = NULL;
    mem_free(plan->resume_from);
    plan->resume_from = NULL;
    mem_free(plan->cgroup);
    plan->cgroup = NULL;
    job_spec_done(&plan->spec);
}

char *launch_plan_attempt_dir(const struct launch_plan *plan)
{
    return mem_printf("%s/attempt-%u", plan->job_dir, plan->attempt);
}
