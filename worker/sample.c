/* sample: the conversation's side: request, prompt, the loop over tokens, answer. The model's side
 * is sample_model.c. */
#include "worker/sample.h"

#include "common/chat_template.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/tokenizer.h"
#include "common/utf8.h"
#include "worker/sample_model.h"

#include <string.h>

enum { SAMPLE_TOKENS_DEFAULT = 256 };

struct sample {
    struct tokenizer *tokenizer;
    struct chat_template *chat;
    struct sample_model *model;
    struct chat_writer writer; /* the prompt's tokens, then the answer's as it grows */
};

static void sample_done(struct sample *sample)
{
    sample_model_free(sample->model);
    chat_writer_done(&sample->writer);
    chat_template_free(sample->chat);
    tokenizer_free(sample->tokenizer);
}

static int sample_print(struct sample *sample, int64_t prompt, const char *finish, FILE *answer,
                        struct err *err)
{
    int64_t count = sample->writer.tokens.count - prompt;
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_JSON_BODY_BYTES);
    TRY(tokenizer_decode(sample->tokenizer, sample->writer.tokens.ids + prompt, count, &text, err));
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] == '\0')
            text.data[i] = '?';
    if (text.length > 0)
        utf8_scrub(text.data);
    CLEANUP(json_unref)
    json_t *json =
        json_pack("{s:s, s:s, s:I, s:I}", "text", buf_str(&text), "finish_reason", finish,
                  "prompt_tokens", (json_int_t)prompt, "completion_tokens", (json_int_t)count);
    CLEANUP(buf_done) struct buf out;
    buf_init(&out, (size_t)2 * LIMIT_JSON_BODY_BYTES);
    if (json == NULL)
        return mem_fail(err, text.length, "the answer");
    TRY(json_print(json, &out, err));
    if (fprintf(answer, "%s\n", buf_str(&out)) < 0 || fflush(answer) != 0)
        return err_set(err, ERR_IO, "the answer could not be written");
    return 0;
}

static int sample_generate(struct sample *sample, int64_t tokens_max, const char **ret_finish,
                           struct err *err)
{
    struct tokens *tokens = &sample->writer.tokens;
    *ret_finish = "length";
    for (int64_t done = 0; tokens->count < tokens_max;) {
        int32_t next;
        TRY(sample_model_next(sample->model, tokens->ids + done, tokens->count - done, &next, err));
        done = tokens->count;
        if (next == chat_template_stop(sample->chat)) {
            *ret_finish = "stop";
            return 0;
        }
        TRY(tokens_push(tokens, next, false, err));
    }
    return 0;
}

/* The renderer that the request names: a model tuned from one without a template has none itself.
 */
static int sample_chat(const char *model_dir, const json_t *json, struct sample *sample,
                       struct err *err)
{
    const char *name = job_chat_name(JOB_chat_AUTO);
    int kind = 0;
    if (json_object_get(json, "chat_template") != NULL)
        TRY(json_get_string(json, "chat_template", ERR_BAD_REQUEST, &name, err));
    while (kind < JOB_chat_COUNT && strcmp(job_chat_name((enum job_chat)kind), name) != 0)
        kind++;
    if (kind == JOB_chat_COUNT)
        return err_set_field(err, ERR_BAD_REQUEST, "chat_template", "there is no template %s",
                             name);
    return chat_template_load(model_dir, sample->tokenizer, (enum job_chat)kind, &sample->chat,
                              err);
}

static int sample_prompt(struct sample *sample, const json_t *json, struct err *err)
{
    CLEANUP(conversation_done) struct conversation conversation = {0};
    struct conversation_fault wrong;
    if (!conversation_from_openai(json_object_get(json, "messages"), json_object_get(json, "tools"),
                                  &conversation, &wrong))
        return err_set_field(err, ERR_BAD_REQUEST, "messages", "%s", wrong.text);
    return chat_template_prompt(sample->chat, &conversation, &sample->writer, err);
}

int sample_main(const char *model_dir, FILE *request, FILE *answer, struct err *err)
{
    CLEANUP(sample_done) struct sample sample = {0};
    CLEANUP(json_unref) json_t *json = NULL;
    TRY(json_parse_stream(request, LIMIT_JSON_BODY_BYTES, "the request", &json, err));
    int64_t tokens_max = SAMPLE_TOKENS_DEFAULT;
    if (json_object_get(json, "max_tokens") != NULL)
        TRY(json_get_i64(json, "max_tokens", ERR_BAD_REQUEST, &tokens_max, err));
    TRY(tokenizer_load(model_dir, &sample.tokenizer, err));
    TRY(sample_chat(model_dir, json, &sample, err));
    TRY(sample_prompt(&sample, json, err));
    int64_t prompt = sample.writer.tokens.count;
    struct model_config config;
    TRY(model_config_load(model_dir, &config, err));
    if (tokens_max < 1 || prompt >= config.context_max)
        return err_set_field(err, ERR_BAD_REQUEST, "max_tokens",
                             "the prompt has %lld tokens and max_tokens is %lld; the model's "
                             "context is %lld",
                             (long long)prompt, (long long)tokens_max,
                             (long long)config.context_max);
    int64_t room = config.context_max - prompt;
    int64_t end = prompt + (tokens_max < room ? tokens_max : room);
    TRY(sample_model_new(model_dir, &config, end, &sample.model, err));
    const char *finish = NULL;
    TRY(sample_generate(&sample, end, &finish, err));
    return sample_print(&sample, prompt, finish, answer, err);
}
