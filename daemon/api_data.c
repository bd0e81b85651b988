/* api_data: a job's `ithaca.data`: the counts, the histogram of lengths and the share over seq_len
 * of its training file. It is what the prepare child wrote (common/dataset.h), less the list of
 * faults, which is in the file's status_details and the job's error. */
#include "common/mem.h"
#include "daemon/api.h"
#include "daemon/settings.h"

enum { API_DATA_BYTES = 4 << 20 };

/* How far the preparation is, {"preparing": {...}}, or null. */
static json_t *api_data_progress(const struct api *api, const char *job_id)
{
    CLEANUP(mem_free_ptr)
    char *path = mem_printf("%s/jobs/%s/tokens/progress.json", api->settings->data_dir, job_id);
    CLEANUP(json_unref) json_t *progress = NULL;
    struct err absent;
    if (path == NULL || json_parse_own_file(path, API_DATA_BYTES, &progress, &absent) != 0)
        return json_null();
    return json_pack("{s:O}", "preparing", progress);
}

json_t *api_data_json(const struct api *api, const char *job_id)
{
    static const char *const taken[] = {
        "lines",      "kept",    "dropped",    "bad",      "examples", "tokens",   "trained_tokens",
        "overlength", "longest", "tokens_cut", "template", "codes",    "histogram"};
    CLEANUP(mem_free_ptr)
    char *path = mem_printf("%s/jobs/%s/tokens/report.json", api->settings->data_dir, job_id);
    CLEANUP(json_unref) json_t *report = NULL;
    struct err absent;
    if (path == NULL || json_parse_own_file(path, API_DATA_BYTES, &report, &absent) != 0)
        return api_data_progress(api, job_id);
    json_t *data = json_object();
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        (void)json_object_set(data, taken[i], json_object_get(report, taken[i]));
    double measured = 0; /* rows that have a length */
    const json_t *histogram = json_object_get(report, "histogram");
    for (size_t i = 0; i < json_array_size(histogram); i++)
        measured += json_number_value(json_array_get(json_array_get(histogram, i), 1));
    double over = json_number_value(json_object_get(report, "overlength"));
    (void)json_object_set_new(data, "overlength_share",
                              json_number(measured > 0 ? over / measured : 0));
    return data;
}
