/* cgroup: control groups (version 2) of the daemon's own making, one for each attempt of a job,
 * where the group that the daemon is in was delegated to it: where it may write there, as under
 * systemd's Delegate=yes.
 *
 *     <home>/                         the daemon's group, or that one's parent if it is "ithacad"
 *         ithacad/                    the daemon, where memory is counted
 *         ithaca-<job id>-<attempt>/  a keeper, its ranks and all that these start
 *
 * What a group gives: an end that reaches every process of the attempt, also those that left its
 * session and its parents; memory that is counted, and may be limited, for the attempt alone; the
 * number of its processes that the kernel killed for memory.
 *
 *     cgroup_find(&home); cgroup_settle(&home);                     the daemon, once
 *     TRY(cgroup_make(&home, job_id, attempt, 0, path, err));
 *     TRY(cgroup_join(path, err));                                  the keeper, before its ranks
 *     cgroup_kill(path); cgroup_is_populated(path); cgroup_memory(path, &memory);
 *     TRY(cgroup_remove(path, err));
 *
 * No other group is ever changed. The machine's root group is nobody's to divide: there, as in
 * version 1 and where nothing is delegated, home.path is "" and jobs have no groups.
 * Documentation/admin-guide/cgroup-v2.rst of the kernel. */
#pragma once
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CGROUP_PATH_BYTES = 512, CGROUP_WHY_BYTES = 256 };

struct cgroup_home {
    char path[CGROUP_PATH_BYTES]; /* a folder under the mounted hierarchy; "": no groups */
    bool settled;                 /* this process is in home's "ithacad" */
    bool memory;                  /* counted for each group; known once settled */
    char why[CGROUP_WHY_BYTES];   /* why no groups, or why no memory; "" when there are both */
};

struct cgroup_memory {
    int64_t limit; /* bytes: memory.max; -1: none */
    int64_t peak;  /* bytes: the most ever taken; -1: not known */
    int64_t full;  /* times that the limit was reached and nothing could be freed */
    int64_t kills; /* processes of the group that the kernel killed for memory, its own or all's */
};

/* Looks and changes nothing. */
void cgroup_find(struct cgroup_home *ret_home);
/* Makes memory and the number of processes be counted for each group: a group whose children do so
 * may have no process itself, so this one moves to "ithacad". Not done where others are in it, nor
 * in a unit of systemd that could then not be started again (DelegateSubgroup=ithacad is well). */
void cgroup_settle(struct cgroup_home *home);
/* One sentence for people. */
void cgroup_tell(const struct cgroup_home *home, char *ret_text, size_t bytes);

/* Makes the group of an attempt; memory_max bytes are its limit, 0: none. */
int cgroup_make(const struct cgroup_home *home, const char *job_id, int64_t attempt,
                int64_t memory_max, char ret_path[CGROUP_PATH_BYTES], struct err *err);
/* This process goes into the group, and so does what it starts from now on. */
int cgroup_join(const char *path, struct err *err);
void cgroup_kill(const char *path);         /* SIGKILL to all that are in it; no group: nothing */
bool cgroup_is_populated(const char *path); /* by living processes */
int32_t cgroup_first(const char *path);     /* pid of one in it; 0: there is none */
void cgroup_memory(const char *path, struct cgroup_memory *ret_memory);
/* Of a group without processes; one that is gone is fine. */
int cgroup_remove(const char *path, struct err *err);
/* Ends all that is in the group and removes it. ERR_IO when some of it is there after wait_ms. */
int cgroup_end(const char *path, int64_t wait_ms, struct err *err);

/* The groups of attempts that are there. */
typedef void cgroup_fn(void *context, const char *job_id, int64_t attempt, const char *path);
void cgroup_each(const struct cgroup_home *home, cgroup_fn *each, void *context);

/* Whether a path is one that cgroup_make() may have given for this attempt. */
bool cgroup_is_of(const char *path, const char *job_id, int64_t attempt);
