/* prepare: see prepare.h. The model's files are checked first: a shard that is missing or damaged
 * is told before any rank holds a device (field cases R20, R21). */
#include "worker/prepare.h"

#include "common/dataset.h"
#include "common/mem.h"
#include "common/model_config.h"
#include "common/prepare_request.h"
#include "worker/weights.h"

#include <stdio.h>

static int prepare_files(const struct prepare_request *request, struct err *err)
{
    struct model_config config;
    TRY(model_config_load(request->model_dir, &config, err));
    for (size_t i = 0; i < request->file_count; i++) {
        const struct prepare_file *file = &request->files[i];
        struct dataset_request dataset = {.path = file->path,
                                          .name = file->name,
                                          .vocab = config.vocab_size,
                                          .model_dir = request->model_dir,
                                          .out_path = file->out_path,
                                          .report_path = file->report_path,
                                          .seq_len = request->spec.seq_len,
                                          .overlength = request->spec.overlength,
                                          .train_on = request->spec.train_on,
                                          .chat_template = request->spec.chat_template};
        printf("preparing file %zu of %zu\n", i + 1, request->file_count);
        (void)fflush(stdout);
        TRY(dataset_prepare(&dataset, err));
    }
    return 0;
}

int prepare_main(const char *request_path, struct err *err)
{
    CLEANUP(prepare_request_done) struct prepare_request request = {0};
    TRY(prepare_request_read(request_path, &request, err));
    int rc = weights_check_folder(request.model_dir, err);
    if (rc == 0)
        rc = prepare_files(&request, err);
    struct err ignored = {0};
    if (rc != 0) /* the exit status still tells, should this fail too */
        (void)prepare_error_write(request.error_path, err, &ignored);
    return rc;
}
