/* preparation: the prepare child of a job, `ithaca-worker --prepare REQUEST`
 * (common/prepare_request.h), and the verdict on the job's files that its reports give. Users'
 * bytes are parsed in that child, never in the daemon. */
#pragma once
#include "common/err.h"
#include "common/job_spec.h"
#include "common/prepare_request.h"
#include "daemon/host.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct preparation; /* on the heap: its address is given to the host */

/* What a job's model is made of, where it starts from a checkpoint: that, and the model that its
 * job started from. NULLs: the model is there. */
struct preparation_base {
    char *checkpoint_dir, *model_dir; /* owned */
};

void preparation_base_done(struct preparation_base *base);

/* Borrowed until preparation_start() returns. */
struct preparation_job {
    const char *worker_program;
    const char *data_dir;  /* holds files/<id> */
    const char *job_dir;   /* tokens and reports go to its folder tokens */
    const char *model_dir; /* made where it is not there and has a base */
    struct preparation_base base;
    const struct job_spec *spec;          /* without a file: random tokens are made */
    const char *names[PREPARE_FILES_MAX]; /* what their users call the files; NULL: there is none */
};
/* Starts the child. */
int preparation_start(struct host *host, const struct preparation_job *job,
                      struct preparation **ret_preparation, struct err *err);
void preparation_free(struct preparation *preparation); /* NULL is fine; does not end the child */
bool preparation_is_over(const struct preparation *preparation);
/* It is over soon after; the job's folder tokens is gone then. */
void preparation_kill(struct preparation *preparation);

struct preparation_file {
    bool bad;        /* lines that are wrong, or nothing to train on */
    bool hopeless;   /* bad, whatever model and settings are */
    int64_t lines;   /* of the report */
    int64_t kept;    /* examples */
    int64_t dropped; /* harmless lines that hold nothing to train on */
    int64_t tokens;
    int64_t trained_tokens;
    int64_t overlength; /* lines longer than seq_len */
    int64_t tokens_cut; /* of them, not used */
    char *details;      /* bad lines, one a line of text; owned; NULL unless bad */
};

struct preparation_verdict {
    size_t file_count;                                /* 0: random tokens are there */
    struct preparation_file files[PREPARE_FILES_MAX]; /* training file, validation file */
};
/* Once it is over. 0 when the job can go on. ERR_DATA when a file is bad, with the first of its bad
 * lines in the sentence; other codes when the child failed. The verdict holds the files whose
 * reports could be read; _done it in each case. */
int preparation_verdict(const struct preparation *preparation, struct preparation_verdict *ret,
                        struct err *err);
void preparation_verdict_done(struct preparation_verdict *verdict);
