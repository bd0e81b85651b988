/* prepare_request: JSON in and out. Our own file: anything odd in it is ERR_CORRUPT. */
#include "common/prepare_request.h"

#include "common/io.h"
#include "common/json.h"
#include "common/mem.h"

static int prepare_copy(const json_t *object, const char *key, char **ret_text, struct err *err)
{
    const char *text = NULL;
    TRY(json_get_string(object, key, ERR_CORRUPT, &text, err));
    *ret_text = mem_strdup(text);
    return *ret_text == NULL ? mem_fail(err, 0, "a path") : 0;
}

static int prepare_request_fill(const json_t *root, struct prepare_request *request,
                                struct err *err)
{
    TRY(prepare_copy(root, "model_dir", &request->model_dir, err));
    TRY(prepare_copy(root, "error_path", &request->error_path, err));
    TRY(prepare_copy(root, "progress_path", &request->progress_path, err));
    TRY(prepare_copy(root, "cache_dir", &request->cache_dir, err));
    if (json_object_get(root, "checkpoint_dir") != NULL) {
        TRY(prepare_copy(root, "checkpoint_dir", &request->checkpoint_dir, err));
        TRY(prepare_copy(root, "source_dir", &request->source_dir, err));
    }
    const json_t *files = json_object_get(root, "files");
    size_t count = json_array_size(files);
    if (count > PREPARE_FILES_MAX || (count == 0 && !json_object_get(root, "random_path")))
        return err_set(err, ERR_CORRUPT, "\"files\" must be a list of 1 or 2 files");
    if (count == 0)
        TRY(prepare_copy(root, "random_path", &request->random_path, err));
    request->file_count = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *file = json_array_get(files, i);
        TRY(prepare_copy(file, "path", &request->files[i].path, err));
        TRY(prepare_copy(file, "name", &request->files[i].name, err));
        TRY(prepare_copy(file, "out_path", &request->files[i].out_path, err));
        TRY(prepare_copy(file, "report_path", &request->files[i].report_path, err));
    }
    return job_spec_parse(json_object_get(root, "spec"), &request->spec, err);
}

int prepare_request_read(const char *path, struct prepare_request *ret_request, struct err *err)
{
    CLEANUP(json_unref) json_t *root = NULL;
    TRY(json_parse_own_file(path, (size_t)LIMIT_JSON_BODY_BYTES, &root, err));
    struct prepare_request request = {.file_count = 0};
    int rc = prepare_request_fill(root, &request, err);
    if (rc != 0) {
        prepare_request_done(&request);
        return err_wrap(err, rc, "%s", path);
    }
    *ret_request = request;
    return 0;
}

int prepare_request_write(const char *path, const struct prepare_request *request, struct err *err)
{
    CLEANUP(json_unref) json_t *files = json_array();
    for (size_t i = 0; i < request->file_count; i++) {
        const struct prepare_file *file = &request->files[i];
        json_t *row = json_pack("{s:s, s:s, s:s, s:s}", "path", file->path, "name", file->name,
                                "out_path", file->out_path, "report_path", file->report_path);
        if (json_array_append_new(files, row) != 0)
            return mem_fail(err, 0, "a prepare request");
    }
    CLEANUP(json_unref)
    json_t *root =
        json_pack("{s:s, s:o, s:O, s:s, s:s, s:s, s:s*, s:s*, s:s*}", "model_dir",
                  request->model_dir, "spec", job_spec_json(&request->spec), "files", files,
                  "error_path", request->error_path, "progress_path", request->progress_path,
                  "cache_dir", request->cache_dir, "random_path", request->random_path,
                  "checkpoint_dir", request->checkpoint_dir, "source_dir", request->source_dir);
    if (root == NULL)
        return mem_fail(err, 0, "a prepare request");
    return json_write_scratch(path, root, err);
}

void prepare_request_done(struct prepare_request *request)
{
    mem_free(request->model_dir);
    mem_free(request->checkpoint_dir);
    mem_free(request->source_dir);
    mem_free(request->error_path);
    mem_free(request->progress_path);
    mem_free(request->cache_dir);
    mem_free(request->random_path);
    for (size_t i = 0; i < PREPARE_FILES_MAX; i++) {
        mem_free(request->files[i].path);
        mem_free(request->files[i].name);
        mem_free(request->files[i].out_path);
        mem_free(request->files[i].report_path);
    }
    job_spec_done(&request->spec);
    *request = (struct prepare_request){.file_count = 0};
}

int prepare_error_write(const char *path, const struct err *failure, struct err *err)
{
    CLEANUP(json_unref)
    json_t *root =
        json_pack("{s:s, s:s}", "code", err_code_name(failure->code), "message", failure->text);
    if (root == NULL)
        return mem_fail(err, 0, "an error report");
    return json_write_file(path, root, 0600, err);
}

int prepare_error_read(const char *path, struct err *ret_failure, struct err *err)
{
    CLEANUP(json_unref) json_t *root = NULL;
    TRY(json_parse_own_file(path, (size_t)LIMIT_JSON_BODY_BYTES, &root, err));
    const char *code = NULL, *message = NULL;
    TRY(json_get_string(root, "code", ERR_CORRUPT, &code, err));
    TRY(json_get_string(root, "message", ERR_CORRUPT, &message, err));
    enum err_code known = err_code_parse(code);
    *ret_failure = (struct err){.code = ERR_NONE};
    (void)err_set(ret_failure, known != ERR_NONE ? known : ERR_INTERNAL, "%s", message);
    return 0;
}
