/* profile_summary: see profile_summary.h. */
#include "worker/profile_summary.h"

#include "common/mem.h"
#include "common/mem_timeline.h"
#include "worker/profile_advice.h"
#include "worker/profile_sums.h"

enum { SUMMARY_ROWS = 40, SUMMARY_BUFFERS = 12 };

static double summary_ms(int64_t ns)
{
    return (double)ns * 1e-6;
}

/* Figures of a kind, the largest SUMMARY_ROWS; the others as one row. */
static json_t *summary_figures(const struct profile_sums *sums, enum profile_kind kind)
{
    const struct profile_figures *figures = &sums->kinds[kind];
    struct profile_figure others = {.name = "others"};
    json_t *list = json_array();
    int bad = list == NULL;
    for (int64_t i = 0; i <= figures->count; i++) {
        const struct profile_figure *figure = i < figures->count ? &figures->list[i] : &others;
        if (i >= SUMMARY_ROWS && i < figures->count) {
            others.count += figure->count;
            others.ns += figure->ns;
        } else if (figure->count > 0) {
            bad |= json_array_append_new(
                list, json_pack("{s:s, s:I, s:f, s:f}", "name", figure->name, "count",
                                (json_int_t)figure->count, "total_ms", summary_ms(figure->ns),
                                "share", profile_sums_share(sums, figure->ns)));
        }
    }
    if (bad == 0)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *summary_ratio(int64_t part, int64_t whole)
{
    return whole > 0 ? json_real((double)part / (double)whole) : json_null();
}

static json_t *summary_overlap(const struct profile_busy *all)
{
    return json_pack("{s:f, s:o, s:f, s:o}", "collectives_ms", summary_ms(all->collective_ns),
                     "collectives_hidden",
                     summary_ratio(all->collective_hidden_ns, all->collective_ns), "copies_ms",
                     summary_ms(all->copy_ns), "copies_hidden",
                     summary_ratio(all->copy_hidden_ns, all->copy_ns));
}

static json_t *summary_idle(const struct profile_job *job, const struct profile_sums *sums)
{
    json_t *longest = json_array();
    int bad = longest == NULL;
    for (int g = 0; g < sums->gap_count; g++) {
        const struct profile_gap *gap = &sums->gaps[g];
        bad |= json_array_append_new(longest,
                                     json_pack("{s:i, s:I, s:s, s:f, s:f}", "rank", (int)gap->rank,
                                               "step", (json_int_t)gap->step, "phase", gap->phase,
                                               "at_ms", summary_ms(gap->begin_ns - job->began_ns),
                                               "ms", summary_ms(gap->end_ns - gap->begin_ns)));
    }
    if (bad != 0) {
        json_decref(longest);
        return NULL;
    }
    return json_pack("{s:f, s:f, s:o}", "total_ms", summary_ms(sums->all.idle_ns), "share",
                     profile_sums_share(sums, sums->all.idle_ns), "longest", longest);
}

static json_t *summary_ranks(const struct profile_job *job, const struct profile_sums *sums)
{
    json_t *list = json_array();
    int bad = list == NULL;
    bool whole = profile_job_is_whole(job);
    for (uint32_t rank = 0; rank < job->world; rank++) {
        const struct profile_busy *busy = &sums->ranks[rank];
        bad |= json_array_append_new(
            list, json_pack("{s:i, s:f, s:o, s:o, s:o}", "rank", (int)rank, "step_ms",
                            summary_ms(busy->step_ns) / (double)sums->steps, "kernels",
                            summary_ratio(busy->kernel_ns, busy->step_ns), "waits",
                            summary_ratio(busy->wait_ns, busy->step_ns), "idle",
                            whole ? summary_ratio(busy->idle_ns, busy->step_ns) : json_null()));
    }
    if (bad == 0)
        return list;
    json_decref(list);
    return NULL;
}

static int summary_set(json_t *summary, const char *key, json_t *value, struct err *err)
{
    return json_object_set_new(summary, key, value) == 0 ? 0 : mem_fail(err, 0, "a summary");
}

static int summary_fill(const struct profile_job *job, const struct profile_sums *sums,
                        json_t *summary, struct err *err)
{
    static const struct {
        const char *key;
        enum profile_kind kind;
    } lists[] = {{"phases", PROFILE_PHASE},           {"parts", PROFILE_PART},
                 {"kernels", PROFILE_KERNEL},         {"waits", PROFILE_WAIT},
                 {"collectives", PROFILE_COLLECTIVE}, {"copies", PROFILE_COPY}};
    bool whole = profile_job_is_whole(job);
    json_t *advice = NULL;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        TRY(summary_set(summary, lists[i].key, summary_figures(sums, lists[i].kind), err));
    TRY(summary_set(summary, "overlap", whole ? summary_overlap(&sums->all) : json_null(), err));
    TRY(summary_set(summary, "idle", whole ? summary_idle(job, sums) : json_null(), err));
    TRY(summary_set(summary, "by_rank", summary_ranks(job, sums), err));
    TRY(summary_set(summary, "memory", mem_timeline_peak_json(&job->memory, SUMMARY_BUFFERS), err));
    TRY(profile_advice_make(job, sums, &advice, err));
    return summary_set(summary, "suggestions", advice, err);
}

int profile_summary_make(const struct profile_job *job, json_t **ret, struct err *err)
{
    CLEANUP(profile_sums_done) struct profile_sums sums = {.ranks = NULL};
    TRY(profile_sums_make(job, &sums, err));
    const struct profile_head *head = &job->files[0].head;
    double step_ms = summary_ms(sums.all.step_ns) / (double)(sums.steps * (int64_t)job->world);
    json_t *summary = json_pack(
        "{s:s, s:s, s:i, s:I, s:I, s:i, s:s, s:I, s:I, s:I, s:b, s:f}", "object",
        "fine_tuning.job.profile", "job_id", job->plan.job_id, "attempt", (int)job->plan.attempt,
        "first_step", (json_int_t)job->first_step, "last_step", (json_int_t)job->last_step, "ranks",
        (int)job->world, "device", head->device, "taken_at", (json_int_t)(job->taken_ms / 1000),
        "left_out_steps", (json_int_t)job->left_out, "dropped_events", (json_int_t)job->dropped,
        "kernels_traced", head->untraced[0] == '\0', "step_ms", step_ms);
    int rc =
        summary == NULL ? mem_fail(err, 0, "a summary") : summary_fill(job, &sums, summary, err);
    if (rc == 0)
        *ret = summary;
    else
        json_decref(summary);
    return rc;
}
