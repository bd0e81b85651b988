/* fuzz_example: one line of a training file. What the check takes the built-in template renders:
 * as many tokens as the messages have bytes and marks, none of them trained where the role or the
 * weight says so, and the answer to train on among them. */
#include "common/chat_template.h"
#include "common/example.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/utf8.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static struct tokenizer *tokenizer;
static struct chat_template *chat;

static void example_prepare(void)
{
    struct err err;
    must(tokenizer_write_builtin(fuzz_folder(), &err) == 0);
    must(tokenizer_load(fuzz_folder(), &tokenizer, &err) == 0);
    must(chat_template_load(fuzz_folder(), tokenizer, JOB_chat_AUTO, &chat, &err) == 0);
}

/* Tokens that each message takes, and how many of them have a loss when assistants are trained. */
static void example_expect(const json_t *messages, int64_t *ret_tokens, int64_t *ret_trained)
{
    size_t i;
    const json_t *message;
    *ret_tokens = 1;
    *ret_trained = 0;
    json_array_foreach((json_t *)messages, i, message)
    {
        int64_t bytes = (int64_t)json_string_length(json_object_get(message, "content"));
        const char *role = json_string_value(json_object_get(message, "role"));
        const json_t *weight = json_object_get(message, "weight");
        must(role != NULL);
        *ret_tokens += 2 + bytes;
        if (strcmp(role, "assistant") == 0 &&
            !(json_is_number(weight) && json_number_value(weight) == 0))
            *ret_trained += 1 + bytes;
    }
}

static void example_render(const struct conversation *conversation)
{
    struct chat_writer writer = {0};
    int64_t expected, trained_expected;
    example_expect(conversation->messages, &expected, &trained_expected);
    for (int train_on = 0; train_on < JOB_train_on_COUNT; train_on++) {
        struct err err;
        int64_t trained = 0;
        int rc =
            chat_template_render(chat, conversation, (enum job_train_on)train_on, &writer, &err);
        if (rc == -ERR_DATA) { /* tools, which this template has not */
            must(strstr(err.text, "tools") != NULL);
            break;
        }
        must(rc == 0);
        must(writer.tokens.count == expected && writer.tokens.trained[0] == 0);
        for (int64_t t = 0; t < writer.tokens.count; t++) {
            must(writer.tokens.ids[t] >= 0 && writer.tokens.ids[t] < tokenizer_vocab(tokenizer));
            must(writer.tokens.trained[t] <= 1);
            trained += writer.tokens.trained[t];
        }
        if (train_on == JOB_train_on_ASSISTANT)
            must(trained == trained_expected);
        if (train_on == JOB_train_on_LAST)
            must(trained <= trained_expected);
        must(chat_template_prompt(chat, conversation, &writer, &err) == 0);
        must(writer.tokens.count == expected + 1);
    }
    chat_writer_done(&writer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (chat == NULL)
        example_prepare();
    int64_t live = mem_live();
    struct example_fault fault = {.column = -1};
    CLEANUP(mem_free_ptr) char *line = mem_strndup((const char *)data, size);
    must(line != NULL);
    struct example example = {.kind = EXAMPLE_CHAT};
    if (example_read(line, size, &example, &fault)) {
        fuzz_taken++;
        if (example.kind == EXAMPLE_CHAT)
            example_render(&example.conversation);
        must((example.kind == EXAMPLE_TEXT) == (example.text != NULL));
        must((example.kind == EXAMPLE_TOKENS) == (example.ids != NULL));
        example_done(&example);
    } else {
        must(fault.code[0] != '\0' && fault.text[0] != '\0' && fault.column >= 0);
        must(fault.column <= (int64_t)size + 1);
        must(utf8_valid(fault.text, strlen(fault.text)));
    }
    must(mem_live() == live + 1); /* the line */
    return 0;
}
