/* dataset_preview: the first rows of a training file as the model will see them: tokens, roles,
 * what is trained, where they are cut.
 *
 *   {"object": "fine_tuning.preview", "template": "qwen3", "seq_len": n, "more": bool, "rows": [
 *     {"line": 1, "kept": true, "tokens": n, "trained_tokens": n, "used_tokens": n, "sequences": n,
 *      "roles": ["system", "user", "assistant"],
 *      "runs": [{"trained": false, "tokens": n, "text": "..."}, ...], "ids": [...]},
 *     {"line": 2, "kept": false, "code": "invalid_json", "column": n, "message": "..."}, ...]}
 *
 * used_tokens are those that training reads, in so many sequences (more than one: chunks). runs are
 * neighbours of one kind, with special tokens by their texts; the longest text shown is
 * DATASET_PREVIEW_TEXT bytes, the most runs and ids DATASET_PREVIEW_RUNS and DATASET_PREVIEW_IDS,
 * and what is left out shows by the counts. more: the file goes on. */
#pragma once
#include "common/dataset.h"
#include "common/json.h"

enum {
    DATASET_PREVIEW_ROWS = 5,
    DATASET_PREVIEW_ROWS_MAX = 50,
    DATASET_PREVIEW_TEXT = 1000,
    DATASET_PREVIEW_RUNS = 16,
    DATASET_PREVIEW_IDS = 256
};

/* New reference. out_path and report_path of the request are not used. */
int dataset_preview(const struct dataset_request *request, int64_t rows, json_t **ret,
                    struct err *err);
