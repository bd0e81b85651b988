/* gpu_file: see gpu_file.h. */
#include "daemon/gpu_file.h"

#include "common/clock.h"
#include "common/json.h"
#include "common/mem.h"

#include <stdio.h>

enum { GPU_FILE_BYTES = 1 << 20, GPU_FILE_HANG_MS = 20 };

/* A whole number that may be absent. */
static int64_t file_number(const json_t *object, const char *key, int64_t absent)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : absent;
}

static int file_gpu(const json_t *object, uint32_t number, struct gpu_sample *ret, struct err *err)
{
    const char *uuid = NULL, *name = json_string_value(json_object_get(object, "name"));
    const json_t *process, *xid;
    size_t i;
    *ret = (struct gpu_sample){
        .number = number,
        .used_bytes = file_number(object, "used_bytes", 0),
        .temperature_c = file_number(object, "temperature_c", -1),
        .power_mw = file_number(object, "power_mw", -1),
        .busy_percent = file_number(object, "busy_percent", -1),
        .links = file_number(object, "links", -1),
        .ecc_corrected = file_number(object, "ecc_corrected", -1),
        .ecc_uncorrected = file_number(object, "ecc_uncorrected", -1),
    };
    TRY(json_get_string(object, "uuid", ERR_UNSUPPORTED, &uuid, err));
    TRY(json_get_i64(object, "bytes", ERR_UNSUPPORTED, &ret->bytes, err));
    (void)snprintf(ret->uuid, sizeof ret->uuid, "%s", uuid);
    (void)snprintf(ret->name, sizeof ret->name, "%s", name != NULL ? name : "a file's GPU");
    json_array_foreach(json_object_get(object, "processes"), i,
                       process) if (ret->process_count < GPU_PROCESSES_MAX)
        ret->processes[ret->process_count++] = (struct gpu_process){
        .pid = (int32_t)file_number(process, "pid", 0), .bytes = file_number(process, "bytes", -1)};
    json_array_foreach(json_object_get(object, "xids"), i, xid)
        gpu_sample_xid(ret, (uint32_t)json_integer_value(xid));
    return 0;
}

static int file_look(const char *path, struct gpu_report *ret, bool *ret_hang, struct err *err)
{
    CLEANUP(json_unref) json_t *root = NULL;
    TRY(json_parse_file(path, GPU_FILE_BYTES, &root, err));
    *ret_hang = json_is_true(json_object_get(root, "hang"));
    const json_t *gpus = json_object_get(root, "gpus");
    size_t count = json_array_size(gpus);
    if (!json_is_array(gpus) || count > LIMIT_RANKS)
        return err_set(err, ERR_UNSUPPORTED, "\"gpus\" must be a list of up to %d", LIMIT_RANKS);
    for (size_t i = 0; i < count; i++)
        TRY(file_gpu(json_array_get(gpus, i), (uint32_t)i, &ret->gpus[i], err));
    ret->count = (int64_t)count;
    return 0;
}

int gpu_file_look(const char *path, const atomic_bool *stop, struct gpu_report *ret,
                  struct err *err)
{
    bool hang = false;
    for (;;) {
        if (file_look(path, ret, &hang, err) != 0) {
            err->code = ERR_UNSUPPORTED; /* whatever was wrong: there are no such GPUs */
            return err_wrap(err, -ERR_UNSUPPORTED, "%s: ", path);
        }
        if (!hang || atomic_load(stop))
            break;
        clock_sleep_ms(GPU_FILE_HANG_MS);
    }
    ret->taken_ms = clock_monotonic_ms();
    return 0;
}
