/* api_delete: deletes a job. What it frees is counted first, some files a turn of the loop: a job
 * may have left thousands, on a disk that is slow to tell. Then its folder goes to the trash and
 * its rows go, in one turn. */
#include "common/mem.h"
#include "daemon/api.h"
#include "daemon/api_turns.h"
#include "daemon/coordinator.h"
#include "daemon/files.h"
#include "daemon/folder_walk.h"
#include "daemon/housekeeping.h"
#include "daemon/http.h"
#include "daemon/settings.h"
#include "daemon/trash.h"

#include <stdio.h>
#include <sys/stat.h>

enum { DELETE_FILES = 100 }; /* looked at a turn: a millisecond, where the disk must be asked */

struct api_delete {
    struct api *api;
    struct api_turns turns;
    char id[LIMIT_ID_BYTES + 1];          /* the job's */
    char result_file[LIMIT_ID_BYTES + 1]; /* "": it has none */
    struct folder_walk *walk;             /* over its folder; NULL: none that can be looked at */
    int64_t bytes;                        /* of disk, so far */
};

static void delete_end(void *context)
{
    struct api_delete *delete = context;
    api_turns_done(&delete->turns);
    folder_walk_free(delete->walk);
    mem_free(delete);
}

/* Rows first become unreachable, then the folder follows; what cannot be moved is as it was. */
int api_delete_job(struct api *api, const char *id, struct err *err)
{
    const char *data_dir = api->settings->data_dir;
    struct err ignored;
    CLEANUP(mem_free_ptr) char *folder = mem_printf("%s/jobs/%s", data_dir, id);
    if (folder == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(trash_put(data_dir, folder, err));
    int rc = store_job_delete(api->store, id, err);
    if (rc != 0)
        (void)trash_take_back(data_dir, folder, &ignored); /* the error before it counts */
    return rc;
}

static int delete_finish(struct api_delete *delete, struct err *err)
{
    struct api *api = delete->api;
    char owner[LIMIT_NAME_BYTES + 1];
    /* Meanwhile it may have been deleted, or resumed. */
    TRY(store_job_owner(api->store, delete->id, owner, err));
    TRY(coordinator_check_forgotten(api->coordinator, delete->id, err));
    TRY(api_delete_job(api, delete->id, err));
    struct err gone; /* it may have been deleted before */
    if (delete->result_file[0] != '\0')
        (void)files_remove(api->store, api->settings->data_dir, delete->result_file, &gone);
    housekeeping_wake(api->housekeeping);
    http_answer_json(delete->turns.request, 200,
                     json_pack("{s:s, s:s, s:b, s:{s:I}}", "id", delete->id, "object",
                               "fine_tuning.job", "deleted", 1, "ithaca", "freed_bytes",
                               (json_int_t) delete->bytes));
    return 0;
}

/* Counts some files; whether those were all. */
static bool delete_count(struct api_delete *delete)
{
    struct folder_walk_entry entry;
    for (int i = 0; i < DELETE_FILES; i++) {
        if (delete->walk == NULL || !folder_walk_next(delete->walk, &entry))
            return true;
        delete->bytes += entry.info->st_blocks * 512; /* the unit of st_blocks */
    }
    return false;
}

static int delete_turn(void *context, bool *ret_done, struct err *err)
{
    struct api_delete *delete = context;
    *ret_done = delete_count(delete);
    return *ret_done ? delete_finish(delete, err) : 0;
}

static int delete_take_job(void *context, const struct store_job *job, struct err *err)
{
    struct api_delete *delete = context;
    (void)err;
    (void)snprintf(delete->id, sizeof delete->id, "%s", job->id);
    (void)snprintf(delete->result_file, sizeof delete->result_file, "%s", job->result_file);
    return 0;
}

/* What cannot be looked at counts nothing. */
static int delete_begin(struct api_delete *delete, struct err *err)
{
    const char *data_dir = delete->api->settings->data_dir;
    CLEANUP(mem_free_ptr) char *folder = mem_printf("%s/jobs/%s", data_dir, delete->id);
    CLEANUP(mem_free_ptr) char *result = files_path(data_dir, delete->result_file);
    struct stat info;
    if (folder == NULL || result == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (delete->result_file[0] != '\0' && lstat(result, &info) == 0)
        delete->bytes = info.st_blocks * 512;
    int rc = folder_walk_new(folder, &delete->walk, err);
    return rc == -ERR_NOMEM ? rc : 0;
}

int api_delete(struct api *api, struct http_request *request, struct err *err)
{
    const char *id = http_request_route(request)->name;
    struct api_delete *delete = mem_new(1, sizeof *delete);
    if (delete == NULL)
        return mem_fail(err, sizeof *delete, "a request that waits");
    *delete = (struct api_delete){
        .api = api, .turns = {.request = request, .turn = delete_turn, .context = delete}};
    http_request_on_end(request, delete_end, delete);
    TRY(store_job_get(api->store, id, delete_take_job, delete, err));
    TRY(coordinator_check_forgotten(api->coordinator, id, err));
    TRY(delete_begin(delete, err));
    return api_turns_start(&delete->turns, api->loop, err);
}
