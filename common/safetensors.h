/* safetensors: reader and writer of https://github.com/huggingface/safetensors files, with hostile
 * headers refused.
 *
 * File: u64 little-endian header length n; n bytes of JSON
 * {"name":{"dtype","shape","data_offsets":[a,b]}, ...,
 * "__metadata__":{}}; then the data, offsets relative to its start.
 * Checked: n within the file and LIMIT_SAFETENSORS_HEADER_BYTES; the JSON is an object without
 * duplicate keys; dtypes known; no negative or overflowing shape; b - a equals the tensor's size;
 * ranges neither overlap nor leave holes nor pass the end; the file is exactly as long as header
 * and data say. Errors are ERR_MODEL and name file and tensor.
 *
 * A model folder holds model.safetensors or several shards with model.safetensors.index.json:
 * safetensors_open_dir joins them and checks index against files. Reading touches only what is
 * asked for (pread). */
#pragma once
#include "common/dtype.h"
#include "common/err.h"

#include <stdint.h>

enum { SAFETENSORS_DIMS_MAX = 8 };

struct safetensors_entry {
    char *name;
    enum dtype dtype;
    int32_t dims;
    int64_t shape[SAFETENSORS_DIMS_MAX];
    int64_t elements;
    int32_t file;   /* index of the file it lies in */
    int64_t offset; /* bytes from the start of that file */
    int64_t bytes;
};

struct safetensors; /* open files and their entries, sorted by name */

int safetensors_open(const char *path, struct safetensors **ret, struct err *err);
int safetensors_open_dir(const char *model_dir, struct safetensors **ret, struct err *err);
void safetensors_free(struct safetensors *st);
int64_t safetensors_count(const struct safetensors *st);
const struct safetensors_entry *safetensors_at(const struct safetensors *st, int64_t index);
const struct safetensors_entry *safetensors_find(const struct safetensors *st, const char *name);
int32_t safetensors_files(const struct safetensors *st);                       /* their number */
const char *safetensors_file_name(const struct safetensors *st, int32_t file); /* without folder */

/* Elements [first, first + count) of a tensor as fp32. */
int safetensors_read_f32(const struct safetensors *st, const struct safetensors_entry *entry,
                         int64_t first, int64_t count, float *ret, struct err *err);

/* Writer: declare all tensors, then write them in order; the file appears at commit. */
struct safetensors_writer;
int safetensors_writer_new(const char *path, struct safetensors_writer **ret, struct err *err);
int safetensors_writer_declare(struct safetensors_writer *writer, const char *name,
                               enum dtype dtype, int32_t dims, const int64_t *shape,
                               struct err *err);
/* The next count elements of the declared tensors, in order, given as fp32; a call may not cross
 * tensors. */
int safetensors_writer_put_f32(struct safetensors_writer *writer, const float *values,
                               int64_t count, struct err *err);
int safetensors_writer_commit(struct safetensors_writer *writer,
                              struct err *err);                  /* all bytes must be there */
void safetensors_writer_free(struct safetensors_writer *writer); /* aborts when not committed */
