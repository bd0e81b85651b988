/* conversation: chat messages in the one form that templates render, whatever format they came in.
 *
 *   messages   [{"role": "system" | "user" | "assistant" | "tool", "content": "...",
 *                "reasoning_content": "..."?, "tool_calls": [{"name": "...", "arguments": {...}}]?,
 *                "weight": 0 | 1?}, ...]
 *   tools      [{...}, ...] as templates print them, or NULL
 *
 * content is always a string, "" where there was none; tool_calls is absent or not empty. */
#pragma once
#include "common/json.h"

struct conversation {
    json_t *messages; /* owned */
    json_t *tools;    /* owned; NULL: none */
};
void conversation_done(struct conversation *conversation); /* {0} is fine */

/* What to say about a message that is not of the form; one sentence of UTF-8. */
enum { CONVERSATION_TEXT_BYTES = 256 };
struct conversation_fault {
    const char *code; /* "unrecognized_role", as in example.h */
    char text[CONVERSATION_TEXT_BYTES];
};

/* From OpenAI's form: roles system, developer (system), user, assistant, tool, function (tool);
 * content a string, null, or a list of text parts, which are joined; tool_calls [{"type":
 * "function", "function": {"name", "arguments"}}] or function_call, arguments an object or its JSON
 * in a string; name, tool_call_id, refusal null. Null members count as absent. Multimodal parts are
 * refused. False with the fault. `tools` may be NULL; both stay the caller's. */
bool conversation_from_openai(const json_t *messages, const json_t *tools, struct conversation *ret,
                              struct conversation_fault *fault);
