/* mem_report: see mem_report.h. */
#include "common/mem_report.h"

#include "common/must.h"

#define REPORT_GIB(bytes) ((double)(bytes)*0x1p-30)

const char *mem_backend_name(enum mem_backend backend)
{
    static const char *const names[MEM_BACKEND_COUNT] = {[MEM_BACKEND_CPU] = "cpu",
                                                         [MEM_BACKEND_CUDA] = "cuda",
                                                         [MEM_BACKEND_CUDA_OWN] = "cuda_own"};
    must((unsigned)backend < MEM_BACKEND_COUNT);
    return names[backend];
}

static json_t *report_limit(int64_t bytes)
{
    return bytes > 0 ? json_integer(bytes) : json_null();
}

static json_t *report_peak(const struct mem_plan *plan)
{
    json_t *peak = json_object();
    for (int c = 0; c < MEM_CATEGORY_COUNT; c++)
        (void)json_object_set_new(peak, mem_category_name((enum mem_category)c),
                                  json_integer(plan->peak_category[c])); /* checked at the end */
    (void)json_object_set_new(peak, "unused", json_integer(plan->gap_bytes));
    if (json_object_size(peak) == MEM_CATEGORY_COUNT + 1)
        return peak;
    json_decref(peak);
    return NULL;
}

static json_t *report_phases(const struct mem_plan *plan)
{
    json_t *phases = json_array();
    int bad = phases == NULL;
    for (int p = 0; p < MEM_PHASE_COUNT; p++)
        if (plan->phases >> p & 1)
            bad |= json_array_append_new(
                phases, json_pack("{s:s, s:I}", "phase", mem_phase_name((enum mem_phase)p), "bytes",
                                  (json_int_t)plan->phase_bytes[p]));
    if (bad == 0)
        return phases;
    json_decref(phases);
    return NULL;
}

static json_t *report_buffer(const struct mem_buffer *b)
{
    return json_pack("{s:s, s:o, s:s, s:s, s:I, s:I, s:s, s:s}", "name", mem_name_text(b->name),
                     "index", b->index == MEM_AT_WORK ? json_null() : json_integer(b->index),
                     "category", mem_category_name(mem_name_category(b->name)), "arena",
                     mem_arena_name(b->arena), "offset", (json_int_t)b->offset, "bytes",
                     (json_int_t)b->bytes, "first", mem_phase_name(mem_buffer_first(b)), "last",
                     mem_phase_name(mem_buffer_last(b)));
}

static json_t *report_buffers(const struct mem_plan *plan)
{
    json_t *buffers = json_array();
    int bad = buffers == NULL;
    for (int64_t i = 0; i < plan->count; i++)
        bad |= json_array_append_new(buffers, report_buffer(&plan->buffers[i]));
    if (bad == 0)
        return buffers;
    json_decref(buffers);
    return NULL;
}

json_t *mem_report_json(const struct mem_estimate *estimate, bool buffers)
{
    const struct mem_plan *plan = &estimate->plan;
    json_t *report = json_pack(
        "{s:s, s:s, s:I, s:I, s:b, s:b, s:s, s:I, s:s, s:o, s:o, s:I, s:o, s:I, s:I, s:o}",
        "object", "memory_plan", "backend", mem_backend_name(plan->layout.backend), "gpus",
        (json_int_t)estimate->spec.gpus, "seq_len", (json_int_t)estimate->spec.seq_len, "fits",
        (int)estimate->fits, "served", (int)estimate->served, "digest", plan->digest,
        "peak_device_bytes", (json_int_t)plan->peak_device_bytes, "peak_phase",
        mem_phase_name(plan->peak_phase), "peak", report_peak(plan), "device_limit_bytes",
        report_limit(estimate->device_limit), "host_bytes", (json_int_t)estimate->host_bytes,
        "host_limit_bytes", report_limit(estimate->host_limit), "file_bytes",
        (json_int_t)estimate->file_bytes, "disk_bytes", (json_int_t)estimate->disk_bytes, "phases",
        report_phases(plan));
    if (report == NULL || !buffers)
        return report;
    if (json_object_set_new(report, "buffers", report_buffers(plan)) == 0)
        return report;
    json_decref(report);
    return NULL;
}

static void report_line(struct buf *out, const char *name, int64_t bytes)
{
    buf_printf(out, "  %-14s %9.2f GiB\n", name, REPORT_GIB(bytes));
}

static void report_offload(struct buf *out, const struct mem_layout *layout)
{
    if (layout->layers_away == 0)
        return;
    buf_printf(out, "kept tensors, of %lld layers: %lld on the host",
               (long long)layout->config.layers,
               (long long)(layout->layers_away - layout->layers_filed));
    if (layout->layers_filed > 0)
        buf_printf(out, ", %lld in a file", (long long)layout->layers_filed);
    buf_printf(out, ", %lld on the device\n",
               (long long)(layout->config.layers - layout->layers_away));
}

void mem_report_text(const struct mem_estimate *estimate, struct buf *out)
{
    const struct mem_plan *plan = &estimate->plan;
    buf_printf(out, "device memory a rank, %lld ranks of %lld tokens:\n",
               (long long)estimate->spec.gpus, (long long)estimate->spec.seq_len);
    for (int c = 0; c < MEM_CATEGORY_COUNT; c++)
        if (plan->peak_category[c] > 0)
            report_line(out, mem_category_name((enum mem_category)c), plan->peak_category[c]);
    if (plan->gap_bytes > 0)
        report_line(out, "unused", plan->gap_bytes);
    report_line(out, "peak", plan->peak_device_bytes);
    buf_printf(out, "  in             %s\n", mem_phase_name(plan->peak_phase));
    if (estimate->device_limit > 0)
        report_line(out, "there are", estimate->device_limit);
    if (estimate->host_bytes > 0) {
        buf_printf(out, "host memory, all ranks: %.2f GiB", REPORT_GIB(estimate->host_bytes));
        if (estimate->host_limit > 0)
            buf_printf(out, " of %.2f", REPORT_GIB(estimate->host_limit));
        buf_text(out, "\n");
    }
    report_offload(out, &plan->layout);
    buf_printf(out, "disk: %.2f GiB for checkpoints and model",
               REPORT_GIB(estimate->disk_bytes - estimate->file_bytes));
    if (estimate->file_bytes > 0)
        buf_printf(out, ", %.2f for kept tensors", REPORT_GIB(estimate->file_bytes));
    buf_text(out, "\n");
    buf_printf(out, "%s\n", estimate->fits ? "it fits" : "it does not fit");
    if (!estimate->served)
        buf_text(out, "planned only: this version cannot run it yet\n");
}
