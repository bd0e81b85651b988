/* safetensors, the writer: tensors are declared first, so that the header, whose size places the
 * data, is complete before the first value. Data follow in the order of declaration, without gaps;
 * the header is padded with spaces to a multiple of 8, so that every F32 is aligned when mapped. */
#include "common/io.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/safetensors.h"

#include <string.h>

enum { SAFETENSORS_CHUNK_BYTES = 1 << 16 };

struct safetensors_writer {
    struct io_file file;
    json_t *header;     /* object; NULL once it is written */
    enum dtype *dtypes; /* (count) */
    int64_t *elements;  /* (count) */
    int64_t count;      /* tensors declared */
    int64_t capacity;   /* of dtypes and elements */
    int64_t data_bytes; /* of all declared tensors */
    int64_t tensor;     /* the one being filled */
    int64_t filled;     /* its elements that are there */
    size_t used;        /* bytes waiting in chunk */
    _Alignas(8) char chunk[SAFETENSORS_CHUNK_BYTES];
};

void safetensors_writer_free(struct safetensors_writer *writer)
{
    if (writer == NULL)
        return;
    io_file_abort(&writer->file);
    json_decref(writer->header);
    mem_free(writer->dtypes);
    mem_free(writer->elements);
    mem_free(writer);
}

int safetensors_writer_new(const char *path, struct safetensors_writer **ret, struct err *err)
{
    struct safetensors_writer *writer = mem_new(1, sizeof *writer);
    if (writer == NULL)
        return mem_fail(err, sizeof *writer, "a safetensors writer");
    writer->file.fd = -1;
    /* transformers refuses files that do not say for which framework they were written */
    writer->header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    int rc = writer->header == NULL ? mem_fail(err, 64, "a safetensors header")
                                    : io_file_create(&writer->file, path, 0644, err);
    if (rc != 0) {
        safetensors_writer_free(writer);
        return rc;
    }
    *ret = writer;
    return 0;
}

static int safetensors_writer_grow(struct safetensors_writer *writer, struct err *err)
{
    if (writer->count < writer->capacity)
        return 0;
    size_t wanted = (size_t)writer->capacity * 2 + 64;
    void *dtypes = mem_grow(writer->dtypes, wanted, sizeof *writer->dtypes);
    if (dtypes != NULL)
        writer->dtypes = dtypes;
    void *elements = mem_grow(writer->elements, wanted, sizeof *writer->elements);
    if (elements != NULL)
        writer->elements = elements;
    if (dtypes == NULL || elements == NULL)
        return mem_fail(err, wanted * sizeof *writer->elements, "a table of tensors");
    writer->capacity = (int64_t)wanted;
    return 0;
}

int safetensors_writer_declare(struct safetensors_writer *writer, const char *name,
                               enum dtype dtype, int32_t dims, const int64_t *shape,
                               struct err *err)
{
    must(writer->header != NULL); /* nothing is declared after the first value */
    must(dims >= 0 && dims <= SAFETENSORS_DIMS_MAX);
    must(dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype == DTYPE_F16);
    must(strcmp(name, "__metadata__") != 0 && json_object_get(writer->header, name) == NULL);
    TRY(safetensors_writer_grow(writer, err));
    int64_t elements = 1;
    json_t *extents = json_array();
    for (int32_t i = 0; i < dims; i++) {
        must(shape[i] >= 0);
        must(!__builtin_mul_overflow(elements, shape[i], &elements));
        (void)json_array_append_new(extents, json_integer(shape[i])); /* seen at the pack below */
    }
    int64_t end = writer->data_bytes + elements * (int64_t)dtype_bytes(dtype);
    json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtype_name(dtype), "shape", extents,
                              "data_offsets", (json_int_t)writer->data_bytes, (json_int_t)end);
    if (json_array_size(json_object_get(entry, "shape")) != (size_t)dims ||
        json_object_set_new(writer->header, name, entry) != 0)
        return mem_fail(err, 256, "a safetensors header");
    writer->dtypes[writer->count] = dtype;
    writer->elements[writer->count] = elements;
    writer->count++;
    writer->data_bytes = end;
    return 0;
}

/* Moves to the next tensor that has elements to come. */
static void safetensors_writer_advance(struct safetensors_writer *writer)
{
    while (writer->tensor < writer->count && writer->filled == writer->elements[writer->tensor]) {
        writer->tensor++;
        writer->filled = 0;
    }
}

static int safetensors_writer_header(struct safetensors_writer *writer, struct err *err)
{
    if (writer->header == NULL)
        return 0;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_SAFETENSORS_HEADER_BYTES);
    TRY(json_print(writer->header, &text, err));
    while (text.length % 8 != 0 && buf_error(&text, err) == 0)
        buf_char(&text, ' ');
    TRY(buf_error(&text, err));
    uint64_t length = text.length;
    TRY(io_write_full(writer->file.fd, &length, sizeof length, err));
    TRY(io_write_full(writer->file.fd, buf_str(&text), text.length, err));
    json_decref(writer->header);
    writer->header = NULL;
    safetensors_writer_advance(writer);
    return 0;
}

static int safetensors_writer_flush(struct safetensors_writer *writer, struct err *err)
{
    size_t used = writer->used;
    writer->used = 0;
    return io_write_full(writer->file.fd, writer->chunk, used, err);
}

int safetensors_writer_put_f32(struct safetensors_writer *writer, const float *values,
                               int64_t count, struct err *err)
{
    TRY(safetensors_writer_header(writer, err));
    if (count == 0)
        return 0;
    must(writer->tensor < writer->count);
    must(count > 0 && count <= writer->elements[writer->tensor] - writer->filled);
    enum dtype dtype = writer->dtypes[writer->tensor];
    size_t item = dtype_bytes(dtype);
    for (int64_t done = 0; done < count;) {
        if (writer->used + item > sizeof writer->chunk || writer->used % item != 0)
            TRY(safetensors_writer_flush(writer, err)); /* also keeps values aligned in memory */
        int64_t room = (int64_t)((sizeof writer->chunk - writer->used) / item);
        int64_t now = count - done < room ? count - done : room;
        dtype_from_f32(dtype, values + done, writer->chunk + writer->used, (size_t)now);
        writer->used += (size_t)now * item;
        done += now;
    }
    writer->filled += count;
    safetensors_writer_advance(writer);
    return 0;
}

int safetensors_writer_commit(struct safetensors_writer *writer, struct err *err)
{
    TRY(safetensors_writer_header(writer, err));
    must(writer->tensor == writer->count); /* every declared value was put */
    TRY(safetensors_writer_flush(writer, err));
    return io_file_commit(&writer->file, err);
}
