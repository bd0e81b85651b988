/* webhooks: a round turns new events into messages, then starts what may be sent. It is begun by
 * the bus, by the end of a child, and by the clock while messages wait. The cursor is written with
 * the messages; where events make none, at most once a minute and at the end, so that a daemon
 * without webhooks writes next to nothing for them. */
#include "daemon/webhooks_private.h"

#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/auth.h"
#include "daemon/bus.h"
#include "daemon/host.h"
#include "daemon/loop.h"
#include "daemon/settings.h"
#include "daemon/webhook_message.h"
#include "daemon/webhook_url.h"

#include <stdio.h>
#include <string.h>

enum {
    WEBHOOKS_DUE = 64,           /* messages looked at in a turn */
    WEBHOOKS_LOOK_MS = 500,      /* while messages wait */
    WEBHOOKS_CURSOR_MS = 60000,  /* between writes of the cursor alone */
    WEBHOOKS_BODY_BYTES = 16384, /* a sentence of 1 KiB and names */
};
static const char webhooks_operator[] = "admin"; /* whose secret signs what webhook_url hears */

int64_t webhooks_pause_ms(int64_t failures)
{
    int64_t doubled = failures < 2 ? 0 : failures > 20 ? 20 : failures - 1;
    int64_t pause_ms = (int64_t)WEBHOOKS_RETRY_MS << doubled;
    return pause_ms < WEBHOOKS_RETRY_MAX_MS ? pause_ms : WEBHOOKS_RETRY_MAX_MS;
}

int webhooks_check(const struct api *api, const char *url, struct err *err)
{
    enum webhook_reach reach;
    return url[0] != '\0' ? webhook_url_check(url, &api->settings->webhook_hosts, &reach, err) : 0;
}

int webhooks_key(struct api *api, const char *owner, uint8_t ret_key[WEBHOOK_KEY_BYTES],
                 struct err *err)
{
    int64_t edition = 0;
    char text[LIMIT_NAME_BYTES + 64];
    TRY(store_webhook_edition(api->store, owner, false, &edition, err));
    (void)snprintf(text, sizeof text, "webhook %lld of %s", (long long)edition, owner);
    auth_derive(api->auth, text, ret_key);
    return 0;
}

int64_t webhooks_now(const struct webhooks *self)
{
    return self->api->host->ops->wall_ms(self->api->host);
}

/* ---- events become messages ---------------------------------------------------------------- */

static void webhooks_clear_batch(struct webhooks *self)
{
    for (size_t i = 0; i < self->batch_count; i++) {
        mem_free((char *)(uintptr_t)self->batch[i].id);
        mem_free((char *)(uintptr_t)self->batch[i].job_id);
        mem_free((char *)(uintptr_t)self->batch[i].owner);
        mem_free((char *)(uintptr_t)self->batch[i].url);
        mem_free((char *)(uintptr_t)self->batch[i].body);
    }
    self->batch_count = 0;
}

/* A copy for the batch. */
static int webhooks_keep(struct webhooks *self, const struct store_webhook *message,
                         struct err *err)
{
    must(self->batch_count < sizeof self->batch / sizeof self->batch[0]);
    struct store_webhook *copy = &self->batch[self->batch_count++];
    *copy = *message;
    copy->id = mem_strdup(message->id);
    copy->job_id = mem_strdup(message->job_id);
    copy->owner = mem_strdup(message->owner);
    copy->url = mem_strdup(message->url);
    copy->body = mem_strdup(message->body);
    return copy->id != NULL && copy->job_id != NULL && copy->owner != NULL && copy->url != NULL &&
                   copy->body != NULL
               ? 0
               : mem_fail(err, strlen(message->body), "a message");
}

static int webhooks_add(struct webhooks *self, const struct store_event *event, const char *owner,
                        const char *url, const char *body, struct err *err)
{
    const int64_t most = owner == webhooks_operator ? WEBHOOKS_OPERATOR_MAX : WEBHOOKS_USER_MAX;
    int64_t waiting = 0;
    TRY(store_webhooks_count(self->api->store, owner, &waiting, err));
    if (waiting >= most) {
        log_warn("webhooks", "%s of %s is not told: %lld messages of %s wait already", event->id,
                 event->job_id, (long long)waiting, owner);
        return 0;
    }
    const struct store_webhook message = {.id = event->id,
                                          .job_id = event->job_id,
                                          .owner = owner,
                                          .url = url,
                                          .body = body,
                                          .created_ms = webhooks_now(self)};
    return webhooks_keep(self, &message, err);
}

struct webhooks_found {
    struct webhooks *self;
    const struct store_event *event;
};

static int webhooks_take_job(void *context, const struct store_job *job, struct err *err)
{
    struct webhooks_found *found = context;
    struct webhooks *self = found->self;
    const char *all = self->api->settings->webhook_url;
    char own[LIMIT_TEXT_BYTES + 1];
    CLEANUP(buf_done) struct buf body;
    buf_init(&body, WEBHOOKS_BODY_BYTES);
    TRY(webhook_message_url(job, own, err));
    if (own[0] == '\0' && all[0] == '\0')
        return 0;
    TRY(webhook_message_print(self->api, found->event, job, &body, err));
    if (body.length > 0 && own[0] != '\0')
        TRY(webhooks_add(self, found->event, job->owner, own, buf_str(&body), err));
    if (body.length > 0 && all[0] != '\0')
        TRY(webhooks_add(self, found->event, webhooks_operator, all, buf_str(&body), err));
    return 0;
}

/* Worth another try, when there is memory or room again. Else the event is at fault, and the others
 * do not wait for it. */
static bool webhooks_may_pass(int rc)
{
    return err_is_shortage(rc) || rc == -ERR_IO || rc == -ERR_NO_SPACE;
}

static int webhooks_take_event(void *context, const struct store_event *event, struct err *err)
{
    struct webhooks *self = context;
    struct webhooks_found found = {.self = self, .event = event};
    int rc = store_job_get(self->api->store, event->job_id, webhooks_take_job, &found, err);
    if (webhooks_may_pass(rc))
        return rc;
    if (rc != 0 && rc != -ERR_NOT_FOUND) /* a deleted job has nothing to tell */
        log_warn("webhooks", "%s of %s is not told: %s", event->id, event->job_id, err->text);
    self->cursor = event->row;
    self->events++;
    return 0;
}

/* A batch of new events; *ret_more: there may be others. */
static int webhooks_collect(struct webhooks *self, bool *ret_more, struct err *err)
{
    struct store *store = self->api->store;
    const int64_t before = self->cursor;
    int64_t newest = 0;
    self->events = 0;
    TRY(store_events_newest(store, &newest, err));
    int rc = store_events_telling(store, before, WEBHOOKS_BATCH, webhooks_take_event, self, err);
    *ret_more = rc == 0 && self->events == WEBHOOKS_BATCH;
    if (rc == 0 && !*ret_more && newest > self->cursor)
        self->cursor = newest;
    const int64_t now_ms = webhooks_now(self);
    if (rc == 0 && self->cursor > self->stored &&
        (self->batch_count > 0 || now_ms - self->stored_ms >= WEBHOOKS_CURSOR_MS)) {
        rc = store_webhooks_put(store, self->batch, self->batch_count, self->cursor, err);
        self->stored_ms = now_ms;
        self->stored = rc == 0 ? self->cursor : self->stored;
    }
    if (rc != 0)
        self->cursor = before; /* again, later */
    webhooks_clear_batch(self);
    return rc;
}

/* ---- messages are sent --------------------------------------------------------------------- */

static int webhooks_take_due(void *context, const struct store_webhook *message, struct err *err)
{
    struct webhooks *self = context;
    if (!webhooks_deliver_has_turn(self, message) || self->batch_count == WEBHOOKS_RUNNING)
        return 0;
    return webhooks_keep(self, message, err);
}

static int webhooks_send(struct webhooks *self, struct err *err)
{
    int rc = store_webhooks_due(self->api->store, webhooks_now(self), WEBHOOKS_DUE,
                                webhooks_take_due, self, err);
    for (size_t i = 0; i < self->batch_count && rc == 0; i++)
        if (webhooks_deliver_has_turn(self, &self->batch[i]))
            rc = webhooks_deliver(self, &self->batch[i], err);
    webhooks_clear_batch(self);
    return rc;
}

/* ---- rounds -------------------------------------------------------------------------------- */

static void webhooks_round(void *context)
{
    struct webhooks *self = context;
    struct err err;
    bool more = false;
    int64_t waiting = 0;
    loop_doing(self->api->loop, "webhooks:", "their messages");
    int rc = webhooks_collect(self, &more, &err);
    if (rc == 0)
        rc = webhooks_send(self, &err);
    if (rc == 0)
        rc = store_webhooks_count(self->api->store, NULL, &waiting, &err);
    if (rc != 0 && !self->failing)
        log_warn("webhooks", "messages wait: %s", err.text); /* the disk is full, say */
    self->failing = rc != 0;
    if (more)
        loop_timer_set(self->timer, 0, 0);
    else if (rc != 0 || waiting > 0)
        loop_timer_set(self->timer, WEBHOOKS_LOOK_MS, 0);
}

static void webhooks_note(void *context, const struct bus_note *note)
{
    struct webhooks *self = context;
    if (note->event_row > 0)
        loop_timer_set(self->timer, 0, 0);
}

static int webhooks_open(struct webhooks *self, struct err *err)
{
    const struct settings *settings = self->api->settings;
    struct webhook_url url;
    if (settings->webhook_url[0] != '\0' &&
        webhook_url_parse(settings->webhook_url, &url, err) != 0)
        return err_set(err, ERR_SETTING,
                       "webhook_url: not an address such as "
                       "https://hooks.example.com/ithaca");
    self->dir = io_join(settings->data_dir, "webhooks");
    if (self->dir == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(io_remove_tree(self->dir, err));
    TRY(io_make_dirs(self->dir, 0700, err));
    TRY(store_webhook_cursor(self->api->store, &self->cursor, err));
    self->stored = self->cursor;
    TRY(loop_timer_new(self->api->loop, webhooks_round, self, &self->timer, err));
    self->listener = (struct bus_listener){.called = webhooks_note, .context = self};
    bus_listen(self->api->bus, &self->listener);
    loop_timer_set(self->timer, 0, 0);
    return 0;
}

int webhooks_new(struct api *api, struct webhooks **ret_webhooks, struct err *err)
{
    struct webhooks *webhooks = mem_new(1, sizeof *webhooks);
    if (webhooks == NULL)
        return mem_fail(err, sizeof *webhooks, "webhooks");
    webhooks->api = api;
    int rc = webhooks_open(webhooks, err);
    if (rc != 0) {
        webhooks_free(webhooks);
        return rc;
    }
    *ret_webhooks = webhooks;
    return 0;
}

void webhooks_free(struct webhooks *webhooks)
{
    if (webhooks == NULL)
        return;
    struct err unwritten; /* then the next daemon looks at more events */
    bus_unlisten(webhooks->api->bus, &webhooks->listener);
    webhooks_deliver_end(webhooks);
    if (webhooks->cursor > webhooks->stored)
        (void)store_webhooks_put(webhooks->api->store, NULL, 0, webhooks->cursor, &unwritten);
    loop_timer_free(webhooks->timer);
    mem_free(webhooks->dir);
    mem_free(webhooks);
}
