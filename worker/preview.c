/* preview: see preview.h. */
#include "worker/preview.h"

#include "common/dataset_preview.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/model_config.h"

int preview_main(const char *model_dir, FILE *request, FILE *answer, struct err *err)
{
    CLEANUP(json_unref) json_t *json = NULL;
    CLEANUP(json_unref) json_t *preview = NULL;
    CLEANUP(job_spec_done) struct job_spec spec = {.metadata = NULL};
    CLEANUP(buf_done) struct buf out;
    struct dataset_request dataset = {.model_dir = model_dir, .threads = 1};
    struct model_config config;
    int64_t rows = 0;
    buf_init(&out, (size_t)16 * LIMIT_JSON_BODY_BYTES);
    TRY(json_parse_stream(request, LIMIT_JSON_BODY_BYTES, "the request", &json, err));
    TRY(json_get_string(json, "path", ERR_BAD_REQUEST, &dataset.path, err));
    TRY(json_get_string(json, "name", ERR_BAD_REQUEST, &dataset.name, err));
    TRY(json_get_i64(json, "rows", ERR_BAD_REQUEST, &rows, err));
    if (rows < 1 || rows > DATASET_PREVIEW_ROWS_MAX)
        return err_set(err, ERR_BAD_REQUEST, "rows must be 1 to %d", DATASET_PREVIEW_ROWS_MAX);
    TRY(job_spec_parse(json_object_get(json, "spec"), &spec, err));
    TRY(model_config_load(model_dir, &config, err));
    dataset.seq_len = spec.seq_len;
    dataset.overlength = spec.overlength;
    dataset.train_on = spec.train_on;
    dataset.chat_template = spec.chat_template;
    dataset.vocab = config.vocab_size;
    TRY(dataset_preview(&dataset, rows, &preview, err));
    TRY(json_print(preview, &out, err));
    if (fprintf(answer, "%s\n", buf_str(&out)) < 0 || fflush(answer) != 0)
        return err_set(err, ERR_IO, "the answer could not be written");
    return 0;
}
