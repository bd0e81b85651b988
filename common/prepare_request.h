/* prepare_request: what the daemon asks of its prepare child, `ithaca-worker --prepare REQUEST`,
 * where REQUEST is the path of this file:
 *
 *   {"model_dir":"/...", "spec":{the job, as job_spec_json() prints it},
 *    "files":[{"path":"/data/files/file-a","name":"a.jsonl","out_path":".../tokens/train.tok",
 *              "report_path":".../tokens/report.json"}, ...],
 *    "error_path":".../tokens/error.json", "progress_path":".../tokens/progress.json",
 *    "cache_dir":"/data/cache"}
 *
 * Where the job starts from a checkpoint "checkpoint_dir" and "source_dir" are there, too:
 * model_dir is made of these first. files: the training file, then the validation file when there
 * is one; or none, and "random_path", where a shard of random tokens is to go. The child calls
 * dataset_prepare() on each. It exits with 0 when every report is written, bad lines or not. What
 * else goes wrong (model, disk) it writes to error_path as {"code":"invalid_model","message":"..."}
 * and exits with that code's status. Without error.json a bad end is reported by exit status or
 * signal. */
#pragma once
#include "common/err.h"
#include "common/job_spec.h"

#include <stddef.h>

enum { PREPARE_FILES_MAX = 2 };

struct prepare_file {
    char *path;        /* the file; owned */
    char *name;        /* as its user calls it; owned */
    char *out_path;    /* token shard to write; owned */
    char *report_path; /* report to write; owned */
};

struct prepare_request {
    char *model_dir;      /* tokenizer and template; owned */
    char *checkpoint_dir; /* model_dir is to be made of it; owned; NULL: it is there */
    char *source_dir;     /* the model that the checkpoint is a tuning of; owned; NULL likewise */
    char *error_path;     /* owned */
    char *progress_path;  /* written each second: {"file","files","bytes","bytes_total","rows",
                             "bad","fault","waiting"}; owned */
    char *cache_dir;      /* of dataset_cache.h; owned */
    struct job_spec spec; /* resolved: seq_len, overlength, train_on */
    char *random_path;    /* a shard of random tokens to write; owned; NULL: there are files */
    size_t file_count;
    struct prepare_file files[PREPARE_FILES_MAX];
};

/* Both leave nothing half done; _done accepts a zeroed request. */
int prepare_request_read(const char *path, struct prepare_request *ret_request, struct err *err);
int prepare_request_write(const char *path, const struct prepare_request *request, struct err *err);
void prepare_request_done(struct prepare_request *request);

int prepare_error_write(const char *path, const struct err *failure, struct err *err);
/* ERR_NOT_FOUND when the child left none. */
int prepare_error_read(const char *path, struct err *ret_failure, struct err *err);
