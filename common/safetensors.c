/* safetensors: the reader. Opening reads headers only; every number in one is checked before it is
 * used, and no allocation is larger than the file itself says it can fill.
 *
 * A file's entries must tile its data: sorted by offset, each begins where the one before it ended,
 * the first at 0 and the last ending with the file. That one rule excludes overlaps, holes, bytes
 * behind the data and truncated files. */
#include "common/safetensors.h"

#include "common/io.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "data is read as the file has it");

struct safetensors_file {
    char *path;
    int fd;
};

struct safetensors {
    struct safetensors_file *files; /* (file_count) */
    int32_t file_count;
    struct safetensors_entry *entries; /* (count) sorted by name */
    int64_t count;
    int64_t capacity;
};

void safetensors_free(struct safetensors *st)
{
    if (st == NULL)
        return;
    for (int32_t i = 0; st->files != NULL && i < st->file_count; i++) {
        if (st->files[i].fd >= 0)
            (void)close(st->files[i].fd); /* opened for reading */
        mem_free(st->files[i].path);
    }
    for (int64_t i = 0; i < st->count; i++)
        mem_free(st->entries[i].name);
    mem_free(st->files);
    mem_free(st->entries);
    mem_free(st);
}

static void safetensors_unref(struct safetensors **st)
{
    safetensors_free(*st);
}

/* "shape" and "dtype" of one tensor; *ret_bytes is what its data must be long. */
static int safetensors_shape(const json_t *value, struct safetensors_entry *entry, int64_t limit,
                             struct err *err)
{
    const char *dtype = NULL;
    TRY(json_get_string(value, "dtype", ERR_MODEL, &dtype, err));
    entry->dtype = dtype_parse(dtype);
    if (entry->dtype == DTYPE_COUNT)
        return err_set(err, ERR_MODEL, "dtype \"%s\" is not served", dtype);
    const json_t *shape = json_object_get(value, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > SAFETENSORS_DIMS_MAX)
        return err_set(err, ERR_MODEL, "\"shape\" must be an array of at most %d extents",
                       SAFETENSORS_DIMS_MAX);
    entry->dims = (int32_t)json_array_size(shape);
    entry->elements = 1;
    for (int32_t i = 0; i < entry->dims; i++) {
        const json_t *extent = json_array_get(shape, (size_t)i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return err_set(err, ERR_MODEL, "extent %d of \"shape\" is not a number >= 0", i);
        entry->shape[i] = json_integer_value(extent);
        if (__builtin_mul_overflow(entry->elements, entry->shape[i], &entry->elements))
            return err_set(err, ERR_MODEL, "\"shape\" has too many elements");
    }
    int64_t item = (int64_t)dtype_bytes(entry->dtype);
    if (__builtin_mul_overflow(entry->elements, item, &entry->bytes) || entry->bytes > limit)
        return err_set(err, ERR_MODEL, "\"shape\" is larger than the file");
    return 0;
}

/* Fills the entry but for its name. data_start and data_bytes place the file's data. */
static int safetensors_entry_parse(const json_t *value, int64_t data_start, int64_t data_bytes,
                                   struct safetensors_entry *entry, struct err *err)
{
    if (!json_is_object(value))
        return err_set(err, ERR_MODEL, "not an object");
    TRY(safetensors_shape(value, entry, data_bytes, err));
    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0);
    const json_t *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return err_set(err, ERR_MODEL, "\"data_offsets\" must be two integers");
    int64_t first = json_integer_value(begin);
    int64_t past = json_integer_value(end);
    if (first < 0 || past < first || past > data_bytes)
        return err_set(err, ERR_MODEL,
                       "data_offsets [%lld, %lld] leave the file's %lld bytes of data",
                       (long long)first, (long long)past, (long long)data_bytes);
    if (past - first != entry->bytes)
        return err_set(err, ERR_MODEL, "data_offsets span %lld bytes, dtype and shape need %lld",
                       (long long)(past - first), (long long)entry->bytes);
    entry->offset = data_start + first;
    return 0;
}

static int safetensors_by_offset(const void *a, const void *b)
{
    const struct safetensors_entry *left = a;
    const struct safetensors_entry *right = b;
    if (left->offset != right->offset)
        return left->offset < right->offset ? -1 : 1;
    return (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

static int safetensors_by_name(const void *a, const void *b)
{
    const struct safetensors_entry *left = a;
    const struct safetensors_entry *right = b;
    return strcmp(left->name, right->name);
}

/* The tiling rule over the entries from `from` on, all of one file. */
static int safetensors_check_tiling(struct safetensors *st, int64_t from, int64_t data_start,
                                    int64_t file_bytes, struct err *err)
{
    int64_t at = data_start;
    if (st->count > from)
        qsort(st->entries + from, (size_t)(st->count - from), sizeof *st->entries,
              safetensors_by_offset);
    for (int64_t i = from; i < st->count; i++) {
        const struct safetensors_entry *entry = &st->entries[i];
        if (entry->offset != at)
            return err_set(err, ERR_MODEL, "tensor %s: its data %s", entry->name,
                           entry->offset < at ? "overlaps another tensor's"
                                              : "leaves a hole before it");
        at += entry->bytes;
    }
    if (at != file_bytes)
        return err_set(err, ERR_MODEL, "%lld bytes follow the last tensor's data",
                       (long long)(file_bytes - at));
    return 0;
}

static int safetensors_grow(struct safetensors *st, size_t more, struct err *err)
{
    size_t wanted = (size_t)st->count + more;
    struct safetensors_entry *grown = mem_grow(st->entries, wanted, sizeof *grown);
    if (grown == NULL)
        return mem_fail(err, wanted * sizeof *grown, "a table of tensors");
    st->entries = grown;
    st->capacity = (int64_t)wanted;
    return 0;
}

/* Header JSON -> entries of file number `file`. */
static int safetensors_header(struct safetensors *st, int32_t file, const json_t *header,
                              int64_t data_start, int64_t file_bytes, struct err *err)
{
    if (!json_is_object(header))
        return err_set(err, ERR_MODEL, "the header is not a JSON object");
    int64_t from = st->count;
    TRY(safetensors_grow(st, json_object_size(header), err));
    const char *name;
    const json_t *value;
    json_object_foreach((json_t *)header, name, value) /* reads only; the macro wants non-const */
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        struct safetensors_entry entry = {.file = file};
        int rc = safetensors_entry_parse(value, data_start, file_bytes - data_start, &entry, err);
        if (rc != 0)
            return err_wrap(err, rc, "tensor %.200s: ", name);
        entry.name = mem_strdup(name);
        if (entry.name == NULL)
            return mem_fail(err, strlen(name), "a tensor's name");
        must(st->count < st->capacity);
        st->entries[st->count++] = entry;
    }
    return safetensors_check_tiling(st, from, data_start, file_bytes, err);
}

/* Reads and checks the header of files[file], which is open. */
static int safetensors_read_header(struct safetensors *st, int32_t file, struct err *err)
{
    int fd = st->files[file].fd;
    off_t file_bytes = lseek(fd, 0, SEEK_END);
    if (file_bytes < 0)
        return err_set_errno(err, errno, "size");
    uint64_t length = 0;
    if (file_bytes < (off_t)sizeof length)
        return err_set(err, ERR_MODEL, "%lld bytes are too few for a safetensors file",
                       (long long)file_bytes);
    TRY(io_pread_full(fd, &length, sizeof length, 0, err));
    if (memcmp(&length, IO_LFS_START, sizeof length) == 0)
        return err_set(err, ERR_MODEL, IO_LFS_POINTER);
    if (length > (uint64_t)file_bytes - sizeof length || length > LIMIT_SAFETENSORS_HEADER_BYTES)
        return err_set(err, ERR_MODEL,
                       "the header claims %llu bytes; the file has %lld and the limit is %d: "
                       "it is damaged or no safetensors file",
                       (unsigned long long)length, (long long)file_bytes,
                       LIMIT_SAFETENSORS_HEADER_BYTES);
    CLEANUP(mem_free_ptr) char *text = mem_new(1, length + 1);
    if (text == NULL)
        return mem_fail(err, length, "a safetensors header");
    TRY(io_pread_full(fd, text, length, sizeof length, err));
    CLEANUP(json_unref) json_t *header = NULL;
    if (json_parse(text, length, "header", &header, err) != 0) {
        err->code = ERR_MODEL; /* the sentence stands; it is the model that is wrong */
        return -ERR_MODEL;
    }
    return safetensors_header(st, file, header, (int64_t)(sizeof length + length),
                              (int64_t)file_bytes, err);
}

/* Takes `path` over. */
static int safetensors_add_file(struct safetensors *st, char *path, struct err *err)
{
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    struct safetensors_file *file = &st->files[st->file_count++];
    file->path = path;
    file->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0)
        return err_set_errno(err, errno, "%s", path);
    int rc = safetensors_read_header(st, st->file_count - 1, err);
    return rc == 0 ? 0 : err_wrap(err, rc, "%s: ", path);
}

static struct safetensors *safetensors_new(size_t files)
{
    struct safetensors *st = mem_new(1, sizeof *st);
    if (st != NULL)
        st->files = mem_new(files, sizeof *st->files);
    if (st == NULL || st->files == NULL) {
        safetensors_free(st);
        return NULL;
    }
    return st;
}

static void safetensors_sort(struct safetensors *st)
{
    if (st->count > 0)
        qsort(st->entries, (size_t)st->count, sizeof *st->entries, safetensors_by_name);
}

int safetensors_open(const char *path, struct safetensors **ret, struct err *err)
{
    CLEANUP(safetensors_unref) struct safetensors *st = safetensors_new(1);
    if (st == NULL)
        return mem_fail(err, sizeof *st, "a model file");
    TRY(safetensors_add_file(st, mem_strdup(path), err));
    safetensors_sort(st);
    *ret = st;
    st = NULL;
    return 0;
}

/* Index of an open file of this name in the folder, or -1. */
static int32_t safetensors_file_index(const struct safetensors *st, const char *name)
{
    for (int32_t i = 0; i < st->file_count; i++)
        if (strcmp(safetensors_file_name(st, i), name) == 0)
            return i;
    return -1;
}

/* Drops entries that the index does not place in the file they were found in: leftovers. */
static void safetensors_keep_indexed(struct safetensors *st, const json_t *map)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < st->count; i++) {
        struct safetensors_entry *entry = &st->entries[i];
        const char *file = json_string_value(json_object_get(map, entry->name));
        if (file != NULL && strcmp(file, safetensors_file_name(st, entry->file)) == 0)
            st->entries[kept++] = *entry;
        else
            mem_free(entry->name);
    }
    st->count = kept;
}

static int safetensors_open_index(struct safetensors *st, const char *model_dir,
                                  const json_t *index, struct err *err)
{
    const json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map))
        return err_set(err, ERR_MODEL, "\"weight_map\" must be an object");
    const char *name;
    const json_t *value;
    json_object_foreach((json_t *)map, name, value) /* reads only; the macro wants non-const */
    {
        const char *file = json_string_value(value);
        if (file == NULL || file[0] == '\0' || strchr(file, '/') != NULL)
            return err_set(err, ERR_MODEL, "tensor %.200s: not in a file of this folder", name);
        if (safetensors_file_index(st, file) >= 0)
            continue;
        if (st->file_count == LIMIT_SAFETENSORS_FILES)
            return err_set(err, ERR_MODEL, "more than %d files", LIMIT_SAFETENSORS_FILES);
        int rc = safetensors_add_file(st, io_join(model_dir, file), err);
        if (rc == -ERR_NOT_FOUND)
            return err_set(err, ERR_MODEL, "it names %.200s, which is not in the folder", file);
        TRY(rc);
    }
    safetensors_keep_indexed(st, map);
    safetensors_sort(st);
    json_object_foreach((json_t *)map, name, value)
    {
        if (safetensors_find(st, name) == NULL)
            return err_set(err, ERR_MODEL, "tensor %.200s is not in %.200s as it says", name,
                           json_string_value(value));
    }
    return 0;
}

int safetensors_open_dir(const char *model_dir, struct safetensors **ret, struct err *err)
{
    CLEANUP(mem_free_ptr) char *single = io_join(model_dir, "model.safetensors");
    CLEANUP(mem_free_ptr) char *sharded = io_join(model_dir, "model.safetensors.index.json");
    if (single == NULL || sharded == NULL)
        return mem_fail(err, strlen(model_dir), "a path");
    if (io_exists(single)) /* transformers prefers it too */
        return safetensors_open(single, ret, err);
    if (!io_exists(sharded))
        return err_set(err, ERR_MODEL,
                       "%s: neither model.safetensors nor model.safetensors.index.json is there",
                       model_dir);
    CLEANUP(json_unref) json_t *index = NULL;
    int rc = json_parse_file(sharded, LIMIT_SAFETENSORS_HEADER_BYTES, &index, err);
    if (rc == -ERR_BAD_JSON || rc == -ERR_TOO_LARGE) {
        err->code = ERR_MODEL;
        return -ERR_MODEL;
    }
    TRY(rc);
    CLEANUP(safetensors_unref) struct safetensors *st = safetensors_new(LIMIT_SAFETENSORS_FILES);
    if (st == NULL)
        return mem_fail(err, sizeof *st, "a model folder");
    rc = safetensors_open_index(st, model_dir, index, err);
    if (rc != 0)
        return err_wrap(err, rc, "%s: ", sharded);
    *ret = st;
    st = NULL;
    return 0;
}

int64_t safetensors_count(const struct safetensors *st)
{
    return st->count;
}

const struct safetensors_entry *safetensors_at(const struct safetensors *st, int64_t index)
{
    must(index >= 0 && index < st->count);
    return &st->entries[index];
}

const struct safetensors_entry *safetensors_find(const struct safetensors *st, const char *name)
{
    int64_t low = 0;
    int64_t high = st->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(name, st->entries[middle].name);
        if (order == 0)
            return &st->entries[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

int32_t safetensors_files(const struct safetensors *st)
{
    return st->file_count;
}

const char *safetensors_file_name(const struct safetensors *st, int32_t file)
{
    must(file >= 0 && file < st->file_count);
    const char *slash = strrchr(st->files[file].path, '/');
    return slash != NULL ? slash + 1 : st->files[file].path;
}

int safetensors_read_f32(const struct safetensors *st, const struct safetensors_entry *entry,
                         int64_t first, int64_t count, float *ret, struct err *err)
{
    must(first >= 0 && count >= 0 && first <= entry->elements - count);
    const char *path = st->files[entry->file].path;
    int fd = st->files[entry->file].fd;
    enum dtype dtype = entry->dtype;
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16 && dtype != DTYPE_F16)
        return err_set(err, ERR_MODEL,
                       "%s: tensor %s: dtype %s is not served for weights; served: F32, BF16, F16",
                       path, entry->name, dtype_name(dtype));
    int64_t item = (int64_t)dtype_bytes(dtype);
    int64_t offset = entry->offset + first * item;
    char chunk[32768] __attribute__((aligned(8)));
    const int64_t chunk_items = (int64_t)sizeof chunk / item;
    for (int64_t done = 0; done < count;) {
        int64_t now = count - done < chunk_items ? count - done : chunk_items;
        if (dtype == DTYPE_F32)
            now = count; /* as the file has them */
        void *into = dtype == DTYPE_F32 ? (void *)ret : chunk;
        int rc = io_pread_full(fd, into, (size_t)(now * item), offset + done * item, err);
        if (rc != 0)
            return err_wrap(err, rc, "%s: tensor %s: ", path, entry->name);
        if (dtype != DTYPE_F32)
            dtype_to_f32(dtype, chunk, ret + done, (size_t)now);
        done += now;
    }
    return 0;
}
