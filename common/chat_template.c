/* chat_template: recognising a template and running its renderer.
 *
 * A template is known by the hash of its text after three steps: "\n" spelled with a backslash (as
 * some files have it inside string literals) becomes a line feed and CRLF too; white space at the
 * end goes; and a ChatML template's own system message, which differs from model to model, is taken
 * out and kept. Qwen2.5's has two editions of one sentence, with braces doubled in the first. */
#include "common/chat_template.h"

#include "common/chat_render.h"
#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/must.h"
#include "common/utf8.h"

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

/* By the hash of the text as chat_template_normalize() leaves it. */
static const struct {
    char hash[IO_HASH_BYTES];
    const struct chat_renderer *renderer;
    bool braces_doubled;
} chat_template_known[] = {
    {.hash = "667f44476e9b9faa0a2f569b5d41f6b0", .renderer = &chat_tiny_renderer},
    {.hash = "09facc0e4aa943189799ad6e2dea0594", .renderer = &chat_llama_renderer},
    {.hash = "05ac78533d6fb928da8ae4616203881a", .renderer = &chat_llama31_renderer},
    {.hash = "51839d38c9ee4e80ba28f0d41aa45594", .renderer = &chat_llama31_renderer}, /* 3.2 */
    {.hash = "f0a6a8278439fdb056191e205a440263", .renderer = &chat_chatml_renderer},
    {.hash = "214702a813e0fbed0d6850922b3e41b2", .renderer = &chat_chatml_renderer}, /* Qwen2 */
    {.hash = "59d42b6cf3786c448aa1162b80a70c7a", .renderer = &chat_qwen25_renderer},
    {.hash = "fe319236053001b3396a24fa8002acbb",
     .renderer = &chat_qwen25_renderer,
     .braces_doubled = true},
    {.hash = "39df3fa40a20c7605a33498785c53d45", .renderer = &chat_qwen3_renderer},
    {.hash = "205bbe22d93805964372a702009a6e39",
     .renderer = &chat_qwen3_renderer}, /* 2nd edition */
};

static const struct chat_renderer *const chat_template_renderers[JOB_chat_COUNT] = {
    [JOB_chat_TINY] = &chat_tiny_renderer,       [JOB_chat_LLAMA3] = &chat_llama_renderer,
    [JOB_chat_LLAMA31] = &chat_llama31_renderer, [JOB_chat_CHATML] = &chat_chatml_renderer,
    [JOB_chat_QWEN25] = &chat_qwen25_renderer,   [JOB_chat_QWEN3] = &chat_qwen3_renderer,
};

const char *chat_template_builtin_text(void)
{
    return chat_template_byte_text;
}

/* The template's text: chat_template.jinja where it is, else the member of tokenizer_config.json,
 * which may be a list of named ones: then the one called "default". */
static int chat_template_read(const char *model_dir, struct buf *ret_text, struct err *err)
{
    CLEANUP(mem_free_ptr) char *jinja = io_join(model_dir, "chat_template.jinja");
    CLEANUP(mem_free_ptr) char *config = io_join(model_dir, "tokenizer_config.json");
    if (jinja == NULL || config == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (io_exists(jinja))
        return io_read_file(jinja, LIMIT_MODEL_CONFIG_BYTES, ret_text, err);
    CLEANUP(json_unref) json_t *json = NULL;
    int rc = json_parse_file_reals(config, LIMIT_TOKENIZER_BYTES, &json, err);
    if (rc == -ERR_BAD_JSON || rc == -ERR_TOO_LARGE) {
        err->code = ERR_MODEL; /* the sentence stands; it is the model that is wrong */
        return -ERR_MODEL;
    }
    if (rc != -ERR_NOT_FOUND) /* then there is no template either */
        TRY(rc);
    const json_t *given = json_object_get(json, "chat_template");
    const char *text = json_string_value(given);
    for (size_t i = 0; i < json_array_size(given); i++) {
        const json_t *row = json_array_get(given, i);
        const char *name = json_string_value(json_object_get(row, "name"));
        if (name != NULL && strcmp(name, "default") == 0)
            text = json_string_value(json_object_get(row, "template"));
    }
    if (text == NULL)
        return err_set(err, ERR_MODEL,
                       "%s: there is no \"chat_template\"; a base model has none: name one in "
                       "data.chat_template (chatml, llama3, ...), or train on {\"text\"} lines",
                       config);
    buf_text(ret_text, text);
    return buf_error(ret_text, err);
}

static void chat_template_replace(struct buf *text, const char *from, size_t from_length,
                                  const char *to)
{
    struct buf made;
    if (text->bad != ERR_NONE)
        return; /* what failed before is told at the end */
    buf_init(&made, text->length_max);
    const char *at = buf_str(text);
    const char *end = at + text->length;
    for (const char *next; (next = memmem(at, (size_t)(end - at), from, from_length)) != NULL;
         at = next + from_length) {
        buf_append(&made, at, (size_t)(next - at));
        buf_text(&made, to);
    }
    buf_append(&made, at, (size_t)(end - at));
    buf_done(text);
    *text = made;
}

/* Takes a ChatML template's own system message out: what stands in one literal between the header
 * of a system message and its end. NULL when there is none. */
static int chat_template_take_system(struct buf *text, char **ret_system, struct err *err)
{
    static const char header[] = "<|im_start|>system\n", end[] = "<|im_end|>";
    *ret_system = NULL;
    for (const char *at = strstr(buf_str(text), header); at != NULL; at = strstr(at, header)) {
        at += strlen(header);
        const char *stop = strstr(at, end);
        size_t length = strcspn(at, "'\"{}<\\");
        if (stop == NULL || length == 0 || at + length != stop)
            continue;
        char *system = mem_strndup(at, length);
        if (system == NULL)
            return mem_fail(err, length, "a chat template");
        chat_template_replace(text, system, length, "");
        *ret_system = system;
        return buf_error(text, err);
    }
    return 0;
}

static int chat_template_normalize(struct buf *text, char **ret_system, struct err *err)
{
    chat_template_replace(text, "\r\n", 2, "\n");
    chat_template_replace(text, "\\n", 2, "\n");
    TRY(buf_error(text, err));
    size_t spaces = utf8_spaces_after(buf_str(text), text->length);
    if (spaces > 0)
        text->data[text->length -= spaces] = '\0';
    return chat_template_take_system(text, ret_system, err);
}

static int chat_template_recognize(const char *model_dir, struct chat_template *chat,
                                   struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    char hash[IO_HASH_BYTES];
    buf_init(&text, LIMIT_MODEL_CONFIG_BYTES);
    TRY(chat_template_read(model_dir, &text, err));
    TRY(chat_template_normalize(&text, &chat->default_system, err));
    io_hash(buf_str(&text), text.length, hash);
    for (size_t i = 0; i < sizeof chat_template_known / sizeof chat_template_known[0]; i++)
        if (strcmp(chat_template_known[i].hash, hash) == 0) {
            chat->renderer = chat_template_known[i].renderer;
            chat->braces_doubled = chat_template_known[i].braces_doubled;
            return 0;
        }
    return err_set(
        err, ERR_MODEL,
        "%s: its chat template is not one that is served (hash %s); name what it is like "
        "in data.chat_template: llama3, llama3.1, chatml, qwen2.5, qwen3; or train on "
        "{\"text\"} lines, which need none",
        model_dir, hash);
}

void chat_template_free(struct chat_template *chat)
{
    if (chat == NULL)
        return;
    mem_free(chat->default_system);
    mem_free(chat);
}

static int chat_template_fill(const char *model_dir, enum job_chat kind, struct chat_template *chat,
                              struct err *err)
{
    chat->renderer = chat_template_renderers[kind];
    if (kind == JOB_chat_AUTO)
        TRY(chat_template_recognize(model_dir, chat, err));
    must(chat->renderer != NULL);
    for (int i = 0; i < CHAT_SPECIALS_MAX && chat->renderer->specials[i] != NULL; i++) {
        chat->ids[i] = tokenizer_special(chat->tokenizer, chat->renderer->specials[i]);
        if (chat->ids[i] < 0)
            return err_set(err, ERR_MODEL,
                           "%s: the tokenizer lacks %s, which the chat template %s needs",
                           model_dir, chat->renderer->specials[i], chat->renderer->name);
    }
    return 0;
}

int chat_template_load(const char *model_dir, const struct tokenizer *tokenizer, enum job_chat kind,
                       struct chat_template **ret, struct err *err)
{
    struct chat_template *chat = mem_new(1, sizeof *chat);
    if (chat == NULL)
        return mem_fail(err, sizeof *chat, "a chat template");
    chat->tokenizer = tokenizer;
    int rc = chat_template_fill(model_dir, kind, chat, err);
    if (rc != 0) {
        chat_template_free(chat);
        return rc;
    }
    *ret = chat;
    return 0;
}

const char *chat_template_name(const struct chat_template *chat)
{
    return chat->renderer->name;
}

int32_t chat_template_stop(const struct chat_template *chat)
{
    return chat->ids[chat->renderer->stop];
}

/* ---- writers ---- */

enum { CHAT_KEPT_BYTES = 16 << 20 }; /* of text and tokens, from one conversation to the next */

void chat_writer_done(struct chat_writer *writer)
{
    tokens_done(&writer->tokens);
    tokenizer_text_done(&writer->text);
    tokenizer_encoder_free(writer->encoder);
    *writer = (struct chat_writer){.encoder = NULL};
}

int chat_writer_start(struct chat_writer *writer, const struct tokenizer *tokenizer,
                      struct err *err)
{
    if (writer->encoder == NULL)
        TRY(tokenizer_encoder_new(tokenizer, &writer->encoder, err));
    if (writer->text.bytes.length_max == 0 || writer->text.bytes.capacity > CHAT_KEPT_BYTES) {
        tokenizer_text_done(&writer->text);
        tokenizer_text_init(&writer->text);
    }
    if (writer->tokens.capacity > CHAT_KEPT_BYTES / 5)
        tokens_done(&writer->tokens);
    tokenizer_text_clear(&writer->text);
    writer->tokens.count = 0;
    return 0;
}

/* ---- rendering ---- */

static int chat_template_run(const struct chat_template *chat,
                             const struct conversation *conversation, enum job_train_on train_on,
                             bool prompt, struct chat_writer *writer, struct err *err)
{
    struct chat_render render = {.chat = chat,
                                 .conversation = conversation,
                                 .writer = writer,
                                 .train_on = train_on,
                                 .count = json_array_size(conversation->messages),
                                 .err = err};
    must(render.count > 0);
    for (size_t i = 0; i < render.count; i++)
        if (chat_render_is(&render, i, "assistant"))
            render.answer = i;
    TRY(chat_writer_start(writer, chat->tokenizer, err));
    TRY(chat->renderer->render(&render));
    if (prompt)
        TRY(chat->renderer->prompt(&render));
    return tokenizer_encode(writer->encoder, &writer->text, &writer->tokens, err);
}

int chat_template_render(const struct chat_template *chat, const struct conversation *conversation,
                         enum job_train_on train_on, struct chat_writer *writer, struct err *err)
{
    return chat_template_run(chat, conversation, train_on, false, writer, err);
}

int chat_template_prompt(const struct chat_template *chat, const struct conversation *conversation,
                         struct chat_writer *writer, struct err *err)
{
    TRY(chat_template_run(chat, conversation, JOB_train_on_ASSISTANT, true, writer, err));
    memset(writer->tokens.trained, 0, (size_t)writer->tokens.count);
    return 0;
}
