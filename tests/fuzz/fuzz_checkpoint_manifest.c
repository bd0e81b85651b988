/* fuzz_checkpoint_manifest: manifest.json of a checkpoint with two rank files. The bytes are tried
 * twice: as they are, and with "hash" put right where they are a JSON object, so that mutations get
 * past it. A manifest that is read is the same when it is written and read again. */
#include "common/checkpoint_manifest.h"
#include "common/mem.h"
#include "common/must.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <sys/stat.h>

enum { FILE_BYTES = 100 };

static void manifest_prepare(void)
{
    static const char bytes[FILE_BYTES];
    must(mkdir(fuzz_path("step-10"), 0700) == 0);
    fuzz_put("step-10/rank-0.ckpt", bytes, sizeof bytes);
    fuzz_put("step-10/rank-1.ckpt", bytes, sizeof bytes);
}

/* NaN stands for null. */
static bool manifest_same_metric(double a, double b)
{
    return a == b || (a != a && b != b);
}

static void manifest_same(const struct checkpoint_manifest *a, const struct checkpoint_manifest *b)
{
    const struct checkpoint_progress *p = &a->progress, *q = &b->progress;
    must(strcmp(a->job_id, b->job_id) == 0 && a->attempt == b->attempt && a->world == b->world);
    must(strcmp(a->model_digest, b->model_digest) == 0);
    must(strcmp(a->data_digest, b->data_digest) == 0);
    must(a->created_ms == b->created_ms && a->position == b->position);
    must(p->step == q->step && p->updates == q->updates && p->best_step == q->best_step);
    must(p->trained_tokens == q->trained_tokens && p->stale == q->stale);
    must(manifest_same_metric(p->loss, q->loss));
    must(manifest_same_metric(p->valid_loss, q->valid_loss));
    must(manifest_same_metric(p->best_valid_loss, q->best_valid_loss));
    must(a->file_count == b->file_count);
    for (uint32_t i = 0; i < a->file_count; i++)
        must(a->files[i].bytes == b->files[i].bytes &&
             strcmp(a->files[i].hash, b->files[i].hash) == 0);
}

static void manifest_try(const void *bytes, size_t size)
{
    struct err err = {.code = ERR_NONE};
    struct checkpoint_manifest manifest, again;
    fuzz_put("step-10/manifest.json", bytes, size);
    int rc = checkpoint_manifest_read(fuzz_path("step-10"), &manifest, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        must(rc == -ERR_CORRUPT || rc == -ERR_NOT_FOUND); /* of a file that it names */
        return;
    }
    fuzz_taken++;
    must(manifest.progress.step == 10 && manifest.file_count >= 1 && manifest.file_count <= 2);
    must(manifest.file_count <= manifest.world && manifest.world <= LIMIT_RANKS);
    must(checkpoint_manifest_bytes(&manifest) == (int64_t)manifest.file_count * FILE_BYTES);
    must(checkpoint_manifest_write(fuzz_path("step-10"), &manifest, &err) == 0);
    must(checkpoint_manifest_read(fuzz_path("step-10"), &again, &err) == 0);
    manifest_same(&manifest, &again);
}

static void manifest_try_mended(const char *text, size_t size)
{
    struct err err;
    char hash[IO_HASH_BYTES];
    CLEANUP(json_unref) json_t *object = NULL;
    if (json_parse(text, size, "manifest", &object, &err) != 0 || !json_is_object(object))
        return;
    (void)json_object_del(object, "hash"); /* may be absent */
    CLEANUP(mem_free_ptr) char *hashed = fuzz_print(object);
    io_hash(hashed, strlen(hashed), hash);
    must(json_object_set_new(object, "hash", json_string(hash)) == 0);
    CLEANUP(mem_free_ptr) char *mended = fuzz_print(object);
    manifest_try(mended, strlen(mended));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool prepared;
    if (!prepared)
        manifest_prepare();
    prepared = true;
    int64_t live = mem_live();
    manifest_try(data, size);
    manifest_try_mended((const char *)data, size);
    must(mem_live() == live);
    return 0;
}
