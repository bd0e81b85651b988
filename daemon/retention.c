/* retention: a timer, and for each kind one choice by age and one by bytes. */
#include "daemon/retention.h"

#include "common/log.h"
#include "common/mem.h"
#include "daemon/api.h"
#include "daemon/host.h"
#include "daemon/loop.h"
#include "daemon/prune.h"
#include "daemon/settings.h"

enum {
    RETENTION_FIRST_MS = 1000,    /* after the start */
    RETENTION_EVERY_MS = 3600000, /* what is kept for days can wait for an hour */
    RETENTION_KINDS = 4
};

struct retention {
    struct api *api;
    struct loop_timer *timer;
    struct storage_wait *wait; /* for a survey */
};

struct retention_rule {
    enum storage_kind kind;
    int64_t days;      /* 0: for ever */
    int64_t bytes_max; /* 0: no limit */
};

static void retention_rules(const struct settings *s, struct retention_rule ret[RETENTION_KINDS])
{
    ret[0] = (struct retention_rule){.kind = STORAGE_CHECKPOINTS,
                                     .days = s->retain_checkpoints_days,
                                     .bytes_max = s->retain_checkpoints_bytes};
    ret[1] = (struct retention_rule){
        .kind = STORAGE_LOGS, .days = s->retain_logs_days, .bytes_max = s->retain_logs_bytes};
    ret[2] = (struct retention_rule){
        .kind = STORAGE_SHARDS, .days = s->retain_shards_days, .bytes_max = s->retain_shards_bytes};
    ret[3] = (struct retention_rule){
        .kind = STORAGE_FILES, .days = s->retain_files_days, .bytes_max = s->retain_files_bytes};
}

bool retention_is_on(const struct settings *settings)
{
    struct retention_rule rules[RETENTION_KINDS];
    retention_rules(settings, rules);
    for (int i = 0; i < RETENTION_KINDS; i++)
        if (rules[i].days > 0 || rules[i].bytes_max > 0)
            return true;
    return false;
}

static void retention_mark(const struct storage_survey *survey, const bool more[], bool chosen[])
{
    for (size_t i = 0; i < survey->item_count; i++)
        chosen[i] |= more[i];
}

/* Adds the marks of one rule; `scratch` is as long as `chosen`. */
static int retention_apply(const struct storage_survey *survey, const struct retention_rule *rule,
                           int64_t now_ms, bool scratch[], bool chosen[], struct err *err)
{
    struct prune_policy policy;
    prune_policy_init(&policy, "");
    for (int kind = 0; kind < STORAGE_KIND_COUNT; kind++)
        policy.kinds[kind] = kind == (int)rule->kind;
    if (rule->bytes_max > 0) {
        prune_choose(survey, &policy, scratch);
        TRY(prune_trim(survey, rule->kind, rule->bytes_max, scratch, err));
        retention_mark(survey, scratch, chosen);
    }
    if (rule->days > 0) {
        policy.before_ms = now_ms - rule->days * 86400000;
        prune_choose(survey, &policy, scratch);
        retention_mark(survey, scratch, chosen);
    }
    return 0;
}

int retention_choose(const struct storage_survey *survey, const struct settings *settings,
                     int64_t now_ms, bool chosen[], struct err *err)
{
    struct retention_rule rules[RETENTION_KINDS];
    CLEANUP(mem_free_ptr) bool *scratch = mem_new(survey->item_count + 1, sizeof *scratch);
    if (scratch == NULL)
        return mem_fail(err, survey->item_count, "what is to be removed");
    retention_rules(settings, rules);
    for (size_t i = 0; i < survey->item_count; i++)
        chosen[i] = false;
    for (int i = 0; i < RETENTION_KINDS; i++)
        TRY(retention_apply(survey, &rules[i], now_ms, scratch, chosen, err));
    return 0;
}

static int retention_run(struct retention *self, const struct storage_survey *survey,
                         struct err *err)
{
    struct api *api = self->api;
    struct prune_target *targets = NULL;
    size_t count = 0;
    CLEANUP(mem_free_ptr) bool *chosen = mem_new(survey->item_count + 1, sizeof *chosen);
    if (chosen == NULL)
        return mem_fail(err, survey->item_count, "what is to be removed");
    TRY(retention_choose(survey, api->settings, api->host->ops->wall_ms(api->host), chosen, err));
    TRY(prune_list(survey, chosen, &targets, &count, err));
    return prune_start(api->prune, targets, count, "retention", NULL, NULL, err);
}

static void retention_surveyed(void *context, const struct storage_survey *survey,
                               const struct err *why)
{
    struct retention *self = context;
    struct err err;
    self->wait = NULL;
    if (survey == NULL)
        log_warn("retention", "%s", why->text);
    else if (retention_run(self, survey, &err) != 0)
        log_warn("retention", "%s", err.text);
}

static void retention_on_time(void *context)
{
    struct retention *self = context;
    struct err err;
    if (self->wait == NULL &&
        storage_want(self->api->storage, retention_surveyed, self, &self->wait, &err) != 0)
        log_warn("retention", "%s", err.text);
}

int retention_new(struct api *api, struct retention **ret_retention, struct err *err)
{
    struct retention *retention = mem_new(1, sizeof *retention);
    if (retention == NULL)
        return mem_fail(err, sizeof *retention, "retention");
    retention->api = api;
    int rc = loop_timer_new(api->loop, retention_on_time, retention, &retention->timer, err);
    if (rc != 0) {
        mem_free(retention);
        return rc;
    }
    if (retention_is_on(api->settings))
        loop_timer_set(retention->timer, RETENTION_FIRST_MS, RETENTION_EVERY_MS);
    *ret_retention = retention;
    return 0;
}

void retention_free(struct retention *retention)
{
    if (retention == NULL)
        return;
    storage_forget(retention->wait);
    loop_timer_free(retention->timer);
    mem_free(retention);
}
