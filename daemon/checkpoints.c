/* checkpoints: see checkpoints.h. A job keeps few (save.keep), so each question reads the folder.
 */
#include "daemon/checkpoints.h"

#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *checkpoints_tail(const char *job_id)
{
    const char *dash = strchr(job_id, '-');
    return dash != NULL ? dash + 1 : job_id;
}

void checkpoints_id(const char *job_id, int64_t step, char ret_id[LIMIT_ID_BYTES + 1])
{
    (void)snprintf(ret_id, LIMIT_ID_BYTES + 1, "ftckpt_%.30s_%lld", checkpoints_tail(job_id),
                   (long long)step);
}

int64_t checkpoints_step(const char *job_id, const char *id)
{
    const char *last = strrchr(id, '_');
    char wanted[LIMIT_ID_BYTES + 1];
    if (last == NULL || last[1] < '0' || last[1] > '9' || strlen(last) > 18)
        return -1;
    int64_t step = strtoll(last + 1, NULL, 10);
    checkpoints_id(job_id, step, wanted); /* one spelling only */
    return strcmp(wanted, id) == 0 ? step : -1;
}

bool checkpoints_is_id(const char *id, char ret_job_id[LIMIT_ID_BYTES + 1], int64_t *ret_step)
{
    static const char begin[] = "ftckpt_";
    const char *last = strrchr(id, '_');
    if (strncmp(id, begin, strlen(begin)) != 0 || last < id + strlen(begin))
        return false;
    const char *tail = id + strlen(begin);
    (void)snprintf(ret_job_id, LIMIT_ID_BYTES + 1, "ftjob-%.*s", (int)(last - tail), tail);
    *ret_step = checkpoints_step(ret_job_id, id);
    return *ret_step >= 0;
}

int checkpoints_each(const char *job_dir, checkpoints_fn *each, void *context, struct err *err)
{
    CLEANUP(mem_free_ptr) int64_t *steps = NULL;
    size_t count = 0;
    TRY(checkpoint_list(job_dir, &steps, &count, err));
    for (size_t i = 0; i < count; i++) {
        struct checkpoint_manifest manifest;
        CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(job_dir, steps[i]);
        if (dir == NULL)
            return mem_fail(err, strlen(job_dir), "a path");
        int rc = checkpoint_manifest_read(dir, &manifest, err);
        if (rc == -ERR_NOMEM)
            return rc;
        if (rc == 0) /* else it is no checkpoint */
            TRY(each(context, &manifest, err));
    }
    return 0;
}

enum { CHECKPOINTS_FOUND = 1 }; /* ends a walk: no error's code */

static int checkpoints_take_first(void *context, const struct checkpoint_manifest *manifest,
                                  struct err *err)
{
    (void)err;
    *(int64_t *)context = manifest->progress.step;
    return CHECKPOINTS_FOUND;
}

int checkpoints_newest(const char *job_dir, int64_t *ret_step, struct err *err)
{
    int64_t step = -1;
    int rc = checkpoints_each(job_dir, checkpoints_take_first, &step, err);
    if (rc != 0 && rc != CHECKPOINTS_FOUND)
        return rc;
    *ret_step = step;
    return 0;
}
