/* fuzz_safetensors: a model file. The bytes are tried twice: as a file, and as the header of a file
 * whose length is right and whose data is as long as the first two bytes say, so that mutations of
 * the header alone get past the length. Entries lie inside the file, are found by name and read. */
#include "common/mem.h"
#include "common/must.h"
#include "common/safetensors.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { LENGTH_BYTES = 8, READ_ELEMENTS = 64 };

static void safetensors_look(const struct safetensors *st, int64_t file_bytes)
{
    int64_t data = 0;
    for (int64_t i = 0; i < safetensors_count(st); i++) {
        struct err err = {.code = ERR_NONE};
        float values[READ_ELEMENTS];
        const struct safetensors_entry *entry = safetensors_at(st, i);
        must(safetensors_find(st, entry->name) == entry);
        must(entry->dims >= 0 && entry->dims <= SAFETENSORS_DIMS_MAX && entry->elements >= 0);
        must(entry->bytes == entry->elements * (int64_t)dtype_bytes(entry->dtype));
        must(entry->offset >= LENGTH_BYTES && entry->offset <= file_bytes - entry->bytes);
        data += entry->bytes;
        int64_t count = entry->elements < READ_ELEMENTS ? entry->elements : READ_ELEMENTS;
        int rc = safetensors_read_f32(st, entry, entry->elements - count, count, values, &err);
        if (rc != 0)
            fuzz_refused(rc, &err);
        bool served =
            entry->dtype == DTYPE_F32 || entry->dtype == DTYPE_BF16 || entry->dtype == DTYPE_F16;
        must((rc == 0) == served);
    }
    must(data < file_bytes);
}

static void safetensors_try(const void *bytes, size_t size)
{
    struct err err = {.code = ERR_NONE};
    struct safetensors *st = NULL;
    int rc = safetensors_open(fuzz_file(bytes, size), &st, &err);
    if (rc != 0) {
        fuzz_refused(rc, &err);
        must(rc == -ERR_MODEL && st == NULL);
        return;
    }
    fuzz_taken++;
    safetensors_look(st, (int64_t)size);
    safetensors_free(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    safetensors_try(data, size);
    if (size >= 2) {
        uint64_t header = size - 2;
        size_t tail = (size_t)data[0] | (size_t)data[1] << 8;
        CLEANUP(mem_free_ptr) uint8_t *file = mem_new(1, LENGTH_BYTES + header + tail);
        must(file != NULL);
        memcpy(file, &header, sizeof header);
        memcpy(file + LENGTH_BYTES, data + 2, header);
        safetensors_try(file, LENGTH_BYTES + header + tail);
    }
    must(mem_live() == live);
    return 0;
}
