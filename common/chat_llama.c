/* chat_llama: Llama 3 and 3.1. A message is a header with the role, two line feeds, its content
 * trimmed, and <|eot_id|>.
 *
 * Llama 3.1 puts a system message with two dates before all else, whether the conversation has one
 * or not, tools and how to call them into the first user message, and a tool's result under the
 * role ipython as a JSON string. A message has one tool call at most and nothing beside it. */
#include "common/chat_render.h"

#include "common/utf8.h"

#include <string.h>

enum { LLAMA_BEGIN, LLAMA_HEADER, LLAMA_HEADER_END, LLAMA_EOT };

/* What str.strip() of Python strips: white space and four separators of ASCII. */
static void llama_trim(const json_t *string, const char **ret_text, size_t *ret_length)
{
    const char *text = json_string_value(string);
    size_t length = json_string_length(string);
    for (size_t step = 1; step > 0 && length > 0; text += step, length -= step) {
        step = utf8_spaces(text, length);
        if (step == 0 && text[0] >= 0x1c && text[0] <= 0x1f)
            step = 1;
    }
    for (size_t step = 1; step > 0 && length > 0; length -= step) {
        step = utf8_spaces_after(text, length);
        if (step == 0 && text[length - 1] >= 0x1c && text[length - 1] <= 0x1f)
            step = 1;
    }
    *ret_text = text;
    *ret_length = length;
}

static int llama_header(struct chat_render *render, const char *role, bool trained)
{
    TRY(chat_render_special(render, LLAMA_HEADER, trained));
    chat_render_text(render, role, trained);
    TRY(chat_render_special(render, LLAMA_HEADER_END, trained));
    chat_render_text(render, "\n\n", trained);
    return 0;
}

static void llama_content(struct chat_render *render, size_t index, bool trained)
{
    const char *text;
    size_t length;
    llama_trim(json_object_get(chat_render_message(render, index), "content"), &text, &length);
    chat_render_bytes(render, text, length, trained);
}

static int llama_message(struct chat_render *render, size_t index)
{
    bool trained = chat_render_trains(render, index);
    TRY(llama_header(render, chat_render_role(render, index), chat_render_all(render)));
    llama_content(render, index, trained);
    return chat_render_special(render, LLAMA_EOT, trained);
}

static int llama_render(struct chat_render *render)
{
    TRY(chat_render_no_tools(render));
    TRY(chat_render_special(render, LLAMA_BEGIN, false));
    for (size_t i = 0; i < render->count; i++)
        TRY(llama_message(render, i));
    return 0;
}

/* ---- 3.1 ---- */

static int llama_system(struct chat_render *render, bool has_system)
{
    bool all = chat_render_all(render);
    TRY(llama_header(render, "system", all));
    if (render->conversation->tools != NULL)
        chat_render_text(render, "Environment: ipython\n", all);
    chat_render_text(render, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
                     all);
    if (has_system)
        llama_content(render, 0, chat_render_trains(render, 0));
    return chat_render_special(render, LLAMA_EOT, all);
}

static int llama_tools(struct chat_render *render, size_t index)
{
    if (!chat_render_is(render, index, "user"))
        return err_set(render->err, ERR_DATA,
                       "messages[%zu]: this template puts the tools into the first message after "
                       "the system's, which must be a user's",
                       index);
    bool trained = chat_render_trains(render, index);
    TRY(llama_header(render, "user", chat_render_all(render)));
    chat_render_text(render,
                     "Given the following functions, please respond with a JSON for a function "
                     "call with its proper arguments that best answers the given prompt.\n\n"
                     "Respond in the format {\"name\": function name, \"parameters\": dictionary "
                     "of argument name and its value}.Do not use variables.\n\n",
                     trained);
    for (size_t i = 0; i < json_array_size(render->conversation->tools); i++) {
        chat_render_json(render, json_array_get(render->conversation->tools, i), 4, trained);
        chat_render_text(render, "\n\n", trained);
    }
    llama_content(render, index, trained);
    return chat_render_special(render, LLAMA_EOT, trained);
}

static int llama_call(struct chat_render *render, size_t index)
{
    const json_t *calls = chat_render_calls(render, index);
    const json_t *message = chat_render_message(render, index);
    if (json_array_size(calls) != 1)
        return err_set(render->err, ERR_DATA,
                       "messages[%zu]: %zu tool calls; this template has one a message", index,
                       json_array_size(calls));
    if (json_string_length(json_object_get(message, "content")) > 0)
        return err_set(render->err, ERR_DATA,
                       "messages[%zu]: content beside a tool call, which this template drops; make "
                       "it a message of its own",
                       index);
    bool trained = chat_render_trains(render, index);
    const json_t *call = json_array_get(calls, 0);
    TRY(llama_header(render, "assistant", chat_render_all(render)));
    chat_render_text(render, "{\"name\": \"", trained);
    chat_render_string(render, json_object_get(call, "name"), trained);
    chat_render_text(render, "\", \"parameters\": ", trained);
    chat_render_json(render, json_object_get(call, "arguments"), 0, trained);
    chat_render_text(render, "}", trained);
    return chat_render_special(render, LLAMA_EOT, trained);
}

static int llama_result(struct chat_render *render, size_t index)
{
    bool trained = chat_render_trains(render, index);
    TRY(llama_header(render, "ipython", chat_render_all(render)));
    chat_render_json(render, json_object_get(chat_render_message(render, index), "content"), 0,
                     trained);
    return chat_render_special(render, LLAMA_EOT, trained);
}

static int llama_render31(struct chat_render *render)
{
    size_t at = chat_render_is(render, 0, "system") ? 1 : 0;
    TRY(chat_render_special(render, LLAMA_BEGIN, false));
    TRY(llama_system(render, at == 1));
    if (render->conversation->tools != NULL)
        TRY(llama_tools(render, at++));
    for (; at < render->count; at++)
        TRY(chat_render_calls(render, at) != NULL ? llama_call(render, at)
            : chat_render_is(render, at, "tool")  ? llama_result(render, at)
                                                  : llama_message(render, at));
    return 0;
}

static int llama_prompt(struct chat_render *render)
{
    return llama_header(render, "assistant", false);
}

#define LLAMA_SPECIALS                                                               \
    {                                                                                \
        [LLAMA_BEGIN] = "<|begin_of_text|>", [LLAMA_HEADER] = "<|start_header_id|>", \
        [LLAMA_HEADER_END] = "<|end_header_id|>", [LLAMA_EOT] = "<|eot_id|>"         \
    }

const struct chat_renderer chat_llama_renderer = {
    .name = "llama3",
    .specials = LLAMA_SPECIALS,
    .stop = LLAMA_EOT,
    .render = llama_render,
    .prompt = llama_prompt,
};

const struct chat_renderer chat_llama31_renderer = {
    .name = "llama3.1",
    .specials = LLAMA_SPECIALS,
    .stop = LLAMA_EOT,
    .render = llama_render31,
    .prompt = llama_prompt,
};
