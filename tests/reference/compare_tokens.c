/* compare_tokens: our encoder against the ids that a reference encoder wrote (encode.mjs).
 *
 *   compare_tokens FOLDER     FOLDER has tokenizer.json and ids.bin
 *
 * Every string must give the same ids; and the ids must decode to a text that encodes to them again
 * (the string itself, where nothing was normalised). Prints the first differences and our rate.
 * Exit status 0 when there is none. */
#include "common/clock.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN_MAX = 5 };

struct compare {
    struct tokenizer *tokenizer;
    struct tokenizer_encoder *encoder;
    struct tokenizer_text text;
    struct tokens tokens;
    int64_t strings, bytes, all_tokens, bad;
    int64_t ns; /* spent encoding */
};

static void compare_show(const char *what, const char *text, size_t length, const int32_t *want,
                         int64_t want_count, const struct tokens *got)
{
    printf("%s: ", what);
    for (size_t i = 0; i < length; i++)
        printf((unsigned char)text[i] >= 0x20 && (unsigned char)text[i] < 0x7f ? "%c" : "\\x%02x",
               (unsigned)(unsigned char)text[i]);
    printf("\n  want");
    for (int64_t i = 0; i < want_count; i++)
        printf(" %d", want[i]);
    printf("\n  got ");
    for (int64_t i = 0; i < got->count; i++)
        printf(" %d", got->ids[i]);
    printf("\n");
}

static int compare_encode(struct compare *compare, const char *text, size_t length, struct err *err)
{
    tokenizer_text_clear(&compare->text);
    tokenizer_text_add(&compare->text, text, length, false);
    compare->tokens.count = 0;
    return tokenizer_encode(compare->encoder, &compare->text, &compare->tokens, err);
}

static int compare_one(struct compare *compare, const char *text, size_t length,
                       const int32_t *want, int64_t want_count, struct err *err)
{
    CLEANUP(buf_done) struct buf decoded;
    buf_init(&decoded, 1 << 20);
    int64_t before = clock_monotonic_ns();
    TRY(compare_encode(compare, text, length, err));
    compare->ns += clock_monotonic_ns() - before;
    compare->strings++;
    compare->bytes += (int64_t)length;
    compare->all_tokens += compare->tokens.count;
    size_t bytes = (size_t)want_count * sizeof *want;
    if (compare->tokens.count != want_count || memcmp(compare->tokens.ids, want, bytes) != 0) {
        if (compare->bad++ < SHOWN_MAX)
            compare_show("ids differ", text, length, want, want_count, &compare->tokens);
        return 0;
    }
    TRY(tokenizer_decode(compare->tokenizer, want, want_count, &decoded, err));
    TRY(compare_encode(compare, buf_str(&decoded), decoded.length, err));
    if (compare->tokens.count != want_count || memcmp(compare->tokens.ids, want, bytes) != 0)
        if (compare->bad++ < SHOWN_MAX)
            compare_show("decoding differs", text, length, want, want_count, &compare->tokens);
    return 0;
}

static int compare_all(struct compare *compare, const char *folder, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "ids.bin");
    CLEANUP(buf_done) struct buf file;
    buf_init(&file, 1 << 30);
    int64_t before = clock_monotonic_ns();
    TRY(tokenizer_load(folder, &compare->tokenizer, err));
    printf("%s: loaded in %.2f s\n", folder, (double)(clock_monotonic_ns() - before) * 1e-9);
    TRY(tokenizer_encoder_new(compare->tokenizer, &compare->encoder, err));
    TRY(io_read_file(path, 1 << 30, &file, err));
    for (size_t at = 0; at < file.length;) {
        uint32_t head[2]; /* bytes, tokens */
        memcpy(head, file.data + at, sizeof head);
        const char *text = file.data + at + sizeof head;
        CLEANUP(mem_free_ptr) int32_t *ids = mem_new(head[1] + 1, sizeof *ids);
        memcpy(ids, text + head[0], head[1] * sizeof *ids);
        TRY(compare_one(compare, text, head[0], ids, head[1], err));
        at += sizeof head + head[0] + head[1] * sizeof *ids;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct compare compare = {.bad = 0};
    struct err err = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: compare_tokens FOLDER\n");
        return 64;
    }
    tokenizer_text_init(&compare.text);
    int rc = compare_all(&compare, argv[1], &err);
    if (rc != 0)
        printf("error: %s\n", err.text);
    double seconds = (double)compare.ns * 1e-9;
    printf("%s: %" PRId64 " strings, %" PRId64 " bytes, %" PRId64
           " differ, %.2f MB/s, %.2f Mtok/s\n",
           argv[1], compare.strings, compare.bytes, compare.bad,
           (double)compare.bytes / seconds * 1e-6, (double)compare.all_tokens / seconds * 1e-6);
    tokens_done(&compare.tokens);
    tokenizer_text_done(&compare.text);
    tokenizer_encoder_free(compare.encoder);
    tokenizer_free(compare.tokenizer);
    return rc != 0 || compare.bad > 0 || compare.strings == 0;
}
