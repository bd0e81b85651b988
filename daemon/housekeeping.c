/* housekeeping: a timer. A round takes one thing of each kind; while it found something the next
 * one follows at once. What fails is told and waits for a later round.
 *
 * The trash is walked by name, a child a thing, so that one that cannot be removed (an immutable
 * file, a mount) is in nobody's way. What a walk has left behind is tried again after a rest. */
#include "daemon/housekeeping.h"

#include "common/log.h"
#include "common/mem.h"
#include "daemon/api.h"
#include "daemon/files.h"
#include "daemon/host.h"
#include "daemon/loop.h"
#include "daemon/settings.h"
#include "daemon/store_attempts.h"
#include "daemon/trash.h"
#include "daemon/uploads.h"

enum {
    HOUSEKEEPING_BUSY_MS = 20,     /* between rounds while there is something to do */
    HOUSEKEEPING_UPLOAD_S = 86400, /* an ended upload can be asked for so long after its hour */
    HOUSEKEEPING_REST_MS = 600000, /* until what could not be removed is tried again */
};

struct housekeeping {
    struct api *api;
    struct loop_timer *timer;
    struct host_process *child; /* removes the thing below; or NULL */
    char *trashed;              /* name of the last thing taken of the walk; NULL: at its start */
    int stuck;                  /* things that this walk could not remove */
    int64_t rest_until_ms;      /* no walk begins before */
};

static int housekeeping_file(struct housekeeping *self, int64_t now_ms, bool *found,
                             struct err *err)
{
    struct api *api = self->api;
    char id[LIMIT_ID_BYTES + 1];
    TRY(store_file_expired(api->store, now_ms, id, err));
    if (id[0] == '\0')
        return 0;
    *found = true;
    log_info("housekeeping", "%s has expired", id);
    return files_remove(api->store, api->settings->data_dir, id, err);
}

static int housekeeping_upload(struct housekeeping *self, int64_t now_ms, bool *found,
                               struct err *err)
{
    struct api *api = self->api;
    char id[LIMIT_ID_BYTES + 1];
    TRY(store_uploads_forget(api->store, now_ms - HOUSEKEEPING_UPLOAD_S * 1000LL, err));
    TRY(store_upload_expired(api->store, now_ms, id, err));
    if (id[0] == '\0')
        return 0;
    *found = true;
    log_info("housekeeping", "%s has expired", id);
    TRY(store_upload_end(api->store, id, "expired", err));
    uploads_drop_parts(api->settings->data_dir, id);
    return 0;
}

static int housekeeping_usage(struct housekeeping *self, int64_t now_ms, struct err *err)
{
    const int64_t days = self->api->settings->retain_usage_days;
    if (days == 0)
        return 0;
    return store_attempts_forget(self->api->store, now_ms - days * 86400000, err);
}

static int housekeeping_points(struct housekeeping *self, bool *found, struct err *err)
{
    bool more = false;
    TRY(store_points_purge(self->api->store, &more, err));
    *found = *found || more;
    return 0;
}

static void housekeeping_child_ended(void *context, const struct host_exit *ended)
{
    struct housekeeping *self = context;
    struct host *host = self->api->host;
    host->ops->forget(host, self->child);
    self->child = NULL;
    self->stuck += ended->status != 0;
    loop_timer_set(self->timer, 0, 0); /* there may be more */
}

static void housekeeping_end_walk(struct housekeeping *self, int64_t now_ms)
{
    if (self->stuck > 0)
        log_warn("housekeeping",
                 "%d things in the trash folder cannot be removed: housekeeping.log tells why",
                 self->stuck);
    if (self->stuck > 0)
        self->rest_until_ms = now_ms + HOUSEKEEPING_REST_MS;
    self->stuck = 0;
    mem_free(self->trashed);
    self->trashed = NULL;
}

static int housekeeping_trash(struct housekeeping *self, struct err *err)
{
    struct host *host = self->api->host;
    const char *data_dir = self->api->settings->data_dir;
    int64_t now_ms = host->ops->monotonic_ms(host);
    char *name = NULL;
    struct host_identity identity;
    if (self->child != NULL || now_ms < self->rest_until_ms)
        return 0;
    TRY(trash_next(data_dir, self->trashed != NULL ? self->trashed : "", &name, err));
    if (name == NULL) {
        housekeeping_end_walk(self, now_ms);
        return 0;
    }
    mem_free(self->trashed);
    self->trashed = name;
    CLEANUP(mem_free_ptr) char *log = io_join(data_dir, "housekeeping.log");
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/trash/%s", data_dir, name);
    if (log == NULL || path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    const char *const argv[] = {"/bin/rm", "-rf", "--", path, NULL};
    const char *const envp[] = {NULL};
    const struct host_spawn spawn = {.argv = argv,
                                     .envp = envp,
                                     .output_path = log,
                                     .goes_last = true,
                                     .on_exit = housekeeping_child_ended,
                                     .context = self};
    return host->ops->spawn(host, &spawn, &self->child, &identity, err);
}

static void housekeeping_round(void *context)
{
    struct housekeeping *self = context;
    int64_t now_ms = self->api->host->ops->wall_ms(self->api->host);
    bool found = false;
    struct err err;
    loop_doing(self->api->loop, "housekeeping:", "what is old");
    int rc = housekeeping_file(self, now_ms, &found, &err);
    if (rc == 0)
        rc = housekeeping_upload(self, now_ms, &found, &err);
    if (rc == 0)
        rc = housekeeping_usage(self, now_ms, &err);
    if (rc == 0)
        rc = housekeeping_points(self, &found, &err);
    if (rc == 0)
        rc = housekeeping_trash(self, &err);
    if (rc != 0)
        log_warn("housekeeping", "%s", err.text);
    loop_timer_set(self->timer, rc == 0 && found ? HOUSEKEEPING_BUSY_MS : HOUSEKEEPING_MS, 0);
}

void housekeeping_wake(struct housekeeping *housekeeping)
{
    housekeeping->rest_until_ms = 0; /* there is something new in it */
    loop_timer_set(housekeeping->timer, 0, 0);
}

int housekeeping_new(struct api *api, struct housekeeping **ret, struct err *err)
{
    struct housekeeping *self = mem_new(1, sizeof *self);
    if (self == NULL)
        return mem_fail(err, sizeof *self, "housekeeping");
    self->api = api;
    int rc = loop_timer_new(api->loop, housekeeping_round, self, &self->timer, err);
    if (rc != 0) {
        mem_free(self);
        return rc;
    }
    housekeeping_wake(self);
    *ret = self;
    return 0;
}

void housekeeping_free(struct housekeeping *housekeeping)
{
    if (housekeeping == NULL)
        return;
    struct host *host = housekeeping->api->host;
    host->ops->forget(host, housekeeping->child); /* it goes on to its end */
    loop_timer_free(housekeeping->timer);
    mem_free(housekeeping->trashed);
    mem_free(housekeeping);
}
