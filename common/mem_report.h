/* mem_report: a memory estimate for people and for programs. */
#pragma once
#include "common/buf.h"
#include "common/json.h"
#include "common/mem_estimate.h"

/* New reference, NULL when out of memory:
 *   {"object": "memory_plan", "backend", "gpus", "seq_len", "fits", "served", "digest",
 *    "peak_device_bytes", "peak_phase", "peak": {category: bytes, ..., "unused"},
 *    "device_limit_bytes" (or null), "host_bytes", "host_limit_bytes" (or null), "file_bytes",
 *    "disk_bytes",
 *    "phases": [{"phase", "bytes"}]}
 * and, with `buffers`, "buffers": [{"name", "index" (null: one set for all layers), "category",
 * "arena", "offset", "bytes", "first", "last"}]. Bytes are a rank's, but host, file and disk
 * those of the job. */
json_t *mem_report_json(const struct mem_estimate *estimate, bool buffers);
/* A table of categories and what else there is to say, lines of text. */
void mem_report_text(const struct mem_estimate *estimate, struct buf *out);

const char *mem_backend_name(enum mem_backend backend);
