/* fuzz_dataset_prepare: a training file as a whole. Short limits bring long lines and cut examples
 * into reach. Report and token shard agree with each other. */
#include "common/dataset.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/tokenizer.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

enum { SEQ_LEN = 64, LINE_BYTES = 512, REPORT_BYTES = 1 << 20 };

static int64_t report_number(const json_t *report, const char *key)
{
    struct err err;
    int64_t number;
    must(json_get_i64(report, key, ERR_CORRUPT, &number, &err) == 0);
    must(number >= 0);
    return number;
}

static void report_check(const json_t *report, const struct dataset *dataset)
{
    int64_t dropped = report_number(report, "dropped"), coded = 0;
    const char *code;
    const json_t *value;
    json_object_foreach(json_object_get(report, "codes"), code, value) coded +=
        json_integer_value(value);
    must(coded == dropped && report_number(report, "bad") <= dropped);
    must(report_number(report, "lines") == report_number(report, "kept") + dropped);
    must(report_number(report, "examples") == dataset->examples);
    must(report_number(report, "kept") <= dataset->examples);
    must(report_number(report, "tokens") == dataset->tokens);
    must(report_number(report, "trained_tokens") == dataset->trained_tokens);
    size_t listed = json_array_size(json_object_get(report, "faults"));
    must(listed == (dropped < DATASET_FAULTS_MAX ? (size_t)dropped : DATASET_FAULTS_MAX));
    for (int64_t e = 0; e < dataset->examples; e++) {
        int64_t length = dataset->offsets[e + 1] - dataset->offsets[e];
        must(length > 0 && length <= SEQ_LEN && dataset->trained[dataset->offsets[e]] == 0);
    }
}

static void prepare_try(const uint8_t *data, size_t size, enum job_overlength overlength)
{
    struct err err;
    char out[128], report_path[128];
    (void)snprintf(out, sizeof out, "%s", fuzz_path("train.tok"));
    (void)snprintf(report_path, sizeof report_path, "%s", fuzz_path("report.json"));
    const struct dataset_request request = {
        .path = fuzz_file(data, size),
        .model_dir = fuzz_folder(),
        .out_path = out,
        .report_path = report_path,
        .seq_len = SEQ_LEN,
        .overlength = overlength,
        .train_on = JOB_train_on_ASSISTANT,
        .line_bytes_max = LINE_BYTES,
        .threads = 1,
    };
    must(dataset_prepare(&request, &err) == 0); /* bad lines are in the report */
    CLEANUP(json_unref) json_t *report = NULL;
    struct dataset dataset;
    must(json_parse_file(report_path, REPORT_BYTES, &report, &err) == 0);
    must(dataset_open(out, &dataset, &err) == 0);
    report_check(report, &dataset);
    fuzz_taken += dataset.examples > 0;
    dataset_close(&dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool prepared;
    if (!prepared) {
        struct err err;
        must(tokenizer_write_builtin(fuzz_folder(), &err) == 0);
        prepared = true;
    }
    int64_t live = mem_live();
    prepare_try(data, size, (enum job_overlength)(size % JOB_overlength_COUNT));
    must(mem_live() == live);
    return 0;
}
