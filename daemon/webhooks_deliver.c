/* webhooks_deliver: children, each with one message: its request in a file of <data_dir>/webhooks,
 * and what came of it in another. */
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/host.h"
#include "daemon/loop.h"
#include "daemon/notice.h"
#include "daemon/settings.h"
#include "daemon/webhooks_private.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WEBHOOKS_OUTPUT_BYTES = 4096, /* of a child */
    WEBHOOKS_GONE = 410           /* HTTP: there is no such receiver any more */
};

static void webhooks_child_free(struct webhooks_child *child)
{
    struct host *host = child->webhooks->api->host;
    host->ops->forget(host, child->process);
    if (child->input != NULL)
        (void)unlink(child->input); /* the folder is emptied at the next start */
    if (child->output != NULL)
        (void)unlink(child->output);
    mem_free(child->input);
    mem_free(child->output);
    mem_free(child);
}

static void webhooks_give_up(struct webhooks *self, const struct webhooks_child *child,
                             const char *why)
{
    struct api *api = self->api;
    struct err err;
    int rc = store_webhook_done(api->store, child->row, &err);
    CLEANUP(mem_free_ptr)
    char *text = mem_printf("A message to the webhook at %s is given up after %lld tries: %s",
                            child->host, (long long)child->tries, why);
    const struct notice notice = {.job_id = child->job_id, .level = "warn", .text = text};
    log_warn("webhooks", "%s: %s", child->job_id, text != NULL ? text : why);
    if (rc == 0 && text != NULL)
        rc = notice_put(api->store, api->host, api->bus, &notice, &err);
    if (rc != 0 && rc != -ERR_NOT_FOUND) /* the job may be gone */
        log_warn("webhooks", "%s: %s", child->job_id, err.text);
}

/* What came of it: `said` is the child's line. */
static void webhooks_settle(struct webhooks *self, struct webhooks_child *child, const char *said)
{
    struct store *store = self->api->store;
    struct err err;
    const int64_t now_ms = webhooks_now(self);
    const long status = strncmp(said, "status ", 7) == 0 ? strtol(said + 7, NULL, 10) : 0;
    child->tries++;
    if (status >= 200 && status < 300) {
        if (store_webhook_done(store, child->row, &err) != 0)
            log_warn("webhooks", "%s", err.text); /* then it is sent again */
        return;
    }
    if (status == WEBHOOKS_GONE || now_ms - child->created_ms >= WEBHOOKS_DAY_MS) {
        webhooks_give_up(self, child, said);
        return;
    }
    if (child->tries == 1)
        log_warn("webhooks", "%s: a message to %s has not been taken and is sent again: %s",
                 child->job_id, child->host, said);
    if (store_webhook_retry(store, child->row, child->tries,
                            now_ms + webhooks_pause_ms(child->tries), &err) != 0)
        log_warn("webhooks", "%s", err.text);
}

static void webhooks_child_ended(void *context, const struct host_exit *ended)
{
    struct webhooks_child *child = context;
    struct webhooks *self = child->webhooks;
    CLEANUP(buf_done) struct buf said;
    struct err unread;
    buf_init(&said, WEBHOOKS_OUTPUT_BYTES);
    (void)io_read_file(child->output, WEBHOOKS_OUTPUT_BYTES, &said, &unread); /* may be empty */
    buf_drop_newlines(&said);
    struct webhooks_child **at = &self->children;
    while (*at != child)
        at = &(*at)->next;
    *at = child->next;
    webhooks_settle(self, child,
                    ended->status == 0 && said.length > 0 ? buf_str(&said)
                                                          : "failed: the process ended early");
    webhooks_child_free(child);
    loop_timer_set(self->timer, 0, 0);
}

/* What the child is asked, as JSON. */
static int webhooks_request(struct webhooks *self, const struct store_webhook *message,
                            enum webhook_reach reach, json_t **ret, struct err *err)
{
    uint8_t key[WEBHOOK_KEY_BYTES];
    char signature[WEBHOOK_SIGNATURE_CHARS + 1], headers[3][128];
    const int64_t now_s = webhooks_now(self) / 1000;
    TRY(webhooks_key(self->api, message->owner, key, err));
    webhook_sign(key, sizeof key, message->id, now_s, message->body, signature);
    (void)snprintf(headers[0], sizeof headers[0], "webhook-id: %s", message->id);
    (void)snprintf(headers[1], sizeof headers[1], "webhook-timestamp: %lld", (long long)now_s);
    (void)snprintf(headers[2], sizeof headers[2], "webhook-signature: %s", signature);
    *ret = json_pack("{s:s, s:i, s:[s, s, s, s], s:s}", "url", message->url, "reach", (int)reach,
                     "headers", "content-type: application/json", headers[0], headers[1],
                     headers[2], "body", message->body);
    return *ret != NULL ? 0 : mem_fail(err, strlen(message->body), "a message");
}

static int webhooks_spawn(struct webhooks *self, struct webhooks_child *child,
                          const struct store_webhook *message, enum webhook_reach reach,
                          struct err *err)
{
    struct host *host = self->api->host;
    CLEANUP(json_unref) json_t *request = NULL;
    child->input = mem_printf("%s/%lld.json", self->dir, (long long)message->row);
    child->output = mem_printf("%s/%lld.out", self->dir, (long long)message->row);
    if (child->input == NULL || child->output == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(webhooks_request(self, message, reach, &request, err));
    TRY(json_write_scratch(child->input, request, err));
    static const char *const argv[] = {"/proc/self/exe", "webhook", NULL};
    static const char *const envp[] = {NULL};
    const struct host_spawn spawn = {.argv = argv,
                                     .envp = envp,
                                     .input_path = child->input,
                                     .output_path = child->output,
                                     .on_exit = webhooks_child_ended,
                                     .context = child};
    struct host_identity unused;
    return host->ops->spawn(host, &spawn, &child->process, &unused, err);
}

int webhooks_deliver(struct webhooks *self, const struct store_webhook *message, struct err *err)
{
    const struct settings *settings = self->api->settings;
    struct webhook_url url = {.host = "?"};
    enum webhook_reach reach = WEBHOOK_REACH_ALL; /* the operator's own */
    struct err why;
    struct webhooks_child *child = mem_new(1, sizeof *child);
    if (child == NULL)
        return mem_fail(err, sizeof *child, "a delivery");
    *child = (struct webhooks_child){.webhooks = self,
                                     .row = message->row,
                                     .tries = message->tries,
                                     .created_ms = message->created_ms};
    (void)snprintf(child->job_id, sizeof child->job_id, "%s", message->job_id);
    (void)snprintf(child->owner, sizeof child->owner, "%s", message->owner);
    int rc = webhook_url_parse(message->url, &url, &why);
    if (rc == 0 && strcmp(message->url, settings->webhook_url) != 0)
        rc = webhook_url_check(message->url, &settings->webhook_hosts, &reach, &why);
    (void)snprintf(child->host, sizeof child->host, "%s", url.host);
    if (rc != 0) { /* the setting was another when the job was submitted */
        webhooks_give_up(self, child, why.text);
        webhooks_child_free(child);
        return 0;
    }
    rc = webhooks_spawn(self, child, message, reach, err);
    if (rc != 0) {
        webhooks_child_free(child);
        return rc;
    }
    child->next = self->children;
    self->children = child;
    return 0;
}

bool webhooks_deliver_has_turn(const struct webhooks *self, const struct store_webhook *message)
{
    int running = 0, of_user = 0;
    for (const struct webhooks_child *child = self->children; child != NULL; child = child->next) {
        if (child->row == message->row)
            return false;
        running++;
        of_user += strcmp(child->owner, message->owner) == 0;
    }
    return running < WEBHOOKS_RUNNING && of_user < WEBHOOKS_RUNNING_USER;
}

void webhooks_deliver_end(struct webhooks *self)
{
    struct host *host = self->api->host;
    while (self->children != NULL) {
        struct webhooks_child *child = self->children;
        self->children = child->next;
        host->ops->signal(host, child->process, SIGKILL);
        webhooks_child_free(child);
    }
}
