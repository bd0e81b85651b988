/* dataset_row: a row passes these gates in order and stops at the first that refuses it: length,
 * blank, the format (example), the template or the tokenizer. Lengths in tokens are judged later,
 * in the order of the file. */
#include "common/dataset_row.h"

#include "common/document.h"
#include "common/mem.h"
#include "common/utf8.h"

#include <string.h>

void dataset_row_done(struct dataset_row *row)
{
    tokens_done(&row->tokens);
}

static int dataset_row_tokens(const struct dataset_rules *rules, const struct example *example,
                              struct dataset_row *row, struct err *err)
{
    size_t count = json_array_size(example->ids);
    for (size_t i = 0; i < count; i++) {
        json_int_t id = json_integer_value(json_array_get(example->ids, i));
        if (id >= rules->vocab) {
            example_fault_set(&row->fault, "unserved_ids", 0,
                              "input_ids[%zu] is %lld; the model's vocabulary has %lld ids", i,
                              (long long)id, (long long)rules->vocab);
            return -ERR_DATA;
        }
        bool trained =
            example->labels == NULL || json_integer_value(json_array_get(example->labels, i)) >= 0;
        TRY(tokens_push(&row->tokens, (int32_t)id, trained && i > 0, err));
    }
    return 0;
}

static int dataset_row_example(const struct dataset_rules *rules, struct chat_writer *writer,
                               const struct example *example, struct dataset_row *row,
                               struct err *err)
{
    switch (example->kind) {
    case EXAMPLE_TOKENS:
        return dataset_row_tokens(rules, example, row, err);
    case EXAMPLE_TEXT:
        return document_render(rules->tokenizer, json_string_value(example->text),
                               json_string_length(example->text), writer, err);
    case EXAMPLE_CHAT:
        break;
    }
    if (rules->chat == NULL) {
        *err = rules->chat_err;
        return -(int)err->code;
    }
    return chat_template_render(rules->chat, &example->conversation, rules->request->train_on,
                                writer, err);
}

static bool dataset_row_blank(const struct dataset_row *row)
{
    return (size_t)row->length == strspn(row->bytes, " \t\r\n");
}

/* The byte of a plain text that is no UTF-8, with its place; false where all of it is. */
static bool dataset_row_utf8_fault(struct dataset_row *row)
{
    size_t good = utf8_prefix(row->bytes, (size_t)row->length), start = 0;
    int64_t lines = 0;
    if (good == (size_t)row->length)
        return false;
    for (size_t i = 0; i < good; i++)
        if (row->bytes[i] == '\n') {
            lines++;
            start = i + 1;
        }
    example_fault_utf8(&row->fault, (int64_t)(good - start) + 1, row->bytes[good]);
    row->fault.line = lines;
    return true;
}

int dataset_row_render(const struct dataset_rules *rules, struct chat_writer *writer,
                       struct dataset_row *row, struct err *err)
{
    struct example example = {.kind = EXAMPLE_CHAT};
    int rc;
    row->kept = false;
    if (row->too_long) {
        example_fault_set(&row->fault, "line_too_long", 0,
                          "the line is %lld bytes long, the limit is %zu", (long long)row->length,
                          rules->row_bytes_max);
        return 0;
    }
    if (dataset_row_blank(row)) {
        example_fault_set(&row->fault, "blank_line", 0, "the line is blank");
        return 0;
    }
    if (rules->text) {
        if (dataset_row_utf8_fault(row)) /* not every tokenizer would mind */
            return 0;
        rc = document_render(rules->tokenizer, row->bytes, (size_t)row->length, writer, err);
    } else {
        if (!example_read(row->bytes, (size_t)row->length, &example, &row->fault))
            return strcmp(row->fault.code, "out_of_memory") == 0
                       ? mem_fail(err, (size_t)row->length, "an example")
                       : 0;
        rc = dataset_row_example(rules, writer, &example, row, err);
    }
    if (rc == -ERR_DATA && row->fault.code[0] == '\0')
        example_fault_set(&row->fault, "unserved_message", 0, "%s", err->text);
    if (rc == 0 && example.kind != EXAMPLE_TOKENS) { /* the list goes with the row */
        row->tokens = writer->tokens;
        writer->tokens = (struct tokens){0};
    }
    row->kept = rc == 0;
    example_done(&example);
    return rc == -ERR_DATA ? 0 : rc;
}
