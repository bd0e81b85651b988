/* tokenizer_nfc: the text is cut at characters that never combine with what stands before them
 * (tokenizer_nfc_is_seam). A seam that a seam follows is its own form C and is copied; from the
 * last seam before any other character to the next seam the text is decomposed, its marks are
 * sorted and it is composed again.
 *
 * utf8proc sorts marks by moving each back over its predecessors, which takes the square of a run's
 * length; a file can hold a run of a million. So marks are sorted here first, by counting
 * (canonical combining classes are below 256), stably as the Standard's canonical ordering (D109)
 * demands, and utf8proc finds them in order. */
#include "common/tokenizer_nfc.h"

#include "common/mem.h"
#include "common/must.h"

#include <string.h>
#include <utf8proc.h>

enum {
    NFC_FIRST = 0x300,     /* lower ones are seams */
    NFC_EXPANSION_MAX = 4, /* code points of one character decomposed: at most 4 */
    NFC_CLASSES = 256,     /* canonical combining classes */
    NFC_SHORT_RUN = 32,    /* marks: below, moving them is the faster sort */
};

void tokenizer_nfc_done(struct tokenizer_nfc *nfc)
{
    mem_free(nfc->points);
    mem_free(nfc->sorted);
    *nfc = (struct tokenizer_nfc){0};
}

bool tokenizer_nfc_is_plain(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] >= 0xcc) /* the lead byte of U+0300 */
            return false;
    return true;
}

/* Starters that compose with nothing before them and, alone, are their own form C. Not all of them:
 * enough that usual text has one every few characters. */
static bool tokenizer_nfc_is_seam(int32_t point)
{
    return point < NFC_FIRST || (point >= 0x400 && point <= 0x482) ||
           (point >= 0x3400 && point <= 0x9fff) || (point >= 0xac00 && point <= 0xd7a3) ||
           (point >= 0x3041 && point <= 0x3096) || (point >= 0x1f000 && point <= 0x1faff);
}

static int32_t tokenizer_nfc_class(int32_t point)
{
    return utf8proc_get_property(point)->combining_class;
}

/* Sorts a run of marks by class, equal ones staying in order. */
static void tokenizer_nfc_sort(int32_t *marks, int32_t *scratch, size_t count)
{
    if (count <= NFC_SHORT_RUN) {
        for (size_t i = 1; i < count; i++) {
            int32_t mark = marks[i];
            int32_t class = tokenizer_nfc_class(mark);
            size_t at = i;
            for (; at > 0 && tokenizer_nfc_class(marks[at - 1]) > class; at--)
                marks[at] = marks[at - 1];
            marks[at] = mark;
        }
        return;
    }
    size_t first[NFC_CLASSES + 1] = {0};
    for (size_t i = 0; i < count; i++)
        first[tokenizer_nfc_class(marks[i]) + 1]++;
    for (int class = 0; class < NFC_CLASSES; class ++)
        first[class + 1] += first[class];
    for (size_t i = 0; i < count; i++)
        scratch[first[tokenizer_nfc_class(marks[i])]++] = marks[i];
    memcpy(marks, scratch, count * sizeof *marks);
}

static int tokenizer_nfc_room(struct tokenizer_nfc *nfc, size_t bytes, struct err *err)
{
    size_t count =
        (bytes / 2 + 2) * NFC_EXPANSION_MAX; /* all but the first have two bytes or more */
    if (count <= nfc->capacity)
        return 0;
    tokenizer_nfc_done(nfc);
    nfc->points = mem_new(count, sizeof *nfc->points);
    nfc->sorted = mem_new(count, sizeof *nfc->sorted);
    if (nfc->points == NULL || nfc->sorted == NULL)
        return mem_fail(err, count * 8, "normalising a text");
    nfc->capacity = count;
    return 0;
}

static int tokenizer_nfc_stretch(struct tokenizer_nfc *nfc, const char *text, size_t length,
                                 struct buf *out, struct err *err)
{
    TRY(tokenizer_nfc_room(nfc, length, err));
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        int32_t point = -1;
        utf8proc_ssize_t step = utf8proc_iterate((const utf8proc_uint8_t *)text + at,
                                                 (utf8proc_ssize_t)(length - at), &point);
        must(step > 0 && nfc->capacity - count >= NFC_EXPANSION_MAX);
        int boundary = 0;
        utf8proc_ssize_t made = utf8proc_decompose_char(
            point, nfc->points + count, NFC_EXPANSION_MAX, UTF8PROC_DECOMPOSE, &boundary);
        must(made > 0 && made <= NFC_EXPANSION_MAX);
        count += (size_t)made;
        at += (size_t)step;
    }
    for (size_t from = 0; from < count;) {
        size_t to = from;
        while (to < count && tokenizer_nfc_class(nfc->points[to]) > 0)
            to++;
        tokenizer_nfc_sort(nfc->points + from, nfc->sorted, to - from);
        from = to + 1;
    }
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(nfc->points, (utf8proc_ssize_t)count,
                                                         UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    must(composed > 0);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        utf8proc_uint8_t bytes[4];
        utf8proc_ssize_t made = utf8proc_encode_char(nfc->points[i], bytes);
        buf_append(out, bytes, (size_t)made);
    }
    return buf_error(out, err);
}

int tokenizer_nfc_append(struct tokenizer_nfc *nfc, const char *text, size_t length,
                         struct buf *out, struct err *err)
{
    size_t start = 0;  /* of the stretch */
    bool plain = true; /* it has only seams */
    for (size_t at = 0; at < length;) {
        int32_t point = -1;
        utf8proc_ssize_t step = utf8proc_iterate((const utf8proc_uint8_t *)text + at,
                                                 (utf8proc_ssize_t)(length - at), &point);
        must(step > 0);
        bool seam = tokenizer_nfc_is_seam(point);
        if (seam && !plain) {
            TRY(tokenizer_nfc_stretch(nfc, text + start, at - start, out, err));
            start = at;
            plain = true;
        } else if (!seam && plain) { /* it may combine with the last character before it */
            size_t last = at;
            while (last > start && ((unsigned char)text[--last] & 0xc0) == 0x80)
                ;
            buf_append(out, text + start, last - start);
            start = last;
            plain = false;
        }
        at += (size_t)step;
    }
    if (!plain)
        return tokenizer_nfc_stretch(nfc, text + start, length - start, out, err);
    buf_append(out, text + start, length - start);
    return buf_error(out, err);
}
