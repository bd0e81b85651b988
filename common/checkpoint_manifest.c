/* checkpoint_manifest: JSON as drawn in checkpoint_manifest.h. The hash is over what jansson prints
 * from the parsed object, so white space does not matter and every value does. */
#include "common/checkpoint_manifest.h"

#include "common/job_field.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/must.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKPOINT_VERSION = 1, CHECKPOINT_MANIFEST_BYTES = 64 * 1024 };

static json_t *checkpoint_files_json(const struct checkpoint_manifest *manifest)
{
    json_t *files = json_array();
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "rank-%u.ckpt", i);
        json_t *file =
            json_pack("{s:s, s:I, s:s}", "name", name, "bytes",
                      (json_int_t)manifest->files[i].bytes, "hash", manifest->files[i].hash);
        if (json_array_append_new(files, file) != 0) {
            json_decref(files);
            return NULL;
        }
    }
    return files;
}

/* The part of a job field's path below "lora."; NULL when it is not there. */
static const char *checkpoint_lora_key(const struct job_field *field)
{
    static const char group[] = "lora.";
    size_t length = strlen(group);
    return strncmp(field->path, group, length) == 0 ? field->path + length : NULL;
}

static json_t *checkpoint_lora_json(const struct job_spec *adapters)
{
    json_t *lora = json_pack("{s:s}", "model", adapters->model);
    for (size_t i = 0; i < job_field_count; i++) {
        const char *key = checkpoint_lora_key(&job_fields[i]);
        if (key == NULL ||
            json_object_set_new(lora, key, job_field_json(&job_fields[i], adapters)) == 0)
            continue;
        json_decref(lora);
        return NULL;
    }
    return lora;
}

static json_t *checkpoint_json(const struct checkpoint_manifest *manifest)
{
    const struct checkpoint_progress *p = &manifest->progress;
    json_t *metrics =
        json_pack("{s:o, s:o, s:o, s:I, s:I}", "loss", json_number(p->loss), "valid_loss",
                  json_number(p->valid_loss), "best_valid_loss", json_number(p->best_valid_loss),
                  "best_step", (json_int_t)p->best_step, "stale", (json_int_t)p->stale);
    json_t *lora = NULL; /* no such key */
    if (manifest->adapters.lora && (lora = checkpoint_lora_json(&manifest->adapters)) == NULL) {
        json_decref(metrics);
        return NULL;
    }
    return json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:{s:I}, s:I, s:I, s:o, s:o, s:o*}",
                     "version", CHECKPOINT_VERSION, "job_id", manifest->job_id, "attempt",
                     (json_int_t)manifest->attempt, "step", (json_int_t)p->step, "world",
                     (json_int_t)manifest->world, "created_ms", (json_int_t)manifest->created_ms,
                     "model_digest", manifest->model_digest, "data_digest", manifest->data_digest,
                     "loader", "position", (json_int_t)manifest->position, "updates",
                     (json_int_t)p->updates, "trained_tokens", (json_int_t)p->trained_tokens,
                     "metrics", metrics, "files", checkpoint_files_json(manifest), "lora", lora);
}

static int checkpoint_hash(const json_t *object, char ret_hex[IO_HASH_BYTES], struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, CHECKPOINT_MANIFEST_BYTES);
    TRY(json_print(object, &text, err));
    io_hash(buf_str(&text), text.length, ret_hex);
    return 0;
}

int checkpoint_manifest_write(const char *dir, const struct checkpoint_manifest *manifest,
                              struct err *err)
{
    must(manifest->file_count >= 1 && manifest->file_count <= LIMIT_RANKS);
    must(manifest->progress.step >= 0 && manifest->world >= manifest->file_count);
    CLEANUP(mem_free_ptr) char *path = io_join(dir, "manifest.json");
    CLEANUP(json_unref) json_t *object = checkpoint_json(manifest);
    char hash[IO_HASH_BYTES];
    if (path == NULL || object == NULL)
        return mem_fail(err, sizeof *manifest, "a manifest");
    TRY(checkpoint_hash(object, hash, err));
    if (json_object_set_new(object, "hash", json_string(hash)) != 0)
        return mem_fail(err, sizeof hash, "a manifest");
    return json_write_file(path, object, 0600, err);
}

static int checkpoint_take_count(const json_t *object, const char *key, int64_t min, int64_t max,
                                 int64_t *ret, struct err *err)
{
    TRY(json_get_i64(object, key, ERR_CORRUPT, ret, err));
    if (*ret < min || *ret > max)
        return err_set(err, ERR_CORRUPT, "\"%s\" is %lld", key, (long long)*ret);
    return 0;
}

static int checkpoint_take_hash(const json_t *object, const char *key, char ret[IO_HASH_BYTES],
                                struct err *err)
{
    const char *hex;
    TRY(json_get_string(object, key, ERR_CORRUPT, &hex, err));
    if (strlen(hex) != IO_HASH_BYTES - 1)
        return err_set(err, ERR_CORRUPT, "\"%s\" is not a hash", key);
    memcpy(ret, hex, IO_HASH_BYTES);
    return 0;
}

static int checkpoint_take_metric(const json_t *metrics, const char *key, double *ret,
                                  struct err *err)
{
    *ret = (double)NAN;
    if (json_is_null(json_object_get(metrics, key)))
        return 0;
    return json_get_f64(metrics, key, ERR_CORRUPT, ret, err);
}

static int checkpoint_take_progress(const json_t *object, struct checkpoint_progress *progress,
                                    struct err *err)
{
    const json_t *metrics = json_object_get(object, "metrics");
    TRY(checkpoint_take_count(object, "step", 0, INT64_MAX, &progress->step, err));
    TRY(checkpoint_take_count(object, "updates", 0, progress->step, &progress->updates, err));
    TRY(checkpoint_take_count(object, "trained_tokens", 0, INT64_MAX, &progress->trained_tokens,
                              err));
    TRY(checkpoint_take_metric(metrics, "loss", &progress->loss, err));
    TRY(checkpoint_take_metric(metrics, "valid_loss", &progress->valid_loss, err));
    TRY(checkpoint_take_metric(metrics, "best_valid_loss", &progress->best_valid_loss, err));
    TRY(checkpoint_take_count(metrics, "best_step", 0, progress->step, &progress->best_step, err));
    return checkpoint_take_count(metrics, "stale", 0, progress->step, &progress->stale, err);
}

static int checkpoint_take_files(const json_t *object, struct checkpoint_manifest *manifest,
                                 struct err *err)
{
    const json_t *files = json_object_get(object, "files");
    size_t count = json_array_size(files);
    if (count < 1 || count > manifest->world)
        return err_set(err, ERR_CORRUPT, "\"files\" has %zu entries", count);
    manifest->file_count = (uint32_t)count;
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        const json_t *file = json_array_get(files, i);
        TRY(checkpoint_take_count(file, "bytes", 1, INT64_MAX, &manifest->files[i].bytes, err));
        TRY(checkpoint_take_hash(file, "hash", manifest->files[i].hash, err));
    }
    return 0;
}

static int checkpoint_take_lora(const json_t *object, struct job_spec *adapters, struct err *err)
{
    const json_t *lora = json_object_get(object, "lora");
    const char *model;
    if (lora == NULL)
        return 0;
    adapters->lora = true;
    TRY(json_get_string(lora, "model", ERR_CORRUPT, &model, err));
    if (strlen(model) >= sizeof adapters->model)
        return err_set(err, ERR_CORRUPT, "\"model\" is too long");
    memcpy(adapters->model, model, strlen(model) + 1);
    for (size_t i = 0; i < job_field_count; i++) {
        const char *key = checkpoint_lora_key(&job_fields[i]);
        const json_t *value = key == NULL ? NULL : json_object_get(lora, key);
        if (key != NULL && (value == NULL || job_field_parse(&job_fields[i], job_fields[i].path,
                                                             value, adapters, err) != 0))
            return err_set(err, ERR_CORRUPT, "\"lora.%s\" is missing or wrong", key);
    }
    return 0;
}

static int checkpoint_take(const json_t *object, struct checkpoint_manifest *manifest,
                           struct err *err)
{
    const char *job_id;
    int64_t attempt, world;
    TRY(json_get_string(object, "job_id", ERR_CORRUPT, &job_id, err));
    if (strlen(job_id) >= sizeof manifest->job_id)
        return err_set(err, ERR_CORRUPT, "\"job_id\" is too long");
    memcpy(manifest->job_id, job_id, strlen(job_id) + 1);
    TRY(checkpoint_take_count(object, "attempt", 1, INT32_MAX, &attempt, err));
    TRY(checkpoint_take_count(object, "world", 1, LIMIT_RANKS, &world, err));
    TRY(checkpoint_take_count(object, "created_ms", 0, INT64_MAX, &manifest->created_ms, err));
    manifest->attempt = (uint32_t)attempt;
    manifest->world = (uint32_t)world;
    TRY(checkpoint_take_hash(object, "model_digest", manifest->model_digest, err));
    TRY(checkpoint_take_hash(object, "data_digest", manifest->data_digest, err));
    TRY(checkpoint_take_count(json_object_get(object, "loader"), "position", 0, INT64_MAX,
                              &manifest->position, err));
    TRY(checkpoint_take_progress(object, &manifest->progress, err));
    TRY(checkpoint_take_lora(object, &manifest->adapters, err));
    return checkpoint_take_files(object, manifest, err);
}

/* The hash, and that printing what was understood gives the same: no key more, no name other. */
static int checkpoint_take_all(json_t *object, struct checkpoint_manifest *manifest,
                               struct err *err)
{
    char said[IO_HASH_BYTES], found[IO_HASH_BYTES];
    int64_t version;
    TRY(checkpoint_take_count(object, "version", CHECKPOINT_VERSION, CHECKPOINT_VERSION, &version,
                              err));
    TRY(checkpoint_take_hash(object, "hash", said, err));
    (void)json_object_del(object, "hash"); /* it is there */
    TRY(checkpoint_hash(object, found, err));
    if (strcmp(said, found) != 0)
        return err_set(err, ERR_CORRUPT, "its hash does not match");
    TRY(checkpoint_take(object, manifest, err));
    CLEANUP(json_unref) json_t *understood = checkpoint_json(manifest);
    if (understood == NULL)
        return mem_fail(err, sizeof *manifest, "a manifest");
    if (!json_equal(understood, object))
        return err_set(err, ERR_CORRUPT, "unknown keys or file names");
    return 0;
}

static int checkpoint_check_files(const char *dir, const struct checkpoint_manifest *manifest,
                                  struct err *err)
{
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        CLEANUP(mem_free_ptr) char *path = checkpoint_file_path(dir, i);
        int64_t bytes;
        if (path == NULL)
            return mem_fail(err, strlen(dir), "a path");
        TRY(io_file_size(path, &bytes, err));
        if (bytes != manifest->files[i].bytes)
            return err_set(err, ERR_CORRUPT, "%s: has %lld bytes, the manifest says %lld", path,
                           (long long)bytes, (long long)manifest->files[i].bytes);
    }
    return 0;
}

int checkpoint_manifest_read(const char *dir, struct checkpoint_manifest *ret, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(dir, "manifest.json");
    CLEANUP(json_unref) json_t *object = NULL;
    struct checkpoint_manifest manifest = {0};
    if (path == NULL)
        return mem_fail(err, strlen(dir), "a path");
    TRY(json_parse_own_file(path, CHECKPOINT_MANIFEST_BYTES, &object, err));
    int rc = checkpoint_take_all(object, &manifest, err);
    if (rc != 0)
        return err_wrap(err, rc, "%s: ", path);
    if (manifest.progress.step != checkpoint_step_of(dir))
        return err_set(err, ERR_CORRUPT, "%s: is of step %lld", path,
                       (long long)manifest.progress.step);
    TRY(checkpoint_check_files(dir, &manifest, err));
    *ret = manifest;
    return 0;
}

int64_t checkpoint_manifest_bytes(const struct checkpoint_manifest *manifest)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < manifest->file_count; i++)
        bytes += manifest->files[i].bytes;
    return bytes;
}

/* N of "step-N" in plain decimal, else -1. */
static int64_t checkpoint_parse_name(const char *name)
{
    static const char prefix[] = "step-";
    const char *digits = name + strlen(prefix);
    if (strncmp(name, prefix, strlen(prefix)) != 0 || digits[0] == '\0' ||
        digits[strspn(digits, "0123456789")] != '\0' || strlen(digits) > 18 ||
        (digits[0] == '0' && digits[1] != '\0'))
        return -1;
    return strtoll(digits, NULL, 10);
}

int64_t checkpoint_step_of(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    return checkpoint_parse_name(slash != NULL ? slash + 1 : dir);
}

static int checkpoint_newer_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static void checkpoint_close_dir(DIR **folder)
{
    if (*folder != NULL)
        (void)closedir(*folder); /* read only */
}

int checkpoint_list(const char *job_dir, int64_t **ret_steps, size_t *ret_count, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(job_dir, "checkpoints");
    CLEANUP(mem_free_ptr) int64_t *steps = NULL;
    size_t count = 0, capacity = 0;
    if (path == NULL)
        return mem_fail(err, strlen(job_dir), "a path");
    CLEANUP(checkpoint_close_dir) DIR *folder = opendir(path);
    if (folder == NULL && errno != ENOENT)
        return err_set_errno(err, errno, "%s", path);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        int64_t step = checkpoint_parse_name(entry->d_name);
        if (step < 0)
            continue;
        if (count == capacity) {
            capacity = capacity == 0 ? 16 : 2 * capacity;
            int64_t *grown = mem_grow(steps, capacity, sizeof *steps);
            if (grown == NULL)
                return mem_fail(err, capacity * sizeof *steps, "a list of checkpoints");
            steps = grown;
        }
        steps[count++] = step;
    }
    if (count > 0)
        qsort(steps, count, sizeof *steps, checkpoint_newer_first);
    *ret_steps = steps;
    *ret_count = count;
    steps = NULL;
    return 0;
}

int checkpoint_discard_after(const char *job_dir, int64_t step, struct err *err)
{
    CLEANUP(mem_free_ptr) int64_t *steps = NULL;
    size_t count = 0;
    TRY(checkpoint_list(job_dir, &steps, &count, err));
    for (size_t i = 0; i < count && steps[i] > step; i++) {
        CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(job_dir, steps[i]);
        CLEANUP(mem_free_ptr) char *gone = dir != NULL ? mem_printf("%s.tmp", dir) : NULL;
        if (gone == NULL)
            return mem_fail(err, strlen(job_dir), "a path");
        TRY(io_remove_tree(gone, err)); /* of an attempt that was stopped while it wrote */
        if (rename(dir, gone) != 0)
            return err_set_errno(err, errno, "%s", dir);
    }
    return 0;
}

char *checkpoint_dir(const char *job_dir, int64_t step)
{
    return mem_printf("%s/checkpoints/step-%lld", job_dir, (long long)step);
}

char *checkpoint_file_path(const char *dir, uint32_t rank)
{
    return mem_printf("%s/rank-%u.ckpt", dir, rank);
}
