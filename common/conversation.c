/* conversation: each message is taken apart by its role and put together again with only what
 * templates know; a key that would be lost is a fault. */
#include "common/conversation.h"

#include "common/limits.h"
#include "common/mem.h"
#include "common/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void conversation_done(struct conversation *conversation)
{
    json_decref(conversation->messages);
    json_decref(conversation->tools);
    *conversation = (struct conversation){0};
}

__attribute__((format(printf, 3, 4))) static bool
conversation_refuse(struct conversation_fault *fault, const char *code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fault->code = code;
    (void)vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    utf8_cut(fault->text);
    utf8_scrub(fault->text);
    return false;
}
#define REFUSE(fault, code, ...) conversation_refuse(fault, code, __VA_ARGS__)

static bool conversation_lost(struct conversation_fault *fault)
{
    return REFUSE(fault, "out_of_memory", "out of memory");
}

static const json_t *conversation_get(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static bool conversation_is(const json_t *text, const char *wanted)
{
    return json_is_string(text) && json_string_length(text) == strlen(wanted) &&
           memcmp(json_string_value(text), wanted, strlen(wanted)) == 0;
}

static const char *conversation_role(const json_t *message)
{
    static const struct {
        const char *given, *role;
    } roles[] = {{.given = "system", .role = "system"}, {.given = "developer", .role = "system"},
                 {.given = "user", .role = "user"},     {.given = "assistant", .role = "assistant"},
                 {.given = "tool", .role = "tool"},     {.given = "function", .role = "tool"}};
    const json_t *role = json_object_get(message, "role");
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (conversation_is(role, roles[i].given))
            return roles[i].role;
    return NULL;
}

static bool conversation_keys(const json_t *message, const char *role, size_t index,
                              struct conversation_fault *fault)
{
    static const char *const known[] = {"role",          "content",          "name",
                                        "weight",        "tool_call_id",     "tool_calls",
                                        "function_call", "reasoning_content"};
    bool assistant = strcmp(role, "assistant") == 0;
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)message, key, value) /* reads only; it wants non-const */
    {
        bool fine = json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            fine = fine || strcmp(key, known[i]) == 0;
        bool answer = strcmp(key, "tool_calls") == 0 || strcmp(key, "function_call") == 0 ||
                      strcmp(key, "reasoning_content") == 0;
        if (!fine)
            return REFUSE(fault, "message_unrecognized_key",
                          "messages[%zu]: unknown key \"%.64s\"; known: role, content, name, "
                          "weight, tool_calls, tool_call_id, reasoning_content",
                          index, key);
        if (answer && !assistant && !json_is_null(value) && json_array_size(value) > 0)
            return REFUSE(fault, "message_unrecognized_key",
                          "messages[%zu]: \"%s\" on a message of the role %s; only assistants "
                          "have it",
                          index, key, role);
    }
    return true;
}

/* ---- content ---- */

static bool conversation_part(const json_t *part, size_t index, size_t at, struct buf *text,
                              struct conversation_fault *fault)
{
    const json_t *words = json_object_get(part, "text");
    const char *type = json_string_value(json_object_get(part, "type"));
    if (json_is_string(part))
        words = part;
    else if (type == NULL || strcmp(type, "text") != 0)
        return REFUSE(fault, "multimodal",
                      "messages[%zu]: content[%zu] has the type \"%.32s\": multimodal data is not "
                      "served; served: text",
                      index, at, type != NULL ? type : "(none)");
    if (!json_is_string(words))
        return REFUSE(fault, "missing_content", "messages[%zu]: content[%zu] has no \"text\"",
                      index, at);
    buf_append(text, json_string_value(words), json_string_length(words));
    return true;
}

/* New reference to the content as a string. */
static json_t *conversation_content(const json_t *message, bool may_be_null, size_t index,
                                    struct conversation_fault *fault)
{
    const json_t *content = conversation_get(message, "content");
    if (json_is_string(content))
        return json_incref((json_t *)content);
    if (content == NULL && may_be_null)
        return json_string("");
    if (!json_is_array(content)) {
        (void)REFUSE(fault, "missing_content",
                     "messages[%zu]: \"content\" must be a string or a list of text parts", index);
        return NULL;
    }
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_LINE_BYTES);
    size_t at;
    const json_t *part;
    json_array_foreach((json_t *)content, at, part)
    {
        if (!conversation_part(part, index, at, &text, fault))
            return NULL;
    }
    return json_stringn(buf_str(&text), text.length);
}

/* ---- tool calls ---- */

/* New reference to {"name", "arguments"} of OpenAI's function object. */
static json_t *conversation_call(const json_t *function, size_t index,
                                 struct conversation_fault *fault)
{
    const json_t *name = json_object_get(function, "name");
    const json_t *arguments = conversation_get(function, "arguments");
    if (!json_is_string(name) || json_string_length(name) == 0) {
        (void)REFUSE(fault, "invalid_tool_call", "messages[%zu]: a tool call without a name",
                     index);
        return NULL;
    }
    json_t *parsed = NULL;
    if (json_is_object(arguments))
        parsed = json_incref((json_t *)arguments);
    else if (arguments == NULL || json_string_length(arguments) == 0)
        parsed = json_object();
    else if (json_is_string(arguments))
        parsed = json_loadb(json_string_value(arguments), json_string_length(arguments),
                            JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (!json_is_object(parsed)) {
        json_decref(parsed);
        (void)REFUSE(fault, "invalid_tool_call",
                     "messages[%zu]: the arguments of the tool call \"%.32s\" must be a JSON "
                     "object, or one in a string",
                     index, json_string_value(name));
        return NULL;
    }
    return json_pack("{s:O, s:o}", "name", name, "arguments", parsed);
}

/* Appends the calls of a message to `calls`. */
static bool conversation_calls(const json_t *message, size_t index, json_t *calls,
                               struct conversation_fault *fault)
{
    const json_t *list = conversation_get(message, "tool_calls");
    const json_t *legacy = conversation_get(message, "function_call");
    if (list != NULL && !json_is_array(list))
        return REFUSE(fault, "invalid_tool_call", "messages[%zu]: \"tool_calls\" must be a list",
                      index);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *call = json_array_get(list, i);
        const json_t *function = json_object_get(call, "function");
        json_t *made = conversation_call(function != NULL ? function : call, index, fault);
        if (made == NULL)
            return false;
        if (json_array_append_new(calls, made) != 0)
            return conversation_lost(fault);
    }
    if (legacy == NULL)
        return true;
    json_t *made = conversation_call(legacy, index, fault);
    return made != NULL && (json_array_append_new(calls, made) == 0 || conversation_lost(fault));
}

/* ---- messages ---- */

static bool conversation_weight(const json_t *message, const char *role, size_t index, json_t *made,
                                struct conversation_fault *fault)
{
    const json_t *weight = conversation_get(message, "weight");
    if (weight == NULL)
        return true;
    double value = json_is_number(weight) ? json_number_value(weight) : -1;
    if (value != 0 && value != 1)
        return REFUSE(fault, "invalid_weight", "messages[%zu]: \"weight\" must be 0 or 1", index);
    if (value == 1 && strcmp(role, "assistant") != 0)
        return REFUSE(fault, "invalid_weight",
                      "messages[%zu]: \"weight\" 1 on a message that is not the assistant's; only "
                      "assistant messages are trained on",
                      index);
    return json_object_set_new(made, "weight", json_integer((json_int_t)value)) == 0 ||
           conversation_lost(fault);
}

static bool conversation_answer(const json_t *message, size_t index, json_t *made,
                                struct conversation_fault *fault)
{
    const json_t *reasoning = conversation_get(message, "reasoning_content");
    CLEANUP(json_unref) json_t *calls = json_array();
    if (calls == NULL)
        return conversation_lost(fault);
    if (reasoning != NULL && !json_is_string(reasoning))
        return REFUSE(fault, "missing_content",
                      "messages[%zu]: \"reasoning_content\" must be a string", index);
    if (reasoning != NULL && json_object_set(made, "reasoning_content", (json_t *)reasoning) != 0)
        return conversation_lost(fault);
    if (!conversation_calls(message, index, calls, fault))
        return false;
    if (json_array_size(calls) == 0) {
        if (conversation_get(message, "content") != NULL)
            return true;
        return REFUSE(fault, "missing_content", "messages[%zu]: neither \"content\" nor tool calls",
                      index);
    }
    return json_object_set(made, "tool_calls", calls) == 0 || conversation_lost(fault);
}

static bool conversation_message(const json_t *message, size_t index, json_t *messages,
                                 struct conversation_fault *fault)
{
    if (!json_is_object(message))
        return REFUSE(fault, "data_type", "messages[%zu]: must be an object", index);
    if (conversation_get(message, "role") == NULL)
        return REFUSE(fault, "message_missing_key", "messages[%zu]: no \"role\"", index);
    const char *role = conversation_role(message);
    const char *given = json_string_value(json_object_get(message, "role"));
    if (role == NULL)
        return REFUSE(fault, "unrecognized_role",
                      "messages[%zu]: role \"%.32s\" must be one of system, developer, user, "
                      "assistant, tool",
                      index, given != NULL ? given : "(not a string)");
    bool assistant = strcmp(role, "assistant") == 0;
    if (!conversation_keys(message, role, index, fault))
        return false;
    json_t *content = conversation_content(message, assistant, index, fault);
    if (content == NULL)
        return false;
    json_t *made = json_pack("{s:s, s:o}", "role", role, "content", content);
    if (made == NULL || json_array_append_new(messages, made) != 0)
        return conversation_lost(fault);
    return conversation_weight(message, role, index, made, fault) &&
           (!assistant || conversation_answer(message, index, made, fault));
}

static bool conversation_tools(const json_t *tools, struct conversation *made,
                               struct conversation_fault *fault)
{
    if (tools == NULL || json_is_null(tools) ||
        (json_is_array(tools) && json_array_size(tools) == 0))
        return true;
    if (!json_is_array(tools))
        return REFUSE(fault, "invalid_tools", "\"tools\" must be a list");
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!json_is_object(json_array_get(tools, i)))
            return REFUSE(fault, "invalid_tools", "tools[%zu] must be an object", i);
    made->tools = json_incref((json_t *)tools);
    return true;
}

bool conversation_from_openai(const json_t *messages, const json_t *tools, struct conversation *ret,
                              struct conversation_fault *fault)
{
    if (json_is_null(messages) || (json_is_array(messages) && json_array_size(messages) == 0))
        return REFUSE(fault, "empty_messages", "\"messages\" is empty: nothing to train on");
    if (!json_is_array(messages))
        return REFUSE(fault, "missing_messages_list", "\"messages\" must be an array");
    CLEANUP(conversation_done) struct conversation made = {.messages = json_array()};
    if (made.messages == NULL)
        return conversation_lost(fault);
    size_t index;
    const json_t *message;
    json_array_foreach((json_t *)messages, index, message)
    {
        if (!conversation_message(message, index, made.messages, fault))
            return false;
    }
    if (!conversation_tools(tools, &made, fault))
        return false;
    *ret = made;
    made = (struct conversation){0};
    return true;
}
