/* dataset_foreign: the first row's bytes tell a file that is no text; the first row that is not
 * blank tells JSON that is not one value a line. */
#include "common/dataset_foreign.h"

#include "common/io.h"
#include "common/utf8.h"

#include <string.h>

#define AS_ROWS "write its rows as JSONL"
#define AS_TEXT "save it as plain text"
#define UNPACK "take the file out of it"
#define REPACK "unpack it; gzip and zstd are served"

static const struct {
    const char *magic;
    size_t at; /* byte of the file */
    const char *what;
    const char *fix;
} foreign_kinds[] = {
    {.magic = "PK\x03\x04",
     .what = "a zip file or an Office document",
     .fix = UNPACK ", or save it as plain text or JSONL"},
    {.magic = "7z\xbc\xaf\x27\x1c", .what = "a 7z archive", .fix = UNPACK},
    {.magic = "Rar!\x1a\x07", .what = "a RAR archive", .fix = UNPACK},
    {.magic = "ustar", .at = 257, .what = "a tar archive", .fix = UNPACK},
    {.magic = "PAR1", .what = "a Parquet file", .fix = AS_ROWS},
    {.magic = "ARROW1", .what = "an Arrow file", .fix = AS_ROWS},
    {.magic = "\xff\xff\xff\xff", .what = "an Arrow stream", .fix = AS_ROWS},
    {.magic = "Obj\x01", .what = "an Avro file", .fix = AS_ROWS},
    {.magic = "\x89HDF", .what = "an HDF5 file", .fix = AS_ROWS},
    {.magic = "\x93NUMPY", .what = "a NumPy file", .fix = AS_ROWS},
    {.magic = "SQLite format 3", .what = "an SQLite database", .fix = AS_ROWS},
    {.magic = "BZh", .what = "a bzip2 file", .fix = REPACK},
    {.magic = "\xfd"
              "7zXZ",
     .what = "an xz file",
     .fix = REPACK},
    {.magic = "\x04\x22\x4d\x18", .what = "an lz4 file", .fix = REPACK},
    {.magic = "\x1f\x8b", .what = "a gzip file within a compressed one", .fix = "unpack it once"},
    {.magic = "\x28\xb5\x2f\xfd",
     .what = "a zstd file within a compressed one",
     .fix = "unpack it once"},
    {.magic = "%PDF-", .what = "a PDF file", .fix = AS_TEXT},
    {.magic = "{\\rtf", .what = "an RTF file", .fix = AS_TEXT},
    {.magic = "\xd0\xcf\x11\xe0", .what = "a file of an older Office program", .fix = AS_TEXT},
};

/* Characters of two bytes or four: the first one has a mark, or a byte that is 0. */
static bool foreign_is_wide(const char *bytes, size_t length)
{
    return length >= 2 && (memcmp(bytes, "\xff\xfe", 2) == 0 || memcmp(bytes, "\xfe\xff", 2) == 0 ||
                           memchr(bytes, '\0', 2) != NULL);
}

static bool foreign_bytes(const struct dataset_row *row, struct example_fault *fault)
{
    size_t length = row->too_long ? 0 : (size_t)row->length;
    for (size_t i = 0; i < sizeof foreign_kinds / sizeof foreign_kinds[0]; i++) {
        size_t at = foreign_kinds[i].at;
        if (length < at || !utf8_begins(row->bytes + at, length - at, foreign_kinds[i].magic))
            continue;
        example_fault_set(fault, "unserved_format", 0,
                          "this is %s, which is not served; %s; served: JSONL, a JSON array, plain "
                          "text (.txt), each also as .gz or .zst",
                          foreign_kinds[i].what, foreign_kinds[i].fix);
        return true;
    }
    if (utf8_begins(row->bytes, length, IO_LFS_START))
        example_fault_set(fault, "unserved_format", 0, "this is " IO_LFS_POINTER);
    else if (foreign_is_wide(row->bytes, length))
        example_fault_set(fault, "not_utf8", 1,
                          "the file is not UTF-8 (looks like UTF-16); save it as UTF-8");
    else
        return false;
    return true;
}

/* JSON that is not JSONL, told by a row that did not parse. */
static bool foreign_is_pretty(const struct dataset_row *row)
{
    const char *text = row->bytes + strspn(row->bytes, " \t");
    return !row->kept && strcmp(row->fault.code, "invalid_json") == 0 && text[0] == '{' &&
           text[1 + strspn(text + 1, " \t")] == '\0';
}

bool dataset_foreign_row(struct dataset_foreign *foreign, struct dataset_row *row)
{
    bool blank = !row->kept && strcmp(row->fault.code, "blank_line") == 0;
    bool first = foreign->rows++ == 0;
    bool first_content = !blank && foreign->content++ == 0;
    if (first && foreign_bytes(row, &row->fault)) {
        row->kept = false;
        return true;
    }
    if (!first_content || !foreign_is_pretty(row))
        return false;
    example_fault_set(&row->fault, "not_jsonl", 1,
                      "the file is pretty-printed JSON; each example must be whole on one line "
                      "(jq -c . FILE); reading stopped here");
    return true;
}

void dataset_foreign_broken(const char *why, struct example_fault *ret_fault)
{
    example_fault_set(ret_fault, "broken_file", 0, "%s; reading stopped here", why);
}
