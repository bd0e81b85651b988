/* dataset_report: see the header; lengths are counted in buckets by powers of two. */
#include "common/dataset_report.h"

#include "common/dataset.h"
#include "common/mem.h"

#include <string.h>

/* Refusals that are no mistakes of the row itself; all others are. */
static const struct {
    const char *code;
    bool harmless; /* nothing to train on: the file stays usable */
    bool of_job;   /* another model or other settings may keep the row */
} dataset_lenient[] = {
    {.code = "blank_line", .harmless = true},
    {.code = "empty_messages", .harmless = true},
    {.code = "no_trained_tokens", .harmless = true, .of_job = true},
    {.code = "overlength", .of_job = true},
    {.code = "unserved_message", .of_job = true},
    {.code = "unserved_ids", .of_job = true},
};

int dataset_report_init(struct dataset_report *report, struct err *err)
{
    *report = (struct dataset_report){
        .codes = json_object(), .faults = json_array(), .empty = json_array()};
    return report->codes != NULL && report->faults != NULL && report->empty != NULL
               ? 0
               : mem_fail(err, 256, "a report");
}

void dataset_report_done(struct dataset_report *report)
{
    json_decref(report->codes);
    json_decref(report->faults);
    json_decref(report->empty);
    *report = (struct dataset_report){.codes = NULL};
}

int dataset_report_refuse(struct dataset_report *report, int64_t line,
                          const struct example_fault *fault, struct err *err)
{
    bool harmless = false, of_job = false;
    for (size_t i = 0; i < sizeof dataset_lenient / sizeof dataset_lenient[0]; i++)
        if (strcmp(dataset_lenient[i].code, fault->code) == 0) {
            harmless = dataset_lenient[i].harmless;
            of_job = dataset_lenient[i].of_job;
        }
    report->bad += !harmless;
    report->bad_always += !harmless && !of_job;
    report->of_job += of_job;
    json_int_t count = json_integer_value(json_object_get(report->codes, fault->code));
    int lost = json_object_set_new(report->codes, fault->code, json_integer(count + 1));
    json_t *list = harmless ? report->empty : report->faults;
    if (json_array_size(list) < DATASET_FAULTS_MAX)
        lost |= json_array_append_new(list, json_pack("{s:I, s:I, s:s, s:s}", "line",
                                                      (json_int_t)(line + fault->line), "column",
                                                      (json_int_t)fault->column, "code",
                                                      fault->code, "message", fault->text));
    return lost == 0 ? 0 : mem_fail(err, sizeof *fault, "a report");
}

void dataset_report_measure(struct dataset_report *report, int64_t length, int64_t seq_len)
{
    int bucket = 0;
    while (bucket < DATASET_BUCKETS - 1 && ((int64_t)1 << bucket) < length)
        bucket++;
    report->histogram[bucket]++;
    report->overlength += length > seq_len;
    if (length > report->longest)
        report->longest = length;
}

json_t *dataset_report_json(const struct dataset_report *report, const char *template_name)
{
    json_t *histogram = json_array();
    json_t *faults = json_copy(report->faults);
    bool hopeless = report->bad_always > 0 || (report->kept == 0 && report->of_job == 0);
    int lost = 0;
    for (size_t i = 0;
         json_array_size(faults) < DATASET_FAULTS_MAX && i < json_array_size(report->empty); i++)
        lost |= json_array_append(faults, json_array_get(report->empty, i));
    for (int bucket = 0; bucket < DATASET_BUCKETS; bucket++)
        if (report->histogram[bucket] > 0)
            lost |=
                json_array_append_new(histogram, json_pack("[I, I]", (json_int_t)1 << bucket,
                                                           (json_int_t)report->histogram[bucket]));
    json_t *json = json_pack(
        "{s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:O, s:o, s:o}", "lines",
        (json_int_t)report->lines, "kept", (json_int_t)report->kept, "dropped",
        (json_int_t)(report->lines - report->kept), "bad", (json_int_t)report->bad, "hopeless",
        (int)hopeless, "examples", (json_int_t)report->examples, "tokens",
        (json_int_t)report->tokens, "trained_tokens", (json_int_t)report->trained_tokens,
        "overlength", (json_int_t)report->overlength, "longest", (json_int_t)report->longest,
        "tokens_cut", (json_int_t)report->tokens_cut, "template", template_name, "codes",
        report->codes, "faults", faults, "histogram", histogram);
    if (lost == 0)
        return json;
    json_decref(json);
    return NULL;
}
