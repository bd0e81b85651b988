/* compare_chats: our chat templates against the ids that a reference renderer and encoder wrote
 * (render.mjs).
 *
 *   compare_chats FOLDER     FOLDER has tokenizer.json, tokenizer_config.json and cases.jsonl
 *
 * The template is recognised by its text; every conversation must give the same ids. Of a training
 * conversation some token of each assistant's turn with weight must be trained. Prints the first
 * differences. Exit status 0 when there is none. */
#include "common/chat_template.h"
#include "common/io.h"
#include "common/line_reader.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_MAX = 3, CASE_BYTES_MAX = 1 << 24 };

struct compare {
    struct tokenizer *tokenizer;
    struct chat_template *chat;
    struct line_reader reader;
    struct chat_writer writer;
    int64_t cases, bad;
};

static void compare_show(const struct compare *compare, const json_t *wanted)
{
    const struct tokens *got = &compare->writer.tokens;
    printf("case %lld differs\n  want", (long long)compare->cases);
    for (size_t i = 0; i < json_array_size(wanted); i++)
        printf(" %lld", (long long)json_integer_value(json_array_get(wanted, i)));
    printf("\n  got ");
    for (int64_t i = 0; i < got->count; i++)
        printf(" %d%s", got->ids[i], got->trained[i] ? "*" : "");
    printf("\n");
}

static bool compare_masked(const struct compare *compare, const struct conversation *conversation)
{
    bool answers = false, trained = false;
    for (size_t i = 0; i < json_array_size(conversation->messages); i++) {
        const json_t *message = json_array_get(conversation->messages, i);
        const json_t *weight = json_object_get(message, "weight");
        answers = answers ||
                  (strcmp(json_string_value(json_object_get(message, "role")), "assistant") == 0 &&
                   (weight == NULL || json_integer_value(weight) == 1));
    }
    for (int64_t t = 0; t < compare->writer.tokens.count; t++)
        trained = trained || compare->writer.tokens.trained[t];
    return answers == trained;
}

static int compare_one(struct compare *compare, const struct line *line, struct err *err)
{
    CLEANUP(json_unref) json_t *json = NULL;
    CLEANUP(conversation_done) struct conversation conversation = {0};
    struct conversation_fault fault;
    TRY(json_parse(line->bytes, (size_t)line->length, "a case", &json, err));
    compare->cases++;
    if (!conversation_from_openai(json_object_get(json, "messages"), json_object_get(json, "tools"),
                                  &conversation, &fault))
        return err_set(err, ERR_DATA, "case %lld: %s", (long long)compare->cases, fault.text);
    bool prompt = json_is_true(json_object_get(json, "prompt"));
    TRY(prompt ? chat_template_prompt(compare->chat, &conversation, &compare->writer, err)
               : chat_template_render(compare->chat, &conversation, JOB_train_on_ASSISTANT,
                                      &compare->writer, err));
    const json_t *wanted = json_object_get(json, "ids");
    const struct tokens *got = &compare->writer.tokens;
    bool same = (size_t)got->count == json_array_size(wanted) &&
                (prompt || compare_masked(compare, &conversation));
    for (int64_t i = 0; i < got->count && same; i++)
        same = got->ids[i] == json_integer_value(json_array_get(wanted, (size_t)i));
    if (!same && compare->bad++ < SHOWN_MAX)
        compare_show(compare, wanted);
    return 0;
}

static int compare_all(struct compare *compare, const char *folder, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = io_join(folder, "cases.jsonl");
    TRY(tokenizer_load(folder, &compare->tokenizer, err));
    TRY(chat_template_load(folder, compare->tokenizer, JOB_chat_AUTO, &compare->chat, err));
    TRY(line_reader_open(&compare->reader, path, LINE_READER_LINES, CASE_BYTES_MAX, err));
    for (;;) {
        struct line line;
        TRY(line_reader_next(&compare->reader, &line, err));
        if (line.end)
            return 0;
        TRY(compare_one(compare, &line, err));
    }
}

int main(int argc, char **argv)
{
    struct compare compare = {.bad = 0};
    struct err err = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: compare_chats FOLDER\n");
        return 64;
    }
    int rc = compare_all(&compare, argv[1], &err);
    if (rc != 0)
        printf("error: %s\n", err.text);
    printf("%s (%s): %lld conversations, %lld differ\n", argv[1],
           compare.chat != NULL ? chat_template_name(compare.chat) : "no template",
           (long long)compare.cases, (long long)compare.bad);
    chat_writer_done(&compare.writer);
    line_reader_done(&compare.reader);
    chat_template_free(compare.chat);
    tokenizer_free(compare.tokenizer);
    return rc != 0 || compare.bad > 0 || compare.cases == 0;
}
