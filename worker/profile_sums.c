/* profile_sums: see profile_sums.h. */
#include "worker/profile_sums.h"

#include "common/mem.h"
#include "worker/profile_spans.h"

#include <stdlib.h>
#include <string.h>

/* ---- by name ----------------------------------------------------------------------------- */

static int sums_figure(struct profile_figures *figures, const char *name,
                       struct profile_figure **ret, struct err *err)
{
    for (int64_t i = 0; i < figures->count; i++) {
        if (strcmp(figures->list[i].name, name) == 0) {
            *ret = &figures->list[i];
            return 0;
        }
    }
    struct profile_figure *list = mem_grow(figures->list, (size_t)figures->count + 1, sizeof *list);
    if (list == NULL)
        return mem_fail(err, sizeof *list, "a profile's figures");
    figures->list = list;
    list[figures->count] = (struct profile_figure){.count = 0};
    memcpy(list[figures->count].name, name, strlen(name) + 1);
    *ret = &list[figures->count++];
    return 0;
}

/* First by the numbers of the file's names, then by the names, which are others in each file. */
static int sums_add_names(struct profile_sums *sums, const struct profile_file *file,
                          enum profile_kind kind, struct err *err)
{
    struct profile_figure *figure = NULL;
    CLEANUP(mem_free_ptr)
    int64_t(*found)[2] = mem_new(file->head.name_count + 1, sizeof *found);
    if (found == NULL)
        return mem_fail(err, 0, "a profile's figures");
    for (int64_t i = 0; i < file->head.count; i++) {
        const struct profile_event *event = &file->events[i];
        if (event->kind != kind)
            continue;
        found[event->name][0]++;
        found[event->name][1] += event->end_ns - event->begin_ns;
    }
    for (uint32_t n = 0; n < file->head.name_count; n++) {
        if (found[n][0] == 0)
            continue;
        TRY(sums_figure(&sums->kinds[kind], file->names[n], &figure, err));
        figure->count += found[n][0];
        figure->ns += found[n][1];
    }
    return 0;
}

static int sums_compare(const void *left, const void *right)
{
    const struct profile_figure *a = left, *b = right;
    if (a->ns != b->ns)
        return a->ns > b->ns ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* ---- what ran at once -------------------------------------------------------------------- */

static const struct profile_event *sums_around(const struct profile_file *file,
                                               enum profile_kind kind, int64_t ns)
{
    const struct profile_event *found = NULL;
    for (int64_t i = 0; i < file->head.count && file->events[i].begin_ns <= ns; i++)
        if (file->events[i].kind == kind && file->events[i].end_ns >= ns)
            found = &file->events[i];
    return found;
}

static int64_t sums_gap_ns(const struct profile_gap *gap)
{
    return gap->end_ns - gap->begin_ns;
}

static void sums_offer_gap(struct profile_sums *sums, const struct profile_file *file,
                           int64_t begin_ns, int64_t end_ns)
{
    struct profile_gap gap = {.begin_ns = begin_ns, .end_ns = end_ns, .rank = file->head.rank};
    int at = sums->gap_count;
    while (at > 0 && sums_gap_ns(&sums->gaps[at - 1]) < sums_gap_ns(&gap))
        at--;
    if (at == PROFILE_GAPS)
        return;
    int64_t middle_ns = begin_ns + (end_ns - begin_ns) / 2;
    const struct profile_event *step = sums_around(file, PROFILE_STEP, middle_ns);
    const struct profile_event *phase = sums_around(file, PROFILE_PHASE, middle_ns);
    gap.step = step != NULL ? step->number : 0;
    if (phase != NULL)
        memcpy(gap.phase, profile_event_name(file, phase), sizeof gap.phase);
    sums->gap_count += sums->gap_count < PROFILE_GAPS;
    memmove(&sums->gaps[at + 1], &sums->gaps[at],
            (size_t)(sums->gap_count - 1 - at) * sizeof gap); /* the shortest may fall out */
    sums->gaps[at] = gap;
}

/* Idle time of a rank: its steps without what is busy. */
static int64_t sums_idle(struct profile_sums *sums, const struct profile_file *file,
                         const struct profile_spans *steps, const struct profile_spans *busy)
{
    int64_t ns = 0, b = 0;
    for (int64_t s = 0; s < steps->count; s++) {
        int64_t at = steps->list[s].begin_ns, end = steps->list[s].end_ns;
        for (; at < end; b++) {
            bool last = b == busy->count || busy->list[b].begin_ns >= end;
            int64_t until = last ? end : busy->list[b].begin_ns;
            if (until > at) {
                ns += until - at;
                sums_offer_gap(sums, file, at, until);
            }
            if (last)
                break;
            at = busy->list[b].end_ns;
        }
    }
    return ns;
}

static int sums_rank(struct profile_sums *sums, const struct profile_file *file,
                     struct profile_busy *busy, struct err *err)
{
    CLEANUP(profile_spans_done) struct profile_spans steps = {.list = NULL};
    CLEANUP(profile_spans_done) struct profile_spans kernels = {.list = NULL};
    CLEANUP(profile_spans_done) struct profile_spans calls = {.list = NULL};
    CLEANUP(profile_spans_done) struct profile_spans copies = {.list = NULL};
    CLEANUP(profile_spans_done) struct profile_spans waits = {.list = NULL};
    CLEANUP(profile_spans_done) struct profile_spans any = {.list = NULL};
    const unsigned all =
        PROFILE_BIT(KERNEL) | PROFILE_BIT(COLLECTIVE) | PROFILE_BIT(COPY) | PROFILE_BIT(WAIT);
    TRY(profile_spans_of(file, PROFILE_BIT(STEP), &steps, err));
    TRY(profile_spans_of(file, PROFILE_BIT(KERNEL), &kernels, err));
    TRY(profile_spans_of(file, PROFILE_BIT(COLLECTIVE), &calls, err));
    TRY(profile_spans_of(file, PROFILE_BIT(COPY), &copies, err));
    TRY(profile_spans_of(file, PROFILE_BIT(WAIT), &waits, err));
    TRY(profile_spans_of(file, all, &any, err));
    *busy = (struct profile_busy){.step_ns = profile_spans_ns(&steps),
                                  .kernel_ns = profile_spans_ns(&kernels),
                                  .wait_ns = profile_spans_ns(&waits),
                                  .collective_ns = profile_spans_ns(&calls),
                                  .collective_hidden_ns = profile_spans_shared_ns(&calls, &kernels),
                                  .copy_ns = profile_spans_ns(&copies),
                                  .copy_hidden_ns = profile_spans_shared_ns(&copies, &kernels),
                                  .idle_ns = sums_idle(sums, file, &steps, &any)};
    return 0;
}

static void sums_add(struct profile_busy *all, const struct profile_busy *rank)
{
    all->step_ns += rank->step_ns;
    all->kernel_ns += rank->kernel_ns;
    all->wait_ns += rank->wait_ns;
    all->collective_ns += rank->collective_ns;
    all->collective_hidden_ns += rank->collective_hidden_ns;
    all->copy_ns += rank->copy_ns;
    all->copy_hidden_ns += rank->copy_hidden_ns;
    all->idle_ns += rank->idle_ns;
}

/* ---- all of it --------------------------------------------------------------------------- */

static int sums_fill(struct profile_sums *sums, const struct profile_job *job, struct err *err)
{
    sums->ranks = mem_new(job->world, sizeof *sums->ranks);
    if (sums->ranks == NULL)
        return mem_fail(err, job->world * sizeof *sums->ranks, "a profile's figures");
    for (uint32_t rank = 0; rank < job->world; rank++) {
        for (int kind = 0; kind < PROFILE_KIND_COUNT; kind++)
            TRY(sums_add_names(sums, &job->files[rank], (enum profile_kind)kind, err));
        TRY(sums_rank(sums, &job->files[rank], &sums->ranks[rank], err));
        sums_add(&sums->all, &sums->ranks[rank]);
    }
    for (int kind = 0; kind < PROFILE_KIND_COUNT; kind++)
        if (sums->kinds[kind].count > 0)
            qsort(sums->kinds[kind].list, (size_t)sums->kinds[kind].count,
                  sizeof *sums->kinds[kind].list, sums_compare);
    sums->steps = sums->kinds[PROFILE_STEP].list[0].count / job->world;
    return 0;
}

int profile_sums_make(const struct profile_job *job, struct profile_sums *ret, struct err *err)
{
    struct profile_sums sums = {.steps = 0};
    int rc = sums_fill(&sums, job, err);
    if (rc == 0)
        *ret = sums;
    else
        profile_sums_done(&sums);
    return rc;
}

void profile_sums_done(struct profile_sums *sums)
{
    for (int kind = 0; kind < PROFILE_KIND_COUNT; kind++)
        mem_free(sums->kinds[kind].list);
    mem_free(sums->ranks);
    *sums = (struct profile_sums){.ranks = NULL};
}

int64_t profile_sums_ns(const struct profile_sums *sums, enum profile_kind kind, const char *name)
{
    for (int64_t i = 0; i < sums->kinds[kind].count; i++)
        if (strcmp(sums->kinds[kind].list[i].name, name) == 0)
            return sums->kinds[kind].list[i].ns;
    return 0;
}

double profile_sums_share(const struct profile_sums *sums, int64_t ns)
{
    return sums->all.step_ns > 0 ? (double)ns / (double)sums->all.step_ns : 0;
}
