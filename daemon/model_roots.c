/* model_roots: folders are read at each walk, so that a model copied into a root is there at once.
 */
#include "daemon/model_roots.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "daemon/route.h"
#include "daemon/settings.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { ROOTS_REVISION_BYTES = 128 }; /* a commit's 40 hex digits */

struct roots_walk {
    model_roots_fn *found;
    void *context;
};

/* When dir holds a model; false: it does not. */
static bool roots_is_model(const char *dir, int64_t *ret_created_ms)
{
    static const char *const marks[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        char path[LIMIT_PATH_BYTES];
        struct stat info;
        int length = snprintf(path, sizeof path, "%s/%s", dir, marks[i]);
        if (length > 0 && (size_t)length < sizeof path && stat(path, &info) == 0 &&
            S_ISREG(info.st_mode)) {
            *ret_created_ms = (int64_t)info.st_mtim.tv_sec * 1000;
            return true;
        }
    }
    return false;
}

/* The snapshot of a cache folder that refs/main names; NULL when there is none. */
static char *roots_snapshot(const char *dir)
{
    struct err ignored;
    CLEANUP(buf_done) struct buf revision;
    CLEANUP(mem_free_ptr) char *ref = io_join(dir, "refs/main");
    buf_init(&revision, ROOTS_REVISION_BYTES);
    if (ref == NULL || io_read_file(ref, ROOTS_REVISION_BYTES, &revision, &ignored) != 0)
        return NULL;
    const char *text = buf_str(&revision);
    size_t length = strcspn(text, "\n");
    return route_is_name(text, length) ? mem_printf("%s/snapshots/%.*s", dir, (int)length, text)
                                       : NULL;
}

static int roots_try_cache(const struct roots_walk *walk, const char *name, const char *dir,
                           struct err *err)
{
    int64_t created_ms = 0;
    char model[LIMIT_NAME_BYTES + 1];
    const char *dashes = strstr(name, "--");
    CLEANUP(mem_free_ptr) char *snapshot = roots_snapshot(dir);
    if (snapshot == NULL || !roots_is_model(snapshot, &created_ms))
        return 0;
    int length = dashes == NULL ? snprintf(model, sizeof model, "%s", name)
                                : snprintf(model, sizeof model, "%.*s/%s", (int)(dashes - name),
                                           name, dashes + 2);
    if (length < 0 || (size_t)length >= sizeof model || !route_is_model(model, (size_t)length))
        return 0;
    return walk->found(walk->context, model, snapshot, created_ms, err);
}

static int roots_try_folder(const struct roots_walk *walk, const char *root, const char *org,
                            const char *name, struct err *err);

/* The folders in dir, which are models or, when org is NULL, hold some. */
static int roots_walk_folder(const struct roots_walk *walk, const char *dir, const char *org,
                             struct err *err)
{
    int rc = 0;
    DIR *stream = opendir(dir);
    if (stream == NULL) {
        rc = err_set_errno(err, errno, "%s", dir);
        return err_is_shortage(rc) ? rc : 0; /* the others are not there, or not ours to read */
    }
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(stream)) != NULL)
        if (route_is_name(entry->d_name, strlen(entry->d_name)))
            rc = roots_try_folder(walk, dir, org, entry->d_name, err);
    (void)closedir(stream); /* read only */
    return rc;
}

static int roots_try_folder(const struct roots_walk *walk, const char *root, const char *org,
                            const char *name, struct err *err)
{
    static const char cache[] = "models--";
    int64_t created_ms = 0;
    CLEANUP(mem_free_ptr) char *dir = io_join(root, name);
    CLEANUP(mem_free_ptr) char *whole = org != NULL ? io_join(org, name) : mem_strdup(name);
    if (dir == NULL || whole == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (roots_is_model(dir, &created_ms))
        return strlen(whole) <= LIMIT_NAME_BYTES
                   ? walk->found(walk->context, whole, dir, created_ms, err)
                   : 0;
    if (org != NULL)
        return 0;
    if (strncmp(name, cache, strlen(cache)) == 0)
        return roots_try_cache(walk, name + strlen(cache), dir, err);
    return roots_walk_folder(walk, dir, name, err);
}

int model_roots_walk(const struct settings *settings, model_roots_fn *found, void *context,
                     struct err *err)
{
    struct roots_walk walk = {.found = found, .context = context};
    for (size_t i = 0; i < settings->model_roots.count; i++)
        TRY(roots_walk_folder(&walk, settings->model_roots.items[i].value, NULL, err));
    return 0;
}
