/* chat_jsonl: one line, top down: bytes, JSON, the object's keys, its messages one by one. The
 * first rule broken is the fault; each rule is one function that returns false when it fills it in.
 *
 * What the renderer would drop in silence is refused: keys that are not of the format, tools, lists
 * of content parts. */
#include "common/chat_jsonl.h"

#include "common/mem.h"
#include "common/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void chat_jsonl_fault_set(struct chat_jsonl_fault *fault, const char *code, int64_t column,
                          const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)snprintf(fault->code, sizeof fault->code, "%s", code);
    (void)vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    fault->column = column;
    utf8_cut(fault->text);
    utf8_scrub(fault->text);
}

/* Sets the fault and is false, so that a rule can end with it. */
#define FAULT(fault, code, ...) (chat_jsonl_fault_set(fault, code, 0, __VA_ARGS__), false)

static bool chat_jsonl_has(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value != NULL && !json_is_null(value);
}

static bool chat_jsonl_utf8(const char *line, size_t length, struct chat_jsonl_fault *fault)
{
    size_t good = utf8_prefix(line, length);
    if (good == length)
        return true;
    chat_jsonl_fault_set(fault, "invalid_utf8", (int64_t)good + 1,
                         "byte 0x%02x is not UTF-8; save the file as UTF-8",
                         (unsigned)(unsigned char)line[good]);
    return false;
}

/* What the first character says about a line that is not JSON. */
static const char *chat_jsonl_hint(const char *line, enum json_error_code code)
{
    line += strspn(line, " \t");
    if (line[0] == '[')
        return "; a JSON array must become one object a line (jq -c '.[]' FILE)";
    if (code == json_error_premature_end_of_input)
        return "; an example must be whole on one line (pretty-printed? jq -c . FILE)";
    return "";
}

static json_t *chat_jsonl_parse(const char *line, size_t length, struct chat_jsonl_fault *fault)
{
    json_error_t where;
    json_t *value =
        json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    if (value == NULL) {
        chat_jsonl_fault_set(fault, "invalid_json", where.column, "not valid JSON: %s%s",
                             where.text, chat_jsonl_hint(line, json_error_code(&where)));
        return NULL;
    }
    if (json_is_object(value))
        return value;
    if (json_is_array(value))
        chat_jsonl_fault_set(fault, "data_type", 1,
                             "a JSON array of %zu values where an object must be; write one object "
                             "a line (jq -c '.[]' FILE)",
                             json_array_size(value));
    else if (json_is_string(value))
        chat_jsonl_fault_set(fault, "data_type", 1,
                             "a JSON string where an object must be; JSON inside a string was "
                             "encoded twice: write the inner text itself");
    else
        chat_jsonl_fault_set(fault, "data_type", 1,
                             "neither an object nor anything that holds one; a line is "
                             "{\"messages\": [...]}");
    json_decref(value);
    return NULL;
}

/* Keys by which other formats are known. */
static const struct {
    const char *key;
    const char *format;
} chat_jsonl_formats[] = {
    {.key = "text", .format = "plain text"},
    {.key = "prompt", .format = "prompt and completion"},
    {.key = "completion", .format = "prompt and completion"},
    {.key = "conversations", .format = "ShareGPT"},
    {.key = "instruction", .format = "Alpaca"},
    {.key = "input_ids", .format = "tokenised"},
    {.key = "chosen", .format = "preference"},
    {.key = "rejected", .format = "preference"},
    {.key = "preferred_output", .format = "preference"},
    {.key = "non_preferred_output", .format = "preference"},
    {.key = "image", .format = "multimodal"},
    {.key = "images", .format = "multimodal"},
};

static const char *chat_jsonl_format(const char *key)
{
    for (size_t i = 0; i < sizeof chat_jsonl_formats / sizeof chat_jsonl_formats[0]; i++)
        if (strcmp(chat_jsonl_formats[i].key, key) == 0)
            return chat_jsonl_formats[i].format;
    return NULL;
}

static bool chat_jsonl_keys(const json_t *example, struct chat_jsonl_fault *fault)
{
    bool messages = json_object_get(example, "messages") != NULL;
    const char *other = NULL; /* the first key of another format */
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)example, key, value) /* reads only; it wants non-const */
    {
        const char *format = chat_jsonl_format(key);
        if (format == NULL || json_is_null(value))
            continue;
        if (messages)
            return FAULT(fault, "duplicate_format",
                         "both %s and messages: a line must hold one format", key);
        if (other != NULL && strcmp(chat_jsonl_format(other), format) != 0)
            return FAULT(fault, "duplicate_format", "both %s and %s: a line must hold one format",
                         other, key);
        if (other == NULL)
            other = key;
    }
    if (other != NULL)
        return FAULT(fault, "unserved_format",
                     "\"%s\" is the %s format, which is not served; served: {\"messages\": "
                     "[{\"role\", \"content\"}, ...]}",
                     other, chat_jsonl_format(other));
    if (!messages)
        return FAULT(fault, "missing_messages_list",
                     "no \"messages\"; a line is {\"messages\": [{\"role\", \"content\"}, ...]}");
    json_object_foreach((json_t *)example, key, value)
    {
        if (strcmp(key, "messages") == 0 || json_is_null(value) ||
            strcmp(key, "parallel_tool_calls") == 0)
            continue;
        if (strcmp(key, "tools") != 0 && strcmp(key, "functions") != 0)
            return FAULT(fault, "unrecognized_key",
                         "unknown key \"%.64s\" beside messages; remove it", key);
        if (!json_is_array(value) || json_array_size(value) > 0)
            return FAULT(fault, "tools_not_served",
                         "\"%s\": tools are not served by this model's template", key);
    }
    return true;
}

static bool chat_jsonl_message_keys(const json_t *message, size_t index,
                                    struct chat_jsonl_fault *fault)
{
    static const char *const plain[] = {"role", "content", "name", "weight"};
    static const char *const tools[] = {"tool_calls", "tool_call_id", "function_call"};
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)message, key, value) /* reads only; it wants non-const */
    {
        bool known = json_is_null(value);
        for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
            known = known || strcmp(key, plain[i]) == 0;
        for (size_t i = 0; i < sizeof tools / sizeof tools[0] && !known; i++) {
            if (strcmp(key, tools[i]) != 0)
                continue;
            if (!json_is_array(value) || json_array_size(value) > 0)
                return FAULT(fault, "tools_not_served",
                             "messages[%zu]: \"%s\": tools are not served by this model's template",
                             index, key);
            known = true;
        }
        if (!known)
            return FAULT(fault, "message_unrecognized_key",
                         "messages[%zu]: unknown key \"%.64s\"; known: role, content, name, weight",
                         index, key);
    }
    return true;
}

static bool chat_jsonl_is(const json_t *text, const char *wanted)
{
    return json_is_string(text) && json_string_length(text) == strlen(wanted) &&
           memcmp(json_string_value(text), wanted, strlen(wanted)) == 0;
}

static bool chat_jsonl_role(const json_t *message, size_t index, struct chat_jsonl_fault *fault)
{
    const json_t *role = json_object_get(message, "role");
    static const char *const roles[] = {"system", "developer", "user", "assistant"};
    if (!chat_jsonl_has(message, "role"))
        return FAULT(fault, "message_missing_key", "messages[%zu]: no \"role\"", index);
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (chat_jsonl_is(role, roles[i]))
            return true;
    if (chat_jsonl_is(role, "tool") || chat_jsonl_is(role, "function"))
        return FAULT(fault, "tools_not_served",
                     "messages[%zu]: role \"%s\": tools are not served by this model's template",
                     index, json_string_value(role));
    return FAULT(fault, "unrecognized_role",
                 "messages[%zu]: role \"%.32s\" must be one of system, developer, user, assistant, "
                 "tool",
                 index, json_is_string(role) ? json_string_value(role) : "(not a string)");
}

static bool chat_jsonl_content(const json_t *message, size_t index, struct chat_jsonl_fault *fault)
{
    const json_t *content = json_object_get(message, "content");
    if (json_is_string(content))
        return true;
    if (json_is_array(content))
        return FAULT(fault, "unserved_content",
                     "messages[%zu]: content is a list of parts, which is not served; make it one "
                     "string",
                     index);
    return FAULT(fault, "missing_content", "messages[%zu]: \"content\" must be a string", index);
}

static bool chat_jsonl_weight(const json_t *message, size_t index, struct chat_jsonl_fault *fault)
{
    if (!chat_jsonl_has(message, "weight"))
        return true;
    const json_t *weight = json_object_get(message, "weight");
    double value = json_is_number(weight) ? json_number_value(weight) : -1;
    if (value != 0 && value != 1)
        return FAULT(fault, "invalid_weight", "messages[%zu]: \"weight\" must be 0 or 1", index);
    if (value == 1 && !chat_jsonl_is(json_object_get(message, "role"), "assistant"))
        return FAULT(fault, "invalid_weight",
                     "messages[%zu]: \"weight\" 1 on a message that is not the assistant's; only "
                     "assistant messages are trained on",
                     index);
    return true;
}

static bool chat_jsonl_messages(const json_t *messages, struct chat_jsonl_fault *fault)
{
    if (json_is_null(messages) || (json_is_array(messages) && json_array_size(messages) == 0))
        return FAULT(fault, "empty_messages", "\"messages\" is empty: nothing to train on");
    if (!json_is_array(messages))
        return FAULT(fault, "missing_messages_list", "\"messages\" must be an array");
    bool assistant = false;
    size_t index;
    const json_t *message;
    json_array_foreach((json_t *)messages, index, message) /* reads only; it wants non-const */
    {
        if (!json_is_object(message))
            return FAULT(fault, "data_type", "messages[%zu]: must be an object", index);
        if (!chat_jsonl_message_keys(message, index, fault) ||
            !chat_jsonl_role(message, index, fault) || !chat_jsonl_content(message, index, fault) ||
            !chat_jsonl_weight(message, index, fault))
            return false;
        assistant = assistant || chat_jsonl_is(json_object_get(message, "role"), "assistant");
    }
    if (!assistant)
        return FAULT(fault, "example_missing_assistant_message",
                     "no message has the role assistant, so there is nothing to learn");
    return true;
}

json_t *chat_jsonl_check(const char *line, size_t length, struct chat_jsonl_fault *ret_fault)
{
    if (!chat_jsonl_utf8(line, length, ret_fault))
        return NULL;
    CLEANUP(json_unref) json_t *example = chat_jsonl_parse(line, length, ret_fault);
    if (example == NULL || !chat_jsonl_keys(example, ret_fault))
        return NULL;
    json_t *messages = json_object_get(example, "messages");
    return chat_jsonl_messages(messages, ret_fault) ? json_incref(messages) : NULL;
}
