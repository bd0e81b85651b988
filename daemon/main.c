/* main: `ithacad`. Settings, then the data folder and its lock (the store's), the loop, jobs, the
 * API and the socket: once <data_dir>/url is there, everything works.
 *
 * Stop (SIGTERM, SIGINT): no more connections, streams end and waiting requests are answered; then
 * the coordinator pauses its jobs (setting on_stop); the loop turns until both are idle or
 * MAIN_STOP_MS have passed: whatever then still runs is taken over by the next daemon.
 *
 * SIGHUP: the TLS certificate and its key are read again. */
#include "common/buf.h"
#include "common/cgroup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/api.h"
#include "daemon/auth.h"
#include "daemon/bus.h"
#include "daemon/chat.h"
#include "daemon/coordinator.h"
#include "daemon/experiments.h"
#include "daemon/exports.h"
#include "daemon/files.h"
#include "daemon/host.h"
#include "daemon/housekeeping.h"
#include "daemon/http.h"
#include "daemon/loop.h"
#include "daemon/models.h"
#include "daemon/prune.h"
#include "daemon/quota.h"
#include "daemon/retention.h"
#include "daemon/schema.h"
#include "daemon/settings.h"
#include "daemon/sse.h"
#include "daemon/storage.h"
#include "daemon/store.h"
#include "daemon/systemd.h"
#include "daemon/uploads.h"
#include "daemon/webhook_send.h"
#include "daemon/webhooks.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAIN_STOP_MS = 60000,     /* for steps and checkpoints; below systemd's 90 s */
    MAIN_HTTP_STOP_MS = 2000, /* for answers under way */
    MAIN_DESCRIPTORS = 40960  /* four times the most connections: main_fit_descriptors() */
};

/* The store is checked after an unclean stop, and copied before it is changed for a new version: up
 * to half an hour for a large one. */
#define MAIN_OPENING "STATUS=Opening the data folder\nEXTEND_TIMEOUT_USEC=1800000000"

struct main_daemon {
    struct settings settings;
    struct bus bus;
    struct api api;
    struct http *http;
    struct cgroup_home cgroup; /* where jobs get control groups */
    char *url_path;            /* <data_dir>/url: there while this daemon serves */
    struct loop_timer *beat;   /* of the watchdog; NULL: nobody watches */
};

static void main_on_stop(void *context)
{
    struct main_daemon *self = context;
    loop_stop(self->api.loop);
}

static void main_on_tick(void *context)
{
    struct main_daemon *self = context;
    if (coordinator_tick(self->api.coordinator)) /* others are served before the next */
        loop_timer_set(self->api.tick, 0, COORDINATOR_TICK_MS);
}

/* From the loop, so that a loop that hangs is found. */
static void main_on_beat(void *context)
{
    (void)context;
    systemd_notify("WATCHDOG=1");
}

static void main_coordinator_config(const struct settings *settings, struct coordinator_config *ret)
{
    coordinator_config_defaults(ret);
    ret->data_dir = settings->data_dir;
    ret->worker_program = settings->worker;
    ret->device = strcmp(settings->device, "cpu") == 0    ? COORDINATOR_CPU
                  : strcmp(settings->device, "cuda") == 0 ? COORDINATOR_CUDA
                                                          : COORDINATOR_AUTO;
    ret->visible_gpus = getenv("CUDA_VISIBLE_DEVICES");
    ret->gpu_file = settings->gpu_file[0] != '\0' ? settings->gpu_file : NULL;
    ret->cpu_slots = settings->cpu_slots;
    ret->heartbeat_limit_ms = settings->heartbeat_limit_s * 1000;
    ret->start_limit_ms = settings->start_limit_s * 1000;
    ret->connect_limit_ms = settings->connect_limit_s * 1000;
    ret->stall_limit_ms = settings->stall_limit_s * 1000;
    ret->stall_alert_ms = settings->stall_alert_s * 1000;
    ret->coll_timeout_ms = settings->coll_timeout_s * 1000;
    ret->orphan_limit_ms = settings->orphan_limit_s * 1000;
    ret->stop_grace_ms = settings->stop_grace_s * 1000;
    ret->fair_share_half_life_ms = settings->fair_share_half_life_h * 3600000;
    ret->policy.entry_penalty_s = settings->entry_penalty_s;
    ret->policy.user_slots_max = settings->user_slots_max;
    ret->policy.user_jobs_max = settings->user_jobs_max;
    ret->policy.preempt_after_ms = settings->preempt_after_s * 1000;
    ret->job_memory_margin_bytes = settings->job_memory_margin_mib << 20;
    ret->leave_running = strcmp(settings->on_stop, "leave") == 0;
}

static void main_on_hangup(void *context)
{
    struct main_daemon *self = context;
    struct err err;
    if (http_renew(self->api.http, &err) == 0)
        log_info("main", "certificate and key are read again");
    else
        log_warn("main", "SIGHUP: certificate and key are not read again: %s", err.text);
}

/* Where jobs run, for the log. */
static void main_settle_cgroup(struct cgroup_home *cgroup)
{
    char text[1024];
    cgroup_find(cgroup);
    cgroup_settle(cgroup);
    cgroup_tell(cgroup, text, sizeof text);
    log_info("main", "%s", text);
}

/* Everything, in the order of use. The loop turns for the built-in model only, so no request is
 * seen before all is there. */
static int main_open(struct main_daemon *self, struct err *err)
{
    const struct settings *settings = &self->settings;
    struct api *api = &self->api;
    struct coordinator_config config;
    struct http_app app;
    TRY(io_make_dirs(settings->data_dir, 0700, err));
    systemd_notify(MAIN_OPENING);
    /* What SQLite sorts on disk lies there too: /tmp may be small, or full. */
    if (setenv("SQLITE_TMPDIR", settings->data_dir, 0) != 0)
        return err_set_errno(err, errno, "SQLITE_TMPDIR");
    TRY(store_open(settings->data_dir, &api->store, err)); /* takes the lock */
    self->url_path = io_join(settings->data_dir, "url");
    if (self->url_path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    (void)unlink(self->url_path); /* of a daemon that was killed: it names a dead port */
    api->settings = settings;
    api->bus = &self->bus;
    TRY(loop_new(&api->loop, err));
    TRY(host_posix_new(api->loop, &api->host, err));
    loop_on_signal(api->loop, SIGTERM, main_on_stop, self);
    loop_on_signal(api->loop, SIGINT, main_on_stop, self);
    TRY(auth_new(settings->data_dir, api->store, api->host, &api->auth, err));
    TRY(quota_new(settings, api->host, api->store, &api->quota, err));
    TRY(files_open(settings->data_dir, err));
    TRY(uploads_open(settings->data_dir, err));
    TRY(housekeeping_new(api, &api->housekeeping, err));
    TRY(storage_new(api, &api->storage, err));
    TRY(prune_new(api, &api->prune, err));
    TRY(retention_new(api, &api->retention, err));
    TRY(webhooks_new(api, &api->webhooks, err));
    TRY(sse_new(api, &api->sse, err));
    TRY(chat_new(api, &api->chat, err));
    TRY(exports_new(api, &api->exports, err));
    struct err model_err;
    if (models_make_builtin(api, &model_err) != 0)
        log_warn("main", "no built-in model: %s", model_err.text);
    api_app(api, &app);
    TRY(http_new(api->loop, settings, &app, &self->http, err)); /* before any job is touched */
    api->http = self->http;
    loop_on_signal(api->loop, SIGHUP, main_on_hangup, self);
    main_settle_cgroup(&self->cgroup);
    main_coordinator_config(settings, &config);
    config.cgroup = &self->cgroup;
    TRY(coordinator_new(&config, api->host, api->store, &self->bus, api->loop, &api->coordinator,
                        err));
    TRY(experiments_new(api, &api->experiments, err));
    TRY(loop_timer_new(api->loop, main_on_tick, self, &api->tick, err));
    loop_timer_set(api->tick, COORDINATOR_TICK_MS, COORDINATOR_TICK_MS);
    return 0;
}

static void main_warn_plain(const struct settings *settings)
{
    const char *listen = settings->listen;
    if (settings->tls_cert[0] == '\0' && strncmp(listen, "127.", 4) != 0 &&
        strcmp(listen, "::1") != 0)
        log_warn("main",
                 "%s is reached from other machines and has no TLS: tokens and data can be read on "
                 "the way; set tls_cert and tls_key, or listen on 127.0.0.1 behind a proxy",
                 listen);
}

static int main_write_url(struct main_daemon *self, struct err *err)
{
    char url[128];
    const char *listen = self->settings.listen;
    const char *scheme = self->settings.tls_cert[0] != '\0' ? "https" : "http";
    bool v6 = strchr(listen, ':') != NULL;
    bool any = strcmp(listen, "0.0.0.0") == 0 || strcmp(listen, "::") == 0;
    int length = snprintf(url, sizeof url, "%s://%s%s%s:%d\n", scheme, v6 && !any ? "[" : "",
                          any ? "127.0.0.1" : listen, v6 && !any ? "]" : "", http_port(self->http));
    main_warn_plain(&self->settings); /* before: who awaits the file may read the log then */
    TRY(io_write_file(self->url_path, url, (size_t)length, 0644, err));
    log_info("main", "ithacad %s at %.*s, data in %s", ITHACA_VERSION, length - 1, url,
             self->settings.data_dir);
    if (self->settings.socket[0] != '\0')
        log_info("main", "and at unix:%s", self->settings.socket);
    return 0;
}

static int main_stop(struct main_daemon *self, struct err *err)
{
    struct api *api = &self->api;
    log_info("main", "stopping");
    systemd_notify("STOPPING=1\nSTATUS=Stopping");
    http_stop(self->http);
    coordinator_stop(api->coordinator);
    int64_t begun_ms = clock_monotonic_ms();
    for (;;) {
        int64_t passed_ms = clock_monotonic_ms() - begun_ms;
        bool quiet = http_is_idle(self->http) || passed_ms >= MAIN_HTTP_STOP_MS;
        bool idle = coordinator_is_idle(api->coordinator) && chat_is_idle(api->chat);
        if (quiet && idle)
            return 0;
        if (passed_ms >= MAIN_STOP_MS) {
            log_warn("main", "what still runs is left to the next daemon");
            return 0;
        }
        TRY(loop_turn(api->loop, COORDINATOR_TICK_MS, err));
    }
}

static int main_serve(struct main_daemon *self, struct err *err)
{
    int64_t beat_ms = systemd_watchdog_ms();
    TRY(main_write_url(self, err));
    if (beat_ms > 0) {
        TRY(loop_timer_new(self->api.loop, main_on_beat, NULL, &self->beat, err));
        loop_timer_set(self->beat, 0, beat_ms);
    }
    systemd_notify("READY=1\nSTATUS=Serving");
    int rc = loop_run(self->api.loop, err);
    (void)unlink(self->url_path);
    if (rc == 0)
        rc = main_stop(self, err);
    return rc;
}

static void main_close(struct main_daemon *self)
{
    struct api *api = &self->api;
    http_free(self->http); /* ends what is left of requests, which still use the rest */
    chat_free(api->chat);
    webhooks_free(api->webhooks);
    retention_free(api->retention);
    prune_free(api->prune);
    storage_free(api->storage);
    exports_free(api->exports);
    housekeeping_free(api->housekeeping);
    sse_free(api->sse);
    experiments_free(api->experiments);
    coordinator_free(api->coordinator);
    quota_free(api->quota);
    auth_free(api->auth);
    store_close(api->store);
    loop_timer_free(api->tick);
    loop_timer_free(self->beat);
    host_posix_free(api->host);
    loop_free(api->loop);
    mem_free(self->url_path);
    settings_done(&self->settings);
}

/* Raises the soft limit, which usually is 1024, and lets connections have a quarter of what there
 * is, so that clients alone cannot take the descriptors of their files, of children, ranks and
 * stores. */
static void main_fit_descriptors(struct settings *settings)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return; /* as many as are asked for, then */
    if (limit.rlim_cur < MAIN_DESCRIPTORS) {
        limit.rlim_cur = limit.rlim_max < MAIN_DESCRIPTORS ? limit.rlim_max : MAIN_DESCRIPTORS;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* then there are fewer, and few are used */
    }
    int64_t connections =
        limit.rlim_cur < MAIN_DESCRIPTORS ? (int64_t)limit.rlim_cur / 4 : MAIN_DESCRIPTORS / 4;
    if (settings->connections_max <= connections)
        return;
    log_warn(
        "main",
        "connections_max is %lld, not %lld: this process may have %lld descriptors (ulimit -n; "
        "LimitNOFILE of a systemd unit)",
        (long long)connections, (long long)settings->connections_max, (long long)limit.rlim_cur);
    settings->connections_max = connections;
    if (settings->streams_max > connections - connections / 4)
        settings->streams_max = connections - connections / 4; /* the API stays open */
}

static int main_run(int argc, char **argv, struct err *err)
{
    struct main_daemon self = {.http = NULL};
    TRY(settings_load(argc, argv, environ, &self.settings, err));
    log_set_level(log_level_parse(self.settings.log_level));
    const char *unknown = settings_unknown_variable(environ);
    if (unknown != NULL)
        log_warn("main", "%.*s is no setting of ithacad; see ithacad --help",
                 (int)strcspn(unknown, "="), unknown);
    main_fit_descriptors(&self.settings);
    (void)umask(0077);
    (void)signal(SIGPIPE, SIG_IGN); /* writes to lost clients and ranks give EPIPE instead */
    int rc = systemd_take_sockets(&self.settings, err);
    if (rc == 0)
        rc = main_open(&self, err);
    if (rc == 0)
        rc = main_serve(&self, err);
    main_close(&self);
    return rc;
}

static void main_help(void)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, 64 << 10);
    buf_text(&text, "usage: ithacad [run] [OPTION VALUE]...   serve jobs over HTTP\n"
                    "       ithacad schema [openapi|job]      print the API's OpenAPI document, or "
                    "a job's JSON schema\n"
                    "       ithacad --version | --help\n"
                    "Every option is also a key of the settings file and a variable ITHACA_...\n");
    settings_help(&text);
    (void)fputs(buf_str(&text), stdout);
}

static int main_schema(int argc, char **argv, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_ANSWER_BYTES);
    if (argc > 3)
        return err_set(err, ERR_USAGE, "usage: ithacad schema [openapi|job]");
    TRY(schema_print(argc > 2 ? argv[2] : "openapi", &text, err));
    (void)fputs(buf_str(&text), stdout);
    return 0;
}

static bool main_asks_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    int rc = 0;
    const char *word = argc > 1 ? argv[1] : "run";
    if (main_asks_help(argc, argv)) {
        main_help();
    } else if (strcmp(word, "--version") == 0) {
        (void)printf("ithacad %s\n", ITHACA_VERSION);
    } else if (strcmp(word, "schema") == 0) {
        rc = main_schema(argc, argv, &err);
    } else if (strcmp(word, "webhook") == 0) {
        rc = webhook_send_main(&err);
    } else {
        int skip = strcmp(word, "run") == 0 && argc > 1;
        rc = main_run(argc - skip, argv + skip, &err);
    }
    if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout)))
        rc = err_set(&err, ERR_IO, "standard output cannot be written");
    if (rc == 0) /* err may hold what was dealt with on the way */
        return 0;
    (void)fprintf(stderr, "ithacad: %s\n", err.text);
    return err_code_exit(err.code);
}
