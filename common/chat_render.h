/* chat_render: what renderers of chat templates share. A renderer walks the messages and puts text
 * and special tokens down in order; text between two special tokens is encoded as one, as a
 * tokenizer behind a Jinja engine would.
 *
 * Part of chat_template: nobody else includes this. */
#pragma once
#include "common/chat_template.h"

enum { CHAT_SPECIALS_MAX = 5 };

struct chat_render {
    const struct chat_template *chat;
    const struct conversation *conversation;
    struct chat_writer *writer;
    enum job_train_on train_on;
    size_t count;  /* messages */
    size_t answer; /* index of the last message of the assistant */
    struct err *err;
};

struct chat_renderer {
    const char *name;
    const char *specials[CHAT_SPECIALS_MAX]; /* texts of added tokens, by the renderer's own enum */
    int stop;                                /* which of them ends an answer */
    int (*render)(struct chat_render *render);
    int (*prompt)(struct chat_render *render); /* what asks for an answer, after render */
};

struct chat_template {
    const struct tokenizer *tokenizer; /* borrowed */
    const struct chat_renderer *renderer;
    int32_t ids[CHAT_SPECIALS_MAX];
    char *default_system; /* chatml: said where the conversation has no system message; or NULL */
    bool braces_doubled;  /* qwen2.5: as its first edition spells the form of a tool call */
};

extern const struct chat_renderer chat_tiny_renderer, chat_llama_renderer, chat_llama31_renderer,
    chat_chatml_renderer, chat_qwen25_renderer, chat_qwen3_renderer;

/* Text of `trained` words; a failure shows at the next special token. */
void chat_render_text(struct chat_render *render, const char *text, bool trained);
void chat_render_string(struct chat_render *render, const json_t *string, bool trained);
void chat_render_bytes(struct chat_render *render, const char *bytes, size_t length, bool trained);
void chat_render_json(struct chat_render *render, const json_t *value, int indent, bool trained);
int chat_render_special(struct chat_render *render, int which, bool trained);

const json_t *chat_render_message(const struct chat_render *render, size_t index);
const char *chat_render_role(const struct chat_render *render, size_t index);
bool chat_render_is(const struct chat_render *render, size_t index, const char *role);
const json_t *chat_render_calls(const struct chat_render *render, size_t index); /* or NULL */
bool chat_render_trains(const struct chat_render *render, size_t index); /* what the turn holds */
bool chat_render_all(const struct chat_render *render);                  /* headers too */
int chat_render_no_tools(const struct chat_render *render); /* ERR_DATA when there are any */
