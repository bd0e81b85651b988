/* exports: a list of children, each with the requests that wait for it. The worker makes the folder
 * beside its place and renames it, so one that is there is whole. */
#include "daemon/exports.h"

#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/api.h"
#include "daemon/host.h"
#include "daemon/launch_local.h"
#include "daemon/settings.h"

#include <signal.h>
#include <string.h>

struct exports_wait {
    struct exports_child *child;
    exports_fn *ready;
    void *context;
    struct exports_wait *next;
};

struct exports_child {
    struct exports *exports;
    struct host_process *process;
    char *dir;
    char *log_path;
    char *reads;      /* its first input */
    const char *what; /* its source's; static */
    struct exports_wait *waits;
    struct exports_child *next;
};

struct exports {
    struct api *api;
    char *dir;
    struct exports_child *children;
    char *kept[EXPORTS_KEPT]; /* folders, oldest first; NULLs at the end */
};

int exports_new(struct api *api, struct exports **ret_exports, struct err *err)
{
    struct exports *exports = mem_new(1, sizeof *exports);
    if (exports == NULL)
        return mem_fail(err, sizeof *exports, "exports");
    exports->api = api;
    exports->dir = io_join(api->settings->data_dir, "exports");
    int rc = exports->dir != NULL ? io_remove_tree(exports->dir, err)
                                  : mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (rc == 0)
        rc = io_make_dirs(exports->dir, 0700, err);
    if (rc != 0) {
        exports_free(exports);
        return rc;
    }
    *ret_exports = exports;
    return 0;
}

static void exports_child_free(struct exports_child *child)
{
    struct host *host = child->exports->api->host;
    must(child->waits == NULL);
    host->ops->forget(host, child->process);
    mem_free(child->dir);
    mem_free(child->log_path);
    mem_free(child->reads);
    mem_free(child);
}

void exports_free(struct exports *exports)
{
    if (exports == NULL)
        return;
    while (exports->children != NULL) {
        struct exports_child *child = exports->children;
        struct host *host = exports->api->host;
        exports->children = child->next;
        host->ops->signal(host, child->process, SIGKILL);
        exports_child_free(child);
    }
    for (int i = 0; i < EXPORTS_KEPT; i++)
        mem_free(exports->kept[i]);
    mem_free(exports->dir);
    mem_free(exports);
}

bool exports_is_idle(const struct exports *exports)
{
    return exports->children == NULL;
}

/* Is one of the two the other, or a folder around it? */
static bool exports_overlap(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return (*a == '\0' && (*b == '\0' || *b == '/')) || (*b == '\0' && *a == '/');
}

bool exports_is_reading(const struct exports *exports, const char *path)
{
    const struct exports_child *child = exports->children;
    while (child != NULL && !exports_overlap(child->reads, path))
        child = child->next;
    return child != NULL;
}

char *exports_find(const struct exports *exports, const char *name)
{
    CLEANUP(mem_free_ptr) char *dir = io_join(exports->dir, name);
    if (dir == NULL || !io_exists(dir))
        return NULL;
    char *found = dir;
    dir = NULL;
    return found;
}

/* ---- the child ----------------------------------------------------------------------------- */

/* Remembers a new folder; removes the oldest when there are too many. */
static void exports_keep(struct exports *exports, struct exports_child *child)
{
    struct err unremoved; /* the next start removes it */
    int count = 0;
    while (count < EXPORTS_KEPT && exports->kept[count] != NULL)
        count++;
    if (count == EXPORTS_KEPT) {
        (void)io_remove_tree(exports->kept[0], &unremoved);
        mem_free(exports->kept[0]);
        memmove(&exports->kept[0], &exports->kept[1], (EXPORTS_KEPT - 1) * sizeof(char *));
        count--;
    }
    exports->kept[count] = child->dir;
    child->dir = NULL;
}

static void exports_child_ended(void *context, const struct host_exit *ended)
{
    struct exports_child *child = context;
    struct exports *exports = child->exports;
    struct exports_child **at = &exports->children;
    struct err why = {.code = ERR_NONE};
    while (*at != child)
        at = &(*at)->next;
    *at = child->next;
    if (ended->status != 0)
        (void)launch_local_failed(child->what, child->log_path, ended, ERR_IO, &why);
    while (child->waits != NULL) {
        struct exports_wait *wait = child->waits;
        child->waits = wait->next;
        wait->ready(wait->context, why.code == ERR_NONE ? child->dir : NULL, &why);
        mem_free(wait);
    }
    if (why.code == ERR_NONE)
        exports_keep(exports, child);
    exports_child_free(child);
}

static int exports_child_launch(struct exports_child *child, const struct exports_source *source,
                                struct err *err)
{
    struct api *api = child->exports->api;
    child->dir = io_join(child->exports->dir, source->name);
    child->log_path = mem_printf("%s/%s.log", child->exports->dir, source->name);
    child->reads = mem_strdup(source->inputs[0]);
    child->what = source->what;
    if (child->dir == NULL || child->log_path == NULL || child->reads == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    const char *const argv[] = {api->settings->worker, source->role, source->inputs[0],
                                source->inputs[1],     child->dir,   NULL};
    static const char *const own[] = {"OMP_NUM_THREADS=1"}; /* it waits for the disk */
    const char *environment[LAUNCH_ENVIRONMENT_MAX + 1];
    launch_local_environment(own, sizeof own / sizeof own[0], environment);
    const struct host_spawn spawn = {.argv = argv,
                                     .envp = environment,
                                     .output_path = child->log_path,
                                     .on_exit = exports_child_ended,
                                     .context = child};
    struct host_identity identity;
    return api->host->ops->spawn(api->host, &spawn, &child->process, &identity, err);
}

/* The child that makes the folder of a name; a new one when there is none. */
static int exports_child_get(struct exports *exports, const struct exports_source *source,
                             struct exports_child **ret_child, struct err *err)
{
    int running = 0;
    for (struct exports_child *child = exports->children; child != NULL; child = child->next) {
        running++;
        if (strcmp(strrchr(child->dir, '/') + 1, source->name) == 0) {
            *ret_child = child;
            return 0;
        }
    }
    if (running >= EXPORTS_RUNNING)
        return err_set(err, ERR_TOO_MANY, "%d exports are being made; ask again later", running);
    struct exports_child *child = mem_new(1, sizeof *child);
    if (child == NULL)
        return mem_fail(err, sizeof *child, "an export");
    child->exports = exports;
    int rc = exports_child_launch(child, source, err);
    if (rc != 0) {
        exports_child_free(child);
        return rc;
    }
    child->next = exports->children;
    exports->children = child;
    *ret_child = child;
    return 0;
}

/* ---- waiting ------------------------------------------------------------------------------- */

int exports_want(struct exports *exports, const struct exports_source *source, exports_fn *ready,
                 void *context, struct exports_wait **ret_wait, struct err *err)
{
    CLEANUP(mem_free_ptr) char *dir = exports_find(exports, source->name);
    *ret_wait = NULL;
    if (dir != NULL) {
        ready(context, dir, NULL);
        return 0;
    }
    struct exports_child *child = NULL;
    struct exports_wait *wait = mem_new(1, sizeof *wait);
    int rc = wait != NULL ? exports_child_get(exports, source, &child, err)
                          : mem_fail(err, sizeof *wait, "a request that waits");
    if (rc != 0) {
        mem_free(wait);
        return rc;
    }
    *wait = (struct exports_wait){
        .child = child, .ready = ready, .context = context, .next = child->waits};
    child->waits = wait;
    *ret_wait = wait;
    return 0;
}

void exports_forget(struct exports_wait *wait)
{
    if (wait == NULL)
        return;
    struct exports_wait **at = &wait->child->waits;
    while (*at != wait)
        at = &(*at)->next;
    *at = wait->next;
    mem_free(wait);
}
