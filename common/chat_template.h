/* chat_template: a conversation as token ids with a loss mask.
 *
 * A model's own template is Jinja (chat_template.jinja, or tokenizer_config.json's chat_template).
 * It is not run: its text is recognised, and a renderer built in says the same thing. Served:
 *
 *   tiny        the built-in byte tokenizer: <|begin|>, then <|role|> + content + <|end|>
 *   llama3      Llama 3: headers, content trimmed, <|eot_id|>; no tools
 *   llama3.1    Llama 3.1, 3.2 and 3.3: the same behind a system message with the dates of the
 *               template (3.2 would put today's date there; training text must not change from day
 *               to day, so it is 26 Jul 2024 as in 3.1); tools stand in the first user message
 *   chatml      plain ChatML and Qwen2's, without tools
 *   qwen2.5     ChatML with a system message of its own where the conversation has none, and tools
 *   qwen3       ChatML with <think> blocks and tools
 *
 * One that is not recognised is refused (ERR_MODEL) unless data.chat_template names a renderer.
 *
 * Trained: what an assistant's turn holds after its header, to its end token, that is content,
 * tool calls, and the <think> block that Qwen3's template puts before an answer. Not trained: turns
 * with weight 0, headers, and the first token, which nothing predicts. train_on last: the last such
 * turn only; all: every token but turns with weight 0.
 *
 * Text of special tokens inside content stays text (a Jinja engine in front of a tokenizer would
 * read it as the token). What a template would drop (content beside a Llama 3.1 tool call) is
 * refused, never dropped. Held to the reference renderer by tests/reference. */
#pragma once
#include "common/conversation.h"
#include "common/err.h"
#include "common/job_spec.h"
#include "common/tokenizer.h"
#include "common/tokens.h"

#include <stdbool.h>
#include <stdint.h>

struct chat_template;
/* kind AUTO: the model's own template. The tokenizer stays the caller's. */
int chat_template_load(const char *model_dir, const struct tokenizer *tokenizer, enum job_chat kind,
                       struct chat_template **ret, struct err *err);
void chat_template_free(struct chat_template *chat);
const char *chat_template_builtin_text(void);                     /* `tiny` in Jinja */
const char *chat_template_name(const struct chat_template *chat); /* "qwen3", as in the list */

/* What one thread renders with: the result, and memory kept from one conversation to the next. {0}
 * is a valid start; it belongs to the tokenizer that it is first used with. */
struct chat_writer {
    struct tokens tokens;              /* of what was rendered last */
    struct tokenizer_text text;        /* between two special tokens */
    struct tokenizer_encoder *encoder; /* NULL before the first use */
};
/* Empties it; the rest of this header calls it. */
int chat_writer_start(struct chat_writer *writer, const struct tokenizer *tokenizer,
                      struct err *err);
void chat_writer_done(struct chat_writer *writer);

/* Renders into writer->tokens. ERR_DATA, naming the message, for what the template cannot say. */
int chat_template_render(const struct chat_template *chat, const struct conversation *conversation,
                         enum job_train_on train_on, struct chat_writer *writer, struct err *err);
/* The prompt for an answer of the assistant; nothing in it is trained. */
int chat_template_prompt(const struct chat_template *chat, const struct conversation *conversation,
                         struct chat_writer *writer, struct err *err);
int32_t chat_template_stop(const struct chat_template *chat); /* id that ends an answer */
