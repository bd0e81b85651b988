/* preview: see the header. */
#include "daemon/preview.h"

#include "common/dataset_preview.h"
#include "common/job_spec.h"
#include "common/mem.h"
#include "daemon/access.h"
#include "daemon/chat.h"
#include "daemon/http.h"
#include "daemon/settings.h"

static int preview_answer(struct http_request *request, const char *id, int64_t created_ms,
                          const char *model, const json_t *output, struct err *err)
{
    (void)id; /* nothing is kept that could be asked for */
    (void)created_ms;
    (void)model;
    (void)err;
    http_answer_json(request, 200, json_incref((json_t *)output));
    return 0;
}

static const struct chat_kind preview_kind = {.role = "--preview",
                                              .prefix = "preview-",
                                              .late = "its rows are large: ask for fewer",
                                              .answer = preview_answer};

/* Takes "rows" out of the body. */
static int preview_take_rows(json_t *body, int64_t *ret_rows, struct err *err)
{
    const json_t *rows = json_object_get(body, "rows");
    *ret_rows = DATASET_PREVIEW_ROWS;
    if (rows != NULL && !json_is_null(rows))
        *ret_rows = json_is_integer(rows) ? json_integer_value(rows) : 0;
    (void)json_object_del(body, "rows"); /* it may not be there */
    if (*ret_rows < 1 || *ret_rows > DATASET_PREVIEW_ROWS_MAX)
        return err_set_field(err, ERR_INVALID_VALUE, "rows", "rows must be 1 to %d",
                             DATASET_PREVIEW_ROWS_MAX);
    return 0;
}

int preview_create(struct api *api, struct http_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *body = NULL;
    CLEANUP(job_spec_done) struct job_spec spec = {.metadata = NULL};
    CLEANUP(mem_free_ptr) char *name = NULL;
    int64_t rows = 0;
    TRY(api_read_body(request, &body, err));
    TRY(preview_take_rows(body, &rows, err));
    TRY(job_spec_parse_legal(body, &spec, err));
    int rc = access_check_file(api->store, access_viewer(request), spec.training_file, err);
    if (rc == 0)
        rc = store_file_name(api->store, spec.training_file, &name, err);
    if (rc == -ERR_NOT_FOUND)
        return err_set_field(err, ERR_NOT_FOUND, "training_file", "there is no file \"%.64s\"",
                             spec.training_file);
    TRY(rc);
    CLEANUP(mem_free_ptr)
    char *path = mem_printf("%s/files/%s", api->settings->data_dir, spec.training_file);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    CLEANUP(json_unref)
    json_t *input = json_pack("{s:s, s:s, s:I, s:o}", "path", path, "name", name, "rows",
                              (json_int_t)rows, "spec", job_spec_json(&spec));
    if (input == NULL)
        return mem_fail(err, 0, "a preview");
    return chat_ask(api, request, &preview_kind, spec.model, input, err);
}
