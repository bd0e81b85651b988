/* chat_template: renderers by template text. One is built in; its Jinja text, which goes into
 * tokenizer_config.json, and chat_template_put() say the same thing twice, for two readers. */
#include "common/chat_template.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"

#include <string.h>

static const char chat_template_byte_text[] =
    "{{ '<|begin|>' }}"
    "{% for message in messages %}"
    "{% set role = 'system' if message['role'] == 'developer' else message['role'] %}"
    "{% if role not in ['system', 'user', 'assistant'] or message.get('tool_calls') %}"
    "{{ raise_exception('tools are not served by this template') }}"
    "{% endif %}"
    "{{ '<|' + role + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";

enum chat_special { CHAT_BEGIN, CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_END, CHAT_COUNT };
static const char *const chat_special_texts[CHAT_COUNT] = {
    [CHAT_BEGIN] = "<|begin|>",         [CHAT_SYSTEM] = "<|system|>", [CHAT_USER] = "<|user|>",
    [CHAT_ASSISTANT] = "<|assistant|>", [CHAT_END] = "<|end|>",
};

static const struct {
    const char *role;
    enum chat_special token;
} chat_roles[] = {
    {.role = "system", .token = CHAT_SYSTEM},
    {.role = "developer", .token = CHAT_SYSTEM},
    {.role = "user", .token = CHAT_USER},
    {.role = "assistant", .token = CHAT_ASSISTANT},
};

struct chat_template {
    const struct tokenizer *tokenizer; /* borrowed */
    int32_t ids[CHAT_COUNT];
};

const char *chat_template_builtin_text(void)
{
    return chat_template_byte_text;
}

/* The template's text: chat_template.jinja where it is, else the member of tokenizer_config.json.
 */
static int chat_template_read(const char *model_dir, struct buf *ret_text, struct err *err)
{
    CLEANUP(mem_free_ptr) char *jinja = io_join(model_dir, "chat_template.jinja");
    CLEANUP(mem_free_ptr) char *config = io_join(model_dir, "tokenizer_config.json");
    if (jinja == NULL || config == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (io_exists(jinja))
        return io_read_file(jinja, LIMIT_MODEL_CONFIG_BYTES, ret_text, err);
    CLEANUP(json_unref) json_t *json = NULL;
    int rc = json_parse_file(config, LIMIT_TOKENIZER_BYTES, &json, err);
    if (rc == -ERR_BAD_JSON || rc == -ERR_TOO_LARGE) {
        err->code = ERR_MODEL; /* the sentence stands; it is the model that is wrong */
        return -ERR_MODEL;
    }
    TRY(rc);
    const char *text = json_string_value(json_object_get(json, "chat_template"));
    if (text == NULL)
        return err_set(err, ERR_MODEL, "%s: \"chat_template\" must be there and be a string",
                       config);
    buf_text(ret_text, text);
    return buf_error(ret_text, err);
}

int chat_template_load(const char *model_dir, const struct tokenizer *tokenizer,
                       struct chat_template **ret, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_MODEL_CONFIG_BYTES);
    TRY(chat_template_read(model_dir, &text, err));
    if (strcmp(buf_str(&text), chat_template_byte_text) != 0)
        return err_set(err, ERR_MODEL,
                       "%s: this chat template is not served; served: the one of tiny-llama",
                       model_dir);
    struct chat_template chat = {.tokenizer = tokenizer};
    for (int i = 0; i < CHAT_COUNT; i++) {
        chat.ids[i] = tokenizer_special(tokenizer, chat_special_texts[i]);
        if (chat.ids[i] < 0)
            return err_set(err, ERR_MODEL, "%s: the tokenizer lacks %s, which the template needs",
                           model_dir, chat_special_texts[i]);
    }
    *ret = mem_new(1, sizeof **ret);
    if (*ret == NULL)
        return mem_fail(err, sizeof **ret, "a chat template");
    **ret = chat;
    return 0;
}

void chat_template_free(struct chat_template *chat)
{
    mem_free(chat);
}

void chat_writer_done(struct chat_writer *writer)
{
    tokens_done(&writer->tokens);
    tokenizer_text_done(&writer->text);
    tokenizer_encoder_free(writer->encoder);
    *writer = (struct chat_writer){.encoder = NULL};
}

static int chat_writer_start(struct chat_writer *writer, const struct chat_template *chat,
                             struct err *err)
{
    writer->tokens.count = 0;
    if (writer->encoder != NULL)
        return 0;
    tokenizer_text_init(&writer->text);
    return tokenizer_encoder_new(chat->tokenizer, &writer->encoder, err);
}

/* Role token of a message and its content, or ERR_DATA. */
static int chat_template_message(const struct chat_template *chat, const json_t *messages,
                                 size_t index, int32_t *ret_role, const json_t **ret_content,
                                 struct err *err)
{
    const json_t *message = json_array_get(messages, index);
    const json_t *role = json_object_get(message, "role");
    const json_t *content = json_object_get(message, "content");
    if (!json_is_string(role))
        return err_set(err, ERR_DATA, "messages[%zu]: \"role\" must be a string", index);
    const json_t *calls = json_object_get(message, "tool_calls");
    if (strcmp(json_string_value(role), "tool") == 0 || json_array_size(calls) > 0)
        return err_set(err, ERR_DATA,
                       "messages[%zu]: tools are not served by this model's template", index);
    if (!json_is_string(content))
        return err_set(err, ERR_DATA, "messages[%zu]: \"content\" must be a string", index);
    for (size_t i = 0; i < sizeof chat_roles / sizeof chat_roles[0]; i++) {
        if (strcmp(json_string_value(role), chat_roles[i].role) != 0)
            continue;
        *ret_role = chat->ids[chat_roles[i].token];
        *ret_content = content;
        return 0;
    }
    return err_set(err, ERR_DATA, "messages[%zu]: role \"%.32s\" is not served by this template",
                   index, json_string_value(role));
}

static int chat_template_put(const struct chat_template *chat, const json_t *messages, size_t index,
                             bool train, bool train_all, struct chat_writer *writer,
                             struct err *err)
{
    int32_t role = -1;
    const json_t *content = NULL;
    TRY(chat_template_message(chat, messages, index, &role, &content, err));
    TRY(tokens_push(&writer->tokens, role, train_all, err));
    tokenizer_text_clear(&writer->text);
    tokenizer_text_add(&writer->text, json_string_value(content), json_string_length(content),
                       train);
    TRY(tokenizer_encode(writer->encoder, &writer->text, &writer->tokens, err));
    return tokens_push(&writer->tokens, chat->ids[CHAT_END], train, err);
}

static bool chat_template_is_assistant(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role != NULL && strcmp(role, "assistant") == 0;
}

static bool chat_template_weighs(const json_t *message)
{
    const json_t *weight = json_object_get(message, "weight");
    return !json_is_number(weight) || json_number_value(weight) != 0;
}

int chat_template_render(const struct chat_template *chat, const json_t *messages,
                         enum job_train_on train_on, struct chat_writer *writer, struct err *err)
{
    size_t last = 0; /* the last assistant message */
    size_t index;
    const json_t *message;
    json_array_foreach((json_t *)messages, index, message) /* reads only; it wants non-const */
        if (chat_template_is_assistant(message)) last = index;
    TRY(chat_writer_start(writer, chat, err));
    TRY(tokens_push(&writer->tokens, chat->ids[CHAT_BEGIN], false, err));
    bool all = train_on == JOB_train_on_ALL;
    json_array_foreach((json_t *)messages, index, message)
    {
        bool answer =
            chat_template_is_assistant(message) && (train_on != JOB_train_on_LAST || index == last);
        TRY(chat_template_put(chat, messages, index,
                              (all || answer) && chat_template_weighs(message), all, writer, err));
    }
    return 0;
}

int chat_template_prompt(const struct chat_template *chat, const json_t *messages,
                         struct chat_writer *writer, struct err *err)
{
    TRY(chat_template_render(chat, messages, JOB_train_on_ASSISTANT, writer, err));
    TRY(tokens_push(&writer->tokens, chat->ids[CHAT_ASSISTANT], false, err));
    memset(writer->tokens.trained, 0, (size_t)writer->tokens.count);
    return 0;
}

int32_t chat_template_stop(const struct chat_template *chat)
{
    return chat->ids[CHAT_END];
}
