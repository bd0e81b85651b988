/* profile_file: what a rank noted of the steps that were profiled, <job folder>/profile/rank-R:
 *
 *   OFFSET SIZE         MEANING
 *     0     128         struct profile_head
 *   128     128 * names names, NUL-terminated, in the order of their numbers
 *     -     32 * events struct profile_event, as they were noted
 *
 * Integers are the machine's own: the file is read on the machine that wrote it. Rules: (1) magic
 * and size match; (2) names end within their 128 bytes; (3) kinds and names of events are known;
 * (4) no event ends before it begins. A file that breaks one is ERR_CORRUPT.
 *
 * <job folder>/profile/ready.json appears when the files of all ranks are there, and goes before
 * one of them is written anew: {"attempt", "world", "first_step", "last_step", "taken_ms"}. */
#pragma once
#include "common/err.h"
#include "common/limits.h"

#include <stdint.h>

/* X(id, name): tracks of a rank */
#define PROFILE_KINDS(X)                                                        \
    X(STEP, "step")             /* a whole step; `number`: which */             \
    X(PHASE, "phase")           /* data, forward, backward, optimizer */        \
    X(LAYER, "layer")           /* a layer of a pass; `number`: which, or -1 */ \
    X(PART, "part")             /* a phase of the memory plan */                \
    X(WAIT, "wait")             /* the work stands still (exposed.h) */         \
    X(KERNEL, "kernel")         /* an operation or kernel */                    \
    X(COPY, "copy")             /* `number`: bytes */                           \
    X(COLLECTIVE, "collective") /* begun to done; `number`: bytes; 0: unknown */
enum profile_kind {
#define X(id, name) PROFILE_##id,
    PROFILE_KINDS(X)
#undef X
        PROFILE_KIND_COUNT
};
const char *profile_kind_name(enum profile_kind kind);

enum {
    PROFILE_NAME_BYTES = 128, /* a kernel's symbol is cut off there */
    PROFILE_NAMES_MAX = 1024  /* a step has some sixty kernels; later names are "other" */
};

struct profile_event {
    int64_t begin_ns, end_ns; /* of the monotonic clock, one for all ranks of a machine */
    int64_t number;           /* by kind */
    uint32_t lane;            /* stream of the device; 0 for what is not the device's */
    uint16_t kind, name;      /* enum profile_kind; number of its name */
};

struct profile_head {
    uint64_t magic;
    uint32_t rank, world, attempt, name_count;
    int64_t first_step, last_step; /* that were profiled */
    int64_t count;                 /* events */
    int64_t dropped;               /* events that found no room */
    int64_t taken_ms;              /* Unix time */
    char device[16];               /* "cpu", "cuda" */
    char untraced[24];             /* not "": kernels were not traced; code of the reason */
    int64_t full_ns;               /* when the first of those dropped began; 0: not known */
    int64_t unused[2];
};

struct profile_file {
    struct profile_head head;
    char (*names)[PROFILE_NAME_BYTES]; /* (head.name_count) */
    struct profile_event *events;      /* (head.count) */
};

/* "<job_dir>/profile/rank-R" and ".../ready.json"; new strings, or NULL. */
char *profile_file_path(const char *job_dir, uint32_t rank);
char *profile_ready_path(const char *job_dir);

/* Appears whole, by rename. */
int profile_file_write(const char *path, const struct profile_file *file, struct err *err);
int profile_file_read(const char *path, struct profile_file *ret, struct err *err);
void profile_file_done(struct profile_file *file);
