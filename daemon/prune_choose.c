/* prune_choose: which items of a survey may go. Checkpoints are decided before shards: a job that
 * failed needs its shards as long as a checkpoint stays. */
#include "common/mem.h"
#include "daemon/prune.h"

#include <stdlib.h>
#include <string.h>

void prune_policy_init(struct prune_policy *ret_policy, const char *owner)
{
    *ret_policy =
        (struct prune_policy){.owner = owner, .job = "", .before_ms = INT64_MAX, .keep = -1};
    for (int kind = 0; kind < STORAGE_KIND_COUNT; kind++)
        ret_policy->kinds[kind] =
            storage_kind_removed((enum storage_kind)kind) == STORAGE_REMOVED_DEFAULT;
}

/* Whether the policy is about an item at all. */
static bool prune_is_meant(const struct storage_survey *survey, const struct prune_policy *policy,
                           const struct storage_item *item)
{
    if (!policy->kinds[item->kind] || storage_kind_removed(item->kind) == STORAGE_REMOVED_NEVER ||
        (policy->owner[0] != '\0' && strcmp(policy->owner, storage_owner(survey, item)) != 0))
        return false;
    if (item->thing == STORAGE_NOBODY) /* of these the cache's shards alone can go */
        return item->kind == STORAGE_SHARDS && policy->job[0] == '\0';
    const struct storage_thing *thing = &survey->things[item->thing];
    bool named = thing->is_job && strcmp(policy->job, thing->id) == 0;
    return (policy->job[0] == '\0' || named) && thing->owner[0] != '\0' && !thing->is_needed &&
           thing->used_ms < policy->before_ms;
}

/* The items of the thing that item `at` belongs to. */
static void prune_range(const struct storage_survey *survey, size_t at, size_t *ret_first,
                        size_t *ret_end)
{
    const int64_t thing = survey->items[at].thing;
    size_t end = at;
    while (at > 0 && survey->items[at - 1].thing == thing)
        at--;
    while (end < survey->item_count && survey->items[end].thing == thing)
        end++;
    *ret_first = at;
    *ret_end = end;
}

/* A whole checkpoint; of a job that may go on, one that it could go on from. */
static bool prune_is_whole(const struct storage_survey *survey, const struct storage_item *item)
{
    return item->kind == STORAGE_CHECKPOINTS && item->step > 0 &&
           (item->is_valid || !survey->things[item->thing].may_go_on);
}

static bool prune_checkpoint_goes(const struct storage_survey *survey,
                                  const struct prune_policy *policy, size_t at)
{
    const struct storage_item *item = &survey->items[at];
    const struct storage_thing *job = &survey->things[item->thing];
    int64_t needed = job->may_go_on && !(policy->job[0] != '\0' && policy->keep == 0);
    int64_t keep = policy->keep > needed ? policy->keep : needed;
    int64_t newer = 0;
    size_t i, end;
    if (!prune_is_whole(survey, item))
        return true;
    for (prune_range(survey, at, &i, &end); i < end; i++)
        newer += prune_is_whole(survey, &survey->items[i]) && survey->items[i].step > item->step;
    return newer >= keep;
}

static bool prune_shards_go(const struct storage_survey *survey, size_t at, const bool chosen[])
{
    size_t i, end;
    if (survey->items[at].thing == STORAGE_NOBODY ||
        !survey->things[survey->items[at].thing].may_go_on)
        return true;
    for (prune_range(survey, at, &i, &end); i < end; i++)
        if (prune_is_whole(survey, &survey->items[i]) && !chosen[i])
            return false;
    return true;
}

void prune_choose(const struct storage_survey *survey, const struct prune_policy *policy,
                  bool chosen[])
{
    for (size_t i = 0; i < survey->item_count; i++)
        chosen[i] = survey->items[i].kind != STORAGE_SHARDS &&
                    prune_is_meant(survey, policy, &survey->items[i]) &&
                    (survey->items[i].kind != STORAGE_CHECKPOINTS ||
                     prune_checkpoint_goes(survey, policy, i));
    for (size_t i = 0; i < survey->item_count; i++)
        chosen[i] |= survey->items[i].kind == STORAGE_SHARDS &&
                     prune_is_meant(survey, policy, &survey->items[i]) &&
                     prune_shards_go(survey, i, chosen);
}

/* ---- a budget ------------------------------------------------------------------------------ */

struct prune_aged {
    int64_t used_ms; /* of what the item belongs to; nobody's come first */
    int64_t step;    /* of one job the older checkpoints come first */
    size_t item;
};

static int prune_compare(const void *a, const void *b)
{
    const struct prune_aged *left = a, *right = b;
    if (left->used_ms != right->used_ms)
        return left->used_ms < right->used_ms ? -1 : 1;
    if (left->step != right->step)
        return left->step < right->step ? -1 : 1;
    return left->item < right->item ? -1 : left->item > right->item;
}

int prune_trim(const struct storage_survey *survey, enum storage_kind kind, int64_t bytes_max,
               bool chosen[], struct err *err)
{
    CLEANUP(mem_free_ptr)
    struct prune_aged *aged = mem_new(survey->item_count + 1, sizeof *aged);
    size_t count = 0;
    int64_t bytes = 0;
    if (aged == NULL)
        return mem_fail(err, survey->item_count * sizeof *aged, "what is to be removed");
    for (size_t i = 0; i < survey->item_count; i++) {
        const struct storage_item *item = &survey->items[i];
        if (item->kind != kind)
            continue;
        bytes += item->bytes;
        if (chosen[i])
            aged[count++] = (struct prune_aged){
                .used_ms = item->thing != STORAGE_NOBODY ? survey->things[item->thing].used_ms : 0,
                .step = item->step,
                .item = i};
    }
    qsort(aged, count, sizeof *aged, prune_compare);
    for (size_t i = 0; i < count; i++) {
        chosen[aged[i].item] = bytes > bytes_max;
        bytes -= survey->items[aged[i].item].bytes;
    }
    return 0;
}

int prune_list(const struct storage_survey *survey, const bool chosen[],
               struct prune_target **ret_targets, size_t *ret_count, struct err *err)
{
    size_t count = 0;
    for (size_t i = 0; i < survey->item_count; i++)
        count += chosen[i];
    struct prune_target *targets = mem_new(count + 1, sizeof *targets);
    if (targets == NULL)
        return mem_fail(err, count * sizeof *targets, "what is to be removed");
    *ret_targets = targets;
    *ret_count = count;
    for (size_t i = 0; i < survey->item_count; i++) {
        const struct storage_item *item = &survey->items[i];
        if (!chosen[i])
            continue;
        *targets =
            (struct prune_target){.kind = item->kind, .step = item->step, .bytes = item->bytes};
        if (item->thing != STORAGE_NOBODY) {
            memcpy(targets->id, survey->things[item->thing].id, sizeof targets->id);
            targets->is_job = survey->things[item->thing].is_job;
        }
        targets++;
    }
    return 0;
}
