/* chat_chatml: ChatML as Qwen2, Qwen2.5 and Qwen3 have it. A message is <|im_start|>, its role, a
 * line feed, its content and <|im_end|> with a line feed after it. Tools stand in the system
 * message; calls are <tool_call> blocks behind the content; the results of a row of tool messages
 * are <tool_response> blocks of one user message.
 *
 * Qwen3 takes the thinking (reasoning_content, or what stands before </think>) out of the answers
 * before the last question and puts a <think> block, empty or not, before the later ones. */
#include "common/chat_render.h"

#include <string.h>

enum { CHATML_START, CHATML_END };

static int chatml_start(struct chat_render *render, const char *role)
{
    bool all = chat_render_all(render);
    TRY(chat_render_special(render, CHATML_START, all && render->writer->tokens.count > 0));
    chat_render_text(render, role, all);
    chat_render_text(render, "\n", all);
    return 0;
}

static int chatml_end(struct chat_render *render, bool trained)
{
    TRY(chat_render_special(render, CHATML_END, trained));
    chat_render_text(render, "\n", chat_render_all(render));
    return 0;
}

static const json_t *chatml_content(const struct chat_render *render, size_t index)
{
    return json_object_get(chat_render_message(render, index), "content");
}

static int chatml_plain(struct chat_render *render, size_t index)
{
    bool trained = chat_render_trains(render, index);
    TRY(chatml_start(render, chat_render_role(render, index)));
    chat_render_string(render, chatml_content(render, index), trained);
    return chatml_end(render, trained);
}

/* The system message that a conversation without one gets, where the template has one. */
static int chatml_default_system(struct chat_render *render)
{
    if (render->chat->default_system == NULL || chat_render_is(render, 0, "system"))
        return 0;
    TRY(chatml_start(render, "system"));
    chat_render_text(render, render->chat->default_system, chat_render_all(render));
    return chatml_end(render, chat_render_all(render));
}

static int chatml_render(struct chat_render *render)
{
    TRY(chat_render_no_tools(render));
    TRY(chatml_default_system(render));
    for (size_t i = 0; i < render->count; i++)
        TRY(chatml_plain(render, i));
    return 0;
}

/* ---- tools ---- */

/* The system message with the tools in it, or the default one; a system message of the
 * conversation without tools is rendered like any other. Messages from *ret_next on are left. */
static int chatml_tools(struct chat_render *render, size_t *ret_next)
{
    const struct conversation *conversation = render->conversation;
    bool all = chat_render_all(render);
    bool has_system = chat_render_is(render, 0, "system");
    *ret_next = 0;
    if (conversation->tools == NULL)
        return chatml_default_system(render);
    TRY(chatml_start(render, "system"));
    const char *own = render->chat->default_system;
    if (has_system)
        chat_render_string(render, chatml_content(render, 0), chat_render_trains(render, 0));
    else if (own != NULL)
        chat_render_text(render, own, all);
    if (has_system || own != NULL)
        chat_render_text(render, "\n\n", all);
    chat_render_text(render,
                     "# Tools\n\nYou may call one or more functions to assist with the user "
                     "query.\n\nYou are provided with function signatures within <tools></tools> "
                     "XML tags:\n<tools>",
                     all);
    for (size_t i = 0; i < json_array_size(conversation->tools); i++) {
        chat_render_text(render, "\n", all);
        chat_render_json(render, json_array_get(conversation->tools, i), 0, all);
    }
    bool doubled = render->chat->braces_doubled;
    chat_render_text(render,
                     "\n</tools>\n\nFor each function call, return a json object with function "
                     "name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n",
                     all);
    chat_render_text(render, doubled ? "{{" : "{", all);
    chat_render_text(render, "\"name\": <function-name>, \"arguments\": <args-json-object>", all);
    chat_render_text(render, doubled ? "}}" : "}", all);
    chat_render_text(render, "\n</tool_call>", all);
    *ret_next = has_system ? 1 : 0;
    return chatml_end(render, all);
}

/* The calls of a message; each but one that begins the turn on a line of its own. */
static void chatml_calls(struct chat_render *render, size_t index, bool has_content, bool trained)
{
    const json_t *calls = chat_render_calls(render, index);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        if (i > 0 || has_content)
            chat_render_text(render, "\n", trained);
        chat_render_text(render, "<tool_call>\n{\"name\": \"", trained);
        chat_render_string(render, json_object_get(call, "name"), trained);
        chat_render_text(render, "\", \"arguments\": ", trained);
        chat_render_json(render, json_object_get(call, "arguments"), 0, trained);
        chat_render_text(render, "}\n</tool_call>", trained);
    }
}

static int chatml_result(struct chat_render *render, size_t index)
{
    bool trained = chat_render_trains(render, index);
    if (index == 0 || !chat_render_is(render, index - 1, "tool"))
        TRY(chatml_start(render, "user"));
    else
        chat_render_text(render, "\n", trained);
    chat_render_text(render, "<tool_response>\n", trained);
    chat_render_string(render, chatml_content(render, index), trained);
    chat_render_text(render, "\n</tool_response>", trained);
    return chat_render_is(render, index + 1, "tool") ? 0 : chatml_end(render, trained);
}

static int chatml_render25(struct chat_render *render)
{
    size_t i;
    TRY(chatml_tools(render, &i));
    for (; i < render->count; i++) {
        bool trained = chat_render_trains(render, i);
        if (chat_render_is(render, i, "tool")) {
            TRY(chatml_result(render, i));
            continue;
        }
        TRY(chatml_start(render, chat_render_role(render, i)));
        chat_render_string(render, chatml_content(render, i), trained);
        chatml_calls(render, i, json_string_length(chatml_content(render, i)) > 0, trained);
        TRY(chatml_end(render, trained));
    }
    return 0;
}

/* ---- thinking ---- */

struct chatml_span {
    const char *text;
    size_t length;
};

static struct chatml_span chatml_strip(struct chatml_span span, bool left, bool right)
{
    for (; left && span.length > 0 && span.text[0] == '\n'; span.length--)
        span.text++;
    while (right && span.length > 0 && span.text[span.length - 1] == '\n')
        span.length--;
    return span;
}

/* Position of the first or the last `mark`, or -1. */
static ptrdiff_t chatml_find(struct chatml_span span, const char *mark, bool last)
{
    ptrdiff_t found = -1;
    size_t length = strlen(mark);
    for (size_t at = 0; at + length <= span.length; at++) {
        const char *next = memmem(span.text + at, span.length - at, mark, length);
        if (next == NULL)
            break;
        found = next - span.text;
        if (!last)
            break;
        at = (size_t)found + length - 1;
    }
    return found;
}

/* What a message thinks and what it says. */
static void chatml_think(const json_t *message, struct chatml_span *ret_thinking,
                         struct chatml_span *ret_said)
{
    static const char open[] = "<think>", close[] = "</think>";
    const json_t *content = json_object_get(message, "content");
    const json_t *reasoning = json_object_get(message, "reasoning_content");
    struct chatml_span said = {.text = json_string_value(content),
                               .length = json_string_length(content)};
    struct chatml_span thinking = {.text = "", .length = 0};
    ptrdiff_t first = chatml_find(said, close, false);
    if (reasoning != NULL) {
        thinking = (struct chatml_span){.text = json_string_value(reasoning),
                                        .length = json_string_length(reasoning)};
    } else if (first >= 0) {
        thinking = (struct chatml_span){.text = said.text, .length = (size_t)first};
        thinking = chatml_strip(thinking, false, true);
        ptrdiff_t opened = chatml_find(thinking, open, true);
        if (opened >= 0) {
            thinking.text += (size_t)opened + strlen(open);
            thinking.length -= (size_t)opened + strlen(open);
        }
        thinking = chatml_strip(thinking, true, false);
        size_t last = (size_t)chatml_find(said, close, true) + strlen(close);
        said = (struct chatml_span){.text = said.text + last, .length = said.length - last};
        said = chatml_strip(said, true, false);
    }
    *ret_thinking = thinking;
    *ret_said = said;
}

/* The last user message that is a question, not a tool's response in a user's clothes. */
static size_t chatml_last_question(const struct chat_render *render)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    for (size_t i = render->count; i-- > 0;) {
        const char *text = json_string_value(chatml_content(render, i));
        size_t length = json_string_length(chatml_content(render, i));
        bool response = length >= strlen(close) && strncmp(text, open, strlen(open)) == 0 &&
                        memcmp(text + length - strlen(close), close, strlen(close)) == 0;
        if (chat_render_is(render, i, "user") && !response)
            return i;
    }
    return render->count - 1;
}

static int chatml_answer3(struct chat_render *render, size_t index, size_t question)
{
    struct chatml_span thinking, said;
    bool trained = chat_render_trains(render, index);
    chatml_think(chat_render_message(render, index), &thinking, &said);
    bool has_content = said.length > 0;
    TRY(chatml_start(render, "assistant"));
    if (index > question && (index + 1 == render->count || thinking.length > 0)) {
        thinking = chatml_strip(thinking, true, true);
        said = chatml_strip(said, true, false);
        chat_render_text(render, "<think>\n", trained);
        chat_render_bytes(render, thinking.text, thinking.length, trained);
        chat_render_text(render, "\n</think>\n\n", trained);
    }
    chat_render_bytes(render, said.text, said.length, trained);
    chatml_calls(render, index, has_content, trained);
    return chatml_end(render, trained);
}

static int chatml_render3(struct chat_render *render)
{
    size_t i;
    size_t question = chatml_last_question(render);
    TRY(chatml_tools(render, &i));
    for (; i < render->count; i++)
        TRY(chat_render_is(render, i, "tool")        ? chatml_result(render, i)
            : chat_render_is(render, i, "assistant") ? chatml_answer3(render, i, question)
                                                     : chatml_plain(render, i));
    return 0;
}

static int chatml_prompt(struct chat_render *render)
{
    return chatml_start(render, "assistant");
}

#define CHATML_SPECIALS                                              \
    {                                                                \
        [CHATML_START] = "<|im_start|>", [CHATML_END] = "<|im_end|>" \
    }

const struct chat_renderer chat_chatml_renderer = {
    .name = "chatml",
    .specials = CHATML_SPECIALS,
    .stop = CHATML_END,
    .render = chatml_render,
    .prompt = chatml_prompt,
};

const struct chat_renderer chat_qwen25_renderer = {
    .name = "qwen2.5",
    .specials = CHATML_SPECIALS,
    .stop = CHATML_END,
    .render = chatml_render25,
    .prompt = chatml_prompt,
};

const struct chat_renderer chat_qwen3_renderer = {
    .name = "qwen3",
    .specials = CHATML_SPECIALS,
    .stop = CHATML_END,
    .render = chatml_render3,
    .prompt = chatml_prompt,
};
