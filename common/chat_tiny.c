/* chat_tiny: the template of the built-in byte tokenizer. Its Jinja text, in chat_template.c, and
 * this say the same thing twice, for two readers. */
#include "common/chat_render.h"

enum { TINY_BEGIN, TINY_SYSTEM, TINY_USER, TINY_ASSISTANT, TINY_END };

static int tiny_render(struct chat_render *render)
{
    bool all = chat_render_all(render);
    TRY(chat_render_no_tools(render));
    TRY(chat_render_special(render, TINY_BEGIN, false));
    for (size_t i = 0; i < render->count; i++) {
        bool trained = chat_render_trains(render, i);
        int role = chat_render_is(render, i, "system") ? TINY_SYSTEM
                   : chat_render_is(render, i, "user") ? TINY_USER
                                                       : TINY_ASSISTANT;
        TRY(chat_render_special(render, role, all));
        chat_render_string(render, json_object_get(chat_render_message(render, i), "content"),
                           trained);
        TRY(chat_render_special(render, TINY_END, trained));
    }
    return 0;
}

static int tiny_prompt(struct chat_render *render)
{
    return chat_render_special(render, TINY_ASSISTANT, false);
}

const struct chat_renderer chat_tiny_renderer = {
    .name = "tiny",
    .specials = {[TINY_BEGIN] = "<|begin|>",
                 [TINY_SYSTEM] = "<|system|>",
                 [TINY_USER] = "<|user|>",
                 [TINY_ASSISTANT] = "<|assistant|>",
                 [TINY_END] = "<|end|>"},
    .stop = TINY_END,
    .render = tiny_render,
    .prompt = tiny_prompt,
};
