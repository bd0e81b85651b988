/* prune: what of a survey (storage.h) may go, and its removal.
 *
 * What is needed stays, whatever a policy says: all of a job that has not ended, a file that such a
 * job uses, a checkpoint that is being exported, and of a job that failed the newest checkpoint and
 * its shards, with which it can be resumed, unless the job is named and keep is 0. Models go with
 * their job only. The survey may be old when it comes to removing: each thing is looked at again.
 *
 * Removing is a rename into the trash (trash.h), some milliseconds of it a turn of the loop. It
 * becomes an event of the job, which says who it was; the log has it too, for files as well. */
#pragma once
#include "daemon/storage.h"

struct prune_policy {
    bool kinds[STORAGE_KIND_COUNT]; /* those that never go are not read */
    const char *owner;              /* of this user alone; "": of all, and what is nobody's */
    const char *job;                /* of this job alone; "": of all */
    int64_t before_ms;              /* last used before (Unix); INT64_MAX: whenever */
    int64_t keep; /* newest checkpoints of a job that stay; -1: only what is needed */
};
/* All that goes by default, of one user ("": of all). The owner's text is borrowed. */
void prune_policy_init(struct prune_policy *ret_policy, const char *owner);
/* Marks what may go. Pure. */
void prune_choose(const struct storage_survey *survey, const struct prune_policy *policy,
                  bool chosen[]);
/* Of what is chosen of a kind, takes the mark from the last used until the rest is just enough to
 * bring the kind down to so many bytes. ERR_NOMEM. Pure. */
int prune_trim(const struct storage_survey *survey, enum storage_kind kind, int64_t bytes_max,
               bool chosen[], struct err *err);

struct prune_target {
    enum storage_kind kind;
    char id[LIMIT_ID_BYTES + 1]; /* job or file; "": shards that no job has */
    bool is_job;
    int64_t step; /* of a checkpoint */
    int64_t bytes;
    bool is_gone; /* it was removed; else it is needed by now, or could not be: see the log */
};
/* Those chosen, in the order of the survey; the caller mem_free()s. */
int prune_list(const struct storage_survey *survey, const bool chosen[],
               struct prune_target **ret_targets, size_t *ret_count, struct err *err);

struct api;
struct prune;
int prune_new(struct api *api, struct prune **ret_prune, struct err *err);
void prune_free(
    struct prune *prune); /* NULL is fine; `done` of what waits is told of nothing gone */

/* targets: as they were removed; borrowed. */
typedef void prune_fn(void *context, const struct prune_target *targets, size_t count);
/* Removes them, after those that were asked for before; takes the list over, also on failure. who:
 * a user, or "retention". done (NULL: nobody wants to know) is called once, from the loop. */
int prune_start(struct prune *prune, struct prune_target *targets, size_t count, const char *who,
                prune_fn *done, void *context, struct err *err);
