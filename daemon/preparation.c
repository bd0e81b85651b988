/* preparation: one child, its request file, and its reports (common/dataset.h). The sentence of a
 * bad file names as many bad lines as fit; the rest are in the file's status_details. */
#include "daemon/preparation.h"

#include "common/buf.h"
#include "common/io.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "daemon/launch_local.h"
#include "daemon/trash.h"

#include <signal.h>
#include <string.h>

enum {
    PREPARATION_REPORT_BYTES = 4 << 20, /* a hundred faults of a few hundred bytes, a histogram */
    PREPARATION_DETAILS_BYTES = 64 << 10,
};

static const struct {
    const char *what; /* in sentences, as in the request */
    const char *tokens, *report;
} preparation_names[PREPARE_FILES_MAX] = {
    {.what = "training_file", .tokens = "train.tok", .report = "report.json"},
    {.what = "validation_file", .tokens = "valid.tok", .report = "valid-report.json"},
};

struct preparation {
    struct host *host;
    struct host_process *child;
    char *data_dir, *job_dir; /* owned */
    struct prepare_request request;
    const char *file_ids[PREPARE_FILES_MAX]; /* into request.spec */
    bool killed, over;
    struct host_exit ended;
};

/* Nobody wants what is there of tokens: a child that was killed may have left gigabytes. */
static int preparation_discard(const struct preparation *preparation, struct err *err)
{
    struct host *host = preparation->host;
    CLEANUP(mem_free_ptr) char *tokens_dir = io_join(preparation->job_dir, "tokens");
    CLEANUP(mem_free_ptr)
    char *name = mem_printf("%s-tokens-%lld", preparation->job_dir,
                            (long long)host->ops->wall_ms(host)); /* of its last part */
    return tokens_dir != NULL && name != NULL
               ? trash_put_as(preparation->data_dir, tokens_dir, name, err)
               : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

static void preparation_exit(void *context, const struct host_exit *ended)
{
    struct preparation *preparation = context;
    preparation->over = true;
    preparation->ended = *ended;
    struct err ignored; /* the next child's start discards, or the job's end */
    if (preparation->killed)
        (void)preparation_discard(preparation, &ignored);
}

static int preparation_paths(struct preparation *preparation, const struct preparation_job *job,
                             const char *tokens_dir, struct err *err)
{
    struct prepare_request *request = &preparation->request;
    request->model_dir = mem_strdup(job->model_dir);
    request->error_path = io_join(tokens_dir, "error.json");
    request->progress_path = io_join(tokens_dir, "progress.json");
    request->cache_dir = io_join(job->data_dir, "cache");
    bool whole = request->model_dir != NULL && request->error_path != NULL &&
                 request->progress_path != NULL && request->cache_dir != NULL;
    if (request->file_count == 0) {
        request->random_path = io_join(tokens_dir, preparation_names[0].tokens);
        whole = whole && request->random_path != NULL;
    }
    for (size_t i = 0; i < request->file_count; i++) {
        struct prepare_file *file = &request->files[i];
        file->path = mem_printf("%s/files/%s", job->data_dir, preparation->file_ids[i]);
        file->name = mem_strdup(job->names[i]);
        file->out_path = io_join(tokens_dir, preparation_names[i].tokens);
        file->report_path = io_join(tokens_dir, preparation_names[i].report);
        whole = whole && file->path != NULL && file->name != NULL && file->out_path != NULL &&
                file->report_path != NULL;
    }
    return whole ? 0 : mem_fail(err, 0, "a prepare request");
}

static int preparation_launch(struct preparation *preparation, const struct preparation_job *job,
                              struct err *err)
{
    CLEANUP(mem_free_ptr) char *tokens_dir = io_join(job->job_dir, "tokens");
    CLEANUP(mem_free_ptr) char *request_path = mem_printf("%s/tokens/request.json", job->job_dir);
    CLEANUP(mem_free_ptr) char *log_path = mem_printf("%s/tokens/prepare.log", job->job_dir);
    if (tokens_dir == NULL || request_path == NULL || log_path == NULL)
        return mem_fail(err, strlen(job->job_dir), "a path");
    TRY(preparation_paths(preparation, job, tokens_dir, err));
    TRY(preparation_discard(preparation, err)); /* of a daemon that ended meanwhile */
    TRY(io_make_dirs(tokens_dir, 0700, err));
    TRY(prepare_request_write(request_path, &preparation->request, err));
    struct host_identity unused;
    const char *const argv[] = {job->worker_program, "--prepare", request_path, NULL};
    return launch_local_worker(preparation->host, argv, log_path, preparation_exit, preparation,
                               &preparation->child, &unused, err);
}

/* A spec of its own, by way of JSON: that is how specs are copied. */
static int preparation_copy_spec(const struct job_spec *spec, struct job_spec *ret_copy,
                                 struct err *err)
{
    CLEANUP(json_unref) json_t *text = job_spec_json(spec);
    if (text == NULL)
        return mem_fail(err, 0, "a job's specification");
    return job_spec_parse(text, ret_copy, err);
}

static int preparation_take_base(struct prepare_request *request,
                                 const struct preparation_base *base, struct err *err)
{
    request->checkpoint_dir = mem_strdup(base->checkpoint_dir);
    request->source_dir = mem_strdup(base->model_dir);
    if (request->checkpoint_dir == NULL || request->source_dir == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    return 0;
}

void preparation_base_done(struct preparation_base *base)
{
    mem_free(base->checkpoint_dir);
    mem_free(base->model_dir);
    *base = (struct preparation_base){.model_dir = NULL};
}

int preparation_start(struct host *host, const struct preparation_job *job,
                      struct preparation **ret_preparation, struct err *err)
{
    struct preparation *preparation = mem_new(1, sizeof *preparation);
    if (preparation == NULL)
        return mem_fail(err, sizeof *preparation, "a prepare child");
    preparation->host = host;
    preparation->data_dir = mem_strdup(job->data_dir);
    preparation->job_dir = mem_strdup(job->job_dir);
    struct prepare_request *request = &preparation->request;
    int rc = preparation->data_dir != NULL && preparation->job_dir != NULL
                 ? preparation_copy_spec(job->spec, &request->spec, err)
                 : mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (rc == 0 && job->base.checkpoint_dir != NULL)
        rc = preparation_take_base(request, &job->base, err);
    if (rc == 0) {
        request->file_count = (size_t)(request->spec.training_file[0] != '\0') +
                              (size_t)(request->spec.validation_file[0] != '\0');
        preparation->file_ids[0] = request->spec.training_file;
        preparation->file_ids[1] = request->spec.validation_file;
        rc = preparation_launch(preparation, job, err);
    }
    if (rc != 0) {
        preparation_free(preparation);
        return rc;
    }
    *ret_preparation = preparation;
    return 0;
}

void preparation_free(struct preparation *preparation)
{
    if (preparation == NULL)
        return;
    preparation->host->ops->forget(preparation->host, preparation->child);
    prepare_request_done(&preparation->request);
    mem_free(preparation->data_dir);
    mem_free(preparation->job_dir);
    mem_free(preparation);
}

bool preparation_is_over(const struct preparation *preparation)
{
    return preparation->over;
}

void preparation_kill(struct preparation *preparation)
{
    preparation->killed = true;
    if (!preparation->over)
        preparation->host->ops->signal(preparation->host, preparation->child, SIGKILL);
}

/* "line 57 column 14: invalid_json: what is wrong" for each fault of a report. */
static int preparation_list_faults(const json_t *faults, const char *separator, struct buf *out,
                                   struct err *err)
{
    for (size_t i = 0; i < json_array_size(faults); i++) {
        const json_t *fault = json_array_get(faults, i);
        int64_t line = 0, column = 0;
        const char *code = NULL, *message = NULL;
        TRY(json_get_i64(fault, "line", ERR_CORRUPT, &line, err));
        TRY(json_get_i64(fault, "column", ERR_CORRUPT, &column, err));
        TRY(json_get_string(fault, "code", ERR_CORRUPT, &code, err));
        TRY(json_get_string(fault, "message", ERR_CORRUPT, &message, err));
        buf_printf(out, "%sline %lld", i > 0 ? separator : "", (long long)line);
        if (column > 0)
            buf_printf(out, " column %lld", (long long)column);
        buf_printf(out, ": %s: %s", code, message);
    }
    if (out->bad == ERR_TOO_LARGE)
        out->bad = ERR_NONE; /* what fitted is what is told */
    return buf_error(out, err);
}

static int preparation_read_report(const char *path, struct preparation_file *ret_file,
                                   struct err *err)
{
    CLEANUP(json_unref) json_t *report = NULL;
    TRY(json_parse_own_file(path, PREPARATION_REPORT_BYTES, &report, err));
    struct preparation_file file = {.bad = false};
    int64_t bad = 0;
    TRY(json_get_i64(report, "lines", ERR_CORRUPT, &file.lines, err));
    TRY(json_get_i64(report, "kept", ERR_CORRUPT, &file.kept, err));
    TRY(json_get_i64(report, "dropped", ERR_CORRUPT, &file.dropped, err));
    TRY(json_get_i64(report, "tokens", ERR_CORRUPT, &file.tokens, err));
    TRY(json_get_i64(report, "trained_tokens", ERR_CORRUPT, &file.trained_tokens, err));
    TRY(json_get_i64(report, "overlength", ERR_CORRUPT, &file.overlength, err));
    TRY(json_get_i64(report, "tokens_cut", ERR_CORRUPT, &file.tokens_cut, err));
    TRY(json_get_i64(report, "bad", ERR_CORRUPT, &bad, err));
    file.bad = bad > 0 || file.kept == 0;
    file.hopeless = json_is_true(json_object_get(report, "hopeless"));
    if (file.bad) {
        CLEANUP(buf_done) struct buf text;
        buf_init(&text, PREPARATION_DETAILS_BYTES);
        TRY(preparation_list_faults(json_object_get(report, "faults"), "\n", &text, err));
        file.details = buf_steal(&text);
        if (file.details == NULL)
            return mem_fail(err, text.length, "a report");
    }
    *ret_file = file;
    return 0;
}

/* One sentence, then the first bad lines as far as they fit. */
static int preparation_bad_file(const struct preparation *preparation, size_t index,
                                const struct preparation_file *file, struct err *err)
{
    char lines[ERR_TEXT_MAX];
    size_t length = 0;
    for (const char *at = file->details; *at != '\0' && length + 4 < sizeof lines; at++) {
        if (*at == '\n') {
            lines[length++] = ';';
            lines[length++] = ' ';
        } else {
            lines[length++] = *at;
        }
    }
    lines[length] = '\0';
    return err_set_field(err, ERR_DATA, preparation_names[index].what,
                         "%s %s cannot be used (%lld of %lld lines kept): %s",
                         preparation_names[index].what, preparation->file_ids[index],
                         (long long)file->kept, (long long)file->lines,
                         length > 0 ? lines : "it holds no example to train on");
}

static int preparation_child_failed(const struct preparation *preparation, struct err *err)
{
    struct err unread;
    if (prepare_error_read(preparation->request.error_path, err, &unread) == 0)
        return -(int)err->code;
    if (preparation->ended.signal != 0)
        return err_set(err, ERR_INTERNAL, "the check of the files was ended by signal %d",
                       preparation->ended.signal);
    return err_set(err, ERR_INTERNAL, "the check of the files ended with exit status %d",
                   preparation->ended.status);
}

int preparation_verdict(const struct preparation *preparation, struct preparation_verdict *ret,
                        struct err *err)
{
    must(preparation->over);
    *ret = (struct preparation_verdict){.file_count = 0};
    if (preparation->ended.status != 0)
        return preparation_child_failed(preparation, err);
    for (size_t i = 0; i < preparation->request.file_count; i++) {
        TRY(preparation_read_report(preparation->request.files[i].report_path, &ret->files[i],
                                    err));
        ret->file_count = i + 1;
    }
    for (size_t i = 0; i < ret->file_count; i++)
        if (ret->files[i].bad)
            return preparation_bad_file(preparation, i, &ret->files[i], err);
    return 0;
}

void preparation_verdict_done(struct preparation_verdict *verdict)
{
    for (size_t i = 0; i < PREPARE_FILES_MAX; i++)
        mem_free(verdict->files[i].details);
    *verdict = (struct preparation_verdict){.file_count = 0};
}
