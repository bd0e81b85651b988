/* chat_template: a conversation as token ids with a loss mask.
 *
 * The built-in template of the byte tokenizer: <|begin|>, then per message <|role|> + content +
 * <|end|>; developer counts as system. Trained: the content of assistant messages and its <|end|>,
 * unless the message has weight 0; never a role token, and never the first token, which nothing
 * predicts. A generation prompt ends with <|assistant|>. Text of special tokens inside content
 * stays text (a Jinja engine in front of a tokenizer would read it as the token).
 *
 * The model's template text (chat_template.jinja, or tokenizer_config.json's chat_template) picks
 * the renderer; one that is not recognised is refused (ERR_MODEL). */
#pragma once
#include "common/err.h"
#include "common/job_spec.h"
#include "common/json.h"
#include "common/tokenizer.h"
#include "common/tokens.h"

#include <stdbool.h>
#include <stdint.h>

struct chat_template;
int chat_template_load(const char *model_dir, const struct tokenizer *tokenizer,
                       struct chat_template **ret, struct err *err);
void chat_template_free(struct chat_template *chat);
const char *chat_template_builtin_text(void); /* the built-in template in Jinja */

/* What one thread renders with: the result, and memory kept from one conversation to the next. {0}
 * is a valid start; it belongs to the template that it is first used with. */
struct chat_writer {
    struct tokens tokens;              /* of the conversation rendered last */
    struct tokenizer_text text;        /* between two special tokens */
    struct tokenizer_encoder *encoder; /* NULL before the first use */
};
void chat_writer_done(struct chat_writer *writer);

/* messages: an array of {role, content, weight?}, as chat_jsonl_check passes it. Clears
 * writer->tokens first. ERR_DATA, naming the message, for one that the template cannot render.
 */
int chat_template_render(const struct chat_template *chat, const json_t *messages,
                         enum job_train_on train_on, struct chat_writer *writer, struct err *err);
/* The prompt for an answer of the assistant. */
int chat_template_prompt(const struct chat_template *chat, const json_t *messages,
                         struct chat_writer *writer, struct err *err);
int32_t chat_template_stop(const struct chat_template *chat); /* id that ends an answer */
