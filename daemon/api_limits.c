/* api_limits: what is refused beyond. The ranges of a job's fields are in its schema. */
#include "common/limits.h"

#include "daemon/api.h"
#include "daemon/coordinator.h"
#include "daemon/disk_budget.h"
#include "daemon/http.h"
#include "daemon/settings.h"
#include "daemon/uploads.h"

int api_limits(struct api *api, struct http_request *request, struct err *err)
{
    const struct settings *settings = api->settings;
    (void)err;
    http_answer_json(
        request, 200,
        json_pack(
            "{s:s, s:{s:i, s:I, s:I, s:i, s:i, s:i, s:i, s:i}, s:{s:I, s:i, s:i, s:i, s:i, "
            "s:I}, s:{s:i, s:i, s:i}, s:{s:i, s:i, s:I, s:I}}",
            "object", "fine_tuning.limits", "jobs", "unfinished", LIMIT_JOBS_UNFINISHED, "gpus",
            (json_int_t)coordinator_slots(api->coordinator), "seq_len", (json_int_t)LIMIT_SEQ_LEN,
            "epochs", LIMIT_EPOCHS, "metadata_pairs", LIMIT_METADATA_PAIRS, "metadata_key_chars",
            LIMIT_METADATA_KEY_CHARS, "metadata_value_chars", LIMIT_METADATA_VALUE_CHARS,
            "suffix_bytes", LIMIT_SUFFIX_BYTES, "files", "bytes",
            (json_int_t)settings->upload_bytes_max, "line_bytes", LIMIT_LINE_BYTES, "part_bytes",
            UPLOADS_PART_BYTES, "parts", UPLOADS_PARTS_MAX, "upload_lifetime_s", UPLOADS_LIFETIME_S,
            "free_bytes", (json_int_t)disk_budget_free(settings->data_dir), "experiments",
            "unfinished", LIMIT_EXPERIMENTS_OPEN, "points", LIMIT_EXPERIMENT_POINTS, "searches",
            LIMIT_EXPERIMENT_SEARCHES, "requests", "body_bytes", LIMIT_JSON_BODY_BYTES, "page_rows",
            LIMIT_PAGE_ROWS, "connections", (json_int_t)settings->connections_max, "streams",
            (json_int_t)settings->streams_max));
    return 0;
}
