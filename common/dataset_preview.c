/* dataset_preview: the rows pass the same gates as when the file is prepared (dataset_row); only
 * what becomes of their tokens differs. */
#include "common/dataset_preview.h"

#include "common/dataset_foreign.h"
#include "common/dataset_source.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/utf8.h"

#include <string.h>

struct preview {
    const struct dataset_request *request;
    struct dataset_source source;
    struct chat_writer writer;
    struct dataset_foreign foreign;
    json_t *rows;
    bool stop; /* the file as a whole was refused */
};

static void preview_done(struct preview *preview)
{
    dataset_source_close(&preview->source);
    chat_writer_done(&preview->writer);
    json_decref(preview->rows);
}

/* Bytes as a JSON string of at most so many: what is no UTF-8 becomes '?'. */
static json_t *preview_text(struct buf *text)
{
    for (size_t i = 0; i < text->length; i++)
        if (text->data[i] == '\0')
            text->data[i] = '?';
    if (text->length > DATASET_PREVIEW_TEXT) {
        text->data[DATASET_PREVIEW_TEXT] = '\0';
        utf8_cut(text->data);
    }
    if (text->length > 0)
        utf8_scrub(text->data);
    return json_string(buf_str(text));
}

/* Tokens from `at` on that are all trained or all not; *ret_end is the first of another kind. */
static json_t *preview_run(const struct preview *preview, const struct tokens *tokens, int64_t at,
                           int64_t *ret_end, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_JSON_BODY_BYTES);
    int64_t end = at;
    for (; end < tokens->count && tokens->trained[end] == tokens->trained[at]; end++) {
        bool known = tokens->ids[end] < tokenizer_vocab(preview->source.tokenizer);
        if (known && text.length <= DATASET_PREVIEW_TEXT &&
            tokenizer_spell(preview->source.tokenizer, tokens->ids[end], &text, err) != 0)
            return NULL;
    }
    *ret_end = end;
    return json_pack("{s:b, s:I, s:o}", "trained", tokens->trained[at] != 0, "tokens",
                     (json_int_t)(end - at), "text", preview_text(&text));
}

/* Roles of a conversation, in order; empty for other rows. */
static json_t *preview_roles(const struct preview *preview, const struct dataset_row *row)
{
    struct example example = {.kind = EXAMPLE_CHAT};
    struct example_fault fault;
    json_t *roles = json_array();
    if (preview->source.rules.text ||
        !example_read(row->bytes, (size_t)row->length, &example, &fault))
        return roles;
    for (size_t i = 0; i < json_array_size(example.conversation.messages); i++)
        (void)json_array_append(
            roles, /* what is left out is seen */
            json_object_get(json_array_get(example.conversation.messages, i), "role"));
    example_done(&example);
    return roles;
}

static json_t *preview_refused(const struct dataset_row *row)
{
    return json_pack("{s:I, s:b, s:s, s:I, s:s}", "line",
                     (json_int_t)(row->number + row->fault.line), "kept", 0, "code",
                     row->fault.code, "column", (json_int_t)row->fault.column, "message",
                     row->fault.text);
}

static json_t *preview_kept(const struct preview *preview, const struct dataset_row *row,
                            struct err *err)
{
    const struct tokens *tokens = &row->tokens;
    int64_t seq_len = preview->request->seq_len;
    bool chunks = preview->request->overlength == JOB_overlength_CHUNK;
    int64_t used = chunks || tokens->count < seq_len ? tokens->count : seq_len;
    int64_t trained = 0;
    CLEANUP(json_unref) json_t *runs = json_array();
    CLEANUP(json_unref) json_t *ids = json_array();
    for (int64_t t = 0; t < used; t++) /* the first token of a sequence is never trained */
        trained += tokens->trained[t] && t % seq_len > 0;
    for (int64_t at = 0; at < tokens->count && json_array_size(runs) < DATASET_PREVIEW_RUNS;) {
        json_t *run = preview_run(preview, tokens, at, &at, err);
        if (run == NULL || json_array_append_new(runs, run) != 0)
            return NULL;
    }
    for (int64_t t = 0; t < tokens->count && t < DATASET_PREVIEW_IDS; t++)
        if (json_array_append_new(ids, json_integer(tokens->ids[t])) != 0)
            return NULL;
    return json_pack(
        "{s:I, s:b, s:I, s:I, s:I, s:I, s:o, s:O, s:O}", "line", (json_int_t)row->number, "kept",
        trained > 0, "tokens", (json_int_t)tokens->count, "trained_tokens", (json_int_t)trained,
        "used_tokens", (json_int_t)used, "sequences", (json_int_t)((used + seq_len - 1) / seq_len),
        "roles", preview_roles(preview, row), "runs", runs, "ids", ids);
}

static int preview_row(struct preview *preview, const struct line *line, struct err *err)
{
    struct dataset_row row = {.bytes = line->bytes,
                              .length = line->length,
                              .number = line->number,
                              .too_long = line->too_long};
    int rc = dataset_row_render(&preview->source.rules, &preview->writer, &row, err);
    preview->stop = dataset_foreign_row(&preview->foreign, &row);
    if (rc == 0 && row.kept && row.tokens.count > preview->request->seq_len &&
        preview->request->overlength == JOB_overlength_REFUSE) {
        row.kept = false;
        example_fault_set(&row.fault, "overlength", 0,
                          "the example has %lld tokens, seq_len is %lld",
                          (long long)row.tokens.count, (long long)preview->request->seq_len);
    }
    if (rc == 0) {
        json_t *json = row.kept ? preview_kept(preview, &row, err) : preview_refused(&row);
        if (json == NULL || json_array_append_new(preview->rows, json) != 0)
            rc = mem_fail(err, (size_t)row.length, "a preview");
    }
    dataset_row_done(&row);
    return rc;
}

/* The row that the file breaks off in. */
static int preview_broken(struct preview *preview, const char *why, struct err *err)
{
    struct dataset_row row = {.number = preview->source.reader.lines + 1};
    dataset_foreign_broken(why, &row.fault);
    preview->stop = true;
    return json_array_append_new(preview->rows, preview_refused(&row)) == 0
               ? 0
               : mem_fail(err, sizeof row, "a preview");
}

int dataset_preview(const struct dataset_request *request, int64_t rows, json_t **ret,
                    struct err *err)
{
    must(rows > 0 && rows <= DATASET_PREVIEW_ROWS_MAX);
    CLEANUP(preview_done) struct preview preview = {.request = request, .rows = json_array()};
    TRY(dataset_source_open(&preview.source, request, err));
    struct line line = {.end = false};
    for (int64_t row = 0; row <= rows && !preview.stop && !line.end; row++) {
        struct err broken;
        int rc = line_reader_next(&preview.source.reader, &line, &broken);
        if (rc != 0 && rc != -ERR_DATA) {
            *err = broken;
            return rc;
        }
        if (row == rows) /* it was only to see whether there is one */
            break;
        if (rc != 0)
            TRY(preview_broken(&preview, broken.text, err));
        else if (!line.end)
            TRY(preview_row(&preview, &line, err));
    }
    *ret = json_pack("{s:s, s:s, s:I, s:b, s:O}", "object", "fine_tuning.preview", "template",
                     preview.source.chat != NULL ? chat_template_name(preview.source.chat) : "",
                     "seq_len", (json_int_t)request->seq_len, "more", !line.end && !preview.stop,
                     "rows", preview.rows);
    return *ret != NULL ? 0 : mem_fail(err, 1 << 16, "a preview");
}
