/* fuzz_prepare_request: what the prepare child is asked, and the error that it leaves. Both are the
 * same when they are written and read again. */
#include "common/mem.h"
#include "common/must.h"
#include "common/prepare_request.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void prepare_survives(const struct prepare_request *request)
{
    struct err err;
    struct prepare_request again;
    must(prepare_request_write(fuzz_path("request.json"), request, &err) == 0);
    must(prepare_request_read(fuzz_path("request.json"), &again, &err) == 0);
    must(strcmp(request->model_dir, again.model_dir) == 0);
    must(strcmp(request->error_path, again.error_path) == 0);
    must(request->file_count == again.file_count);
    for (size_t i = 0; i < request->file_count; i++) {
        must(strcmp(request->files[i].path, again.files[i].path) == 0);
        must(strcmp(request->files[i].name, again.files[i].name) == 0);
        must(strcmp(request->files[i].out_path, again.files[i].out_path) == 0);
        must(strcmp(request->files[i].report_path, again.files[i].report_path) == 0);
    }
    CLEANUP(json_unref) json_t *first = job_spec_json(&request->spec);
    CLEANUP(json_unref) json_t *second = job_spec_json(&again.spec);
    must(first != NULL && json_equal(first, second));
    prepare_request_done(&again);
}

static void prepare_error(const uint8_t *data, size_t size)
{
    struct err err = {.code = ERR_NONE}, failure, again;
    int rc = prepare_error_read(fuzz_file(data, size), &failure, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        return;
    }
    must(prepare_error_write(fuzz_path("error.json"), &failure, &err) == 0);
    must(prepare_error_read(fuzz_path("error.json"), &again, &err) == 0);
    must(failure.code == again.code && strcmp(failure.text, again.text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    struct err err = {.code = ERR_NONE};
    struct prepare_request request;
    int rc = prepare_request_read(fuzz_file(data, size), &request, &err);
    if (rc == 0) {
        fuzz_taken++;
        prepare_survives(&request);
        prepare_request_done(&request);
    } else {
        fuzz_refused(rc, &err);
    }
    prepare_error(data, size);
    must(mem_live() == live);
    return 0;
}
