/* example_formats: each converter makes OpenAI's messages, which conversation_from_openai() then
 * checks; what it says about messages[i] is about the i-th turn as it was made. */
#include "common/example_formats.h"

#include "common/mem.h"

#include <string.h>

#define FAULT(fault, code, ...) (example_fault_set(fault, code, 0, __VA_ARGS__), false)

static bool formats_lost(struct example_fault *fault)
{
    return FAULT(fault, "out_of_memory", "out of memory");
}

/* Appends {"role", "content"}; content is borrowed. */
static bool formats_say(json_t *messages, const char *role, json_t *content,
                        struct example_fault *fault)
{
    return json_array_append_new(messages,
                                 json_pack("{s:s, s:O}", "role", role, "content", content)) == 0 ||
           formats_lost(fault);
}

/* The row's "system", where it has one that says anything. */
static bool formats_system(const json_t *row, json_t *messages, struct example_fault *fault)
{
    json_t *system = json_object_get(row, "system");
    if (system == NULL || json_is_null(system) || json_string_length(system) == 0)
        return true;
    return formats_say(messages, "system", system, fault);
}

/* ---- ShareGPT ---- */

static const struct {
    const char *from, *role;
} formats_tags[] = {
    {.from = "human", .role = "user"},      {.from = "user", .role = "user"},
    {.from = "gpt", .role = "assistant"},   {.from = "assistant", .role = "assistant"},
    {.from = "model", .role = "assistant"}, {.from = "chatgpt", .role = "assistant"},
    {.from = "system", .role = "system"},   {.from = "observation", .role = "tool"},
    {.from = "tool", .role = "tool"},       {.from = "function_call", .role = "call"},
};

static const char *formats_role(const char *from)
{
    for (size_t i = 0; from != NULL && i < sizeof formats_tags / sizeof formats_tags[0]; i++)
        if (strcmp(formats_tags[i].from, from) == 0)
            return formats_tags[i].role;
    return NULL;
}

/* A turn of the assistant that calls: value is JSON in a string. */
static bool formats_call(json_t *messages, const json_t *value, size_t index,
                         struct example_fault *fault)
{
    CLEANUP(json_unref)
    json_t *calls = json_loadb(json_string_value(value), json_string_length(value),
                               JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (json_is_object(calls))
        calls = json_pack("[o]", calls);
    if (json_array_size(calls) == 0)
        return FAULT(fault, "invalid_tool_call",
                     "conversations[%zu]: the value of a function_call must be a JSON object with "
                     "\"name\" and \"arguments\"",
                     index);
    return json_array_append_new(messages, json_pack("{s:s, s:n, s:O}", "role", "assistant",
                                                     "content", "tool_calls", calls)) == 0 ||
           formats_lost(fault);
}

static bool formats_turn(json_t *messages, const json_t *turn, size_t index,
                         struct example_fault *fault)
{
    const char *from = json_string_value(json_object_get(turn, "from"));
    json_t *value = json_object_get(turn, "value");
    const char *role = formats_role(from);
    if (!json_is_object(turn))
        return FAULT(fault, "data_type", "conversations[%zu]: must be an object", index);
    if (json_object_get(turn, "from") == NULL && json_object_get(turn, "role") != NULL)
        return FAULT(fault, "message_missing_key",
                     "conversations[%zu]: no \"from\" and \"value\"; a list of \"role\" and "
                     "\"content\" is called \"messages\"",
                     index);
    if (role == NULL)
        return FAULT(fault, "unrecognized_role",
                     "conversations[%zu]: \"from\" is \"%.32s\"; it must be human, gpt, system, "
                     "function_call or observation",
                     index, from != NULL ? from : "(not a string)");
    if (!json_is_string(value))
        return FAULT(fault, "missing_content", "conversations[%zu]: \"value\" must be a string",
                     index);
    const char *key;
    const json_t *other;
    json_object_foreach((json_t *)turn, key, other) /* reads only; it wants non-const */
    {
        if (strcmp(key, "from") != 0 && strcmp(key, "value") != 0 && strcmp(key, "weight") != 0 &&
            !json_is_null(other))
            return FAULT(fault, "message_unrecognized_key",
                         "conversations[%zu]: unknown key \"%.64s\"; known: from, value, weight",
                         index, key);
    }
    if (strcmp(role, "call") == 0)
        return formats_call(messages, value, index, fault);
    if (!formats_say(messages, role, value, fault))
        return false;
    json_t *weight = json_object_get(turn, "weight");
    json_t *made = json_array_get(messages, json_array_size(messages) - 1);
    return weight == NULL || json_object_set(made, "weight", weight) == 0 || formats_lost(fault);
}

/* Tools, a list or a list in a string; each as OpenAI wraps it. */
static bool formats_tools(const json_t *row, json_t **ret_tools, struct example_fault *fault)
{
    const json_t *given = json_object_get(row, "tools");
    CLEANUP(json_unref) json_t *list = json_incref((json_t *)given);
    if (json_is_string(given)) {
        json_decref(list);
        list = json_string_length(given) == 0
                   ? json_array()
                   : json_loadb(json_string_value(given), json_string_length(given),
                                JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    }
    if (given == NULL || json_is_null(given))
        return true;
    if (!json_is_array(list))
        return FAULT(fault, "invalid_tools", "\"tools\" must be a list, or one in a string");
    CLEANUP(json_unref) json_t *tools = json_array();
    size_t index;
    json_t *tool;
    json_array_foreach(list, index, tool)
    {
        bool wrapped = json_object_get(tool, "function") != NULL;
        json_t *made = wrapped ? json_incref(tool)
                               : json_pack("{s:s, s:O}", "type", "function", "function", tool);
        if (json_array_append_new(tools, made) != 0)
            return formats_lost(fault);
    }
    *ret_tools = json_incref(tools);
    return true;
}

bool example_formats_sharegpt(const json_t *row, json_t **ret_messages, json_t **ret_tools,
                              struct example_fault *fault)
{
    const json_t *turns = json_object_get(row, "conversations");
    CLEANUP(json_unref) json_t *messages = json_array();
    if (!json_is_array(turns))
        return FAULT(fault, "data_type", "\"conversations\" must be a list");
    if (messages == NULL)
        return formats_lost(fault);
    if (!formats_system(row, messages, fault))
        return false;
    size_t index;
    const json_t *turn;
    json_array_foreach((json_t *)turns, index, turn)
    {
        if (!formats_turn(messages, turn, index, fault))
            return false;
    }
    if (!formats_tools(row, ret_tools, fault))
        return false;
    *ret_messages = json_incref(messages);
    return true;
}

/* ---- Alpaca; prompt and completion ---- */

static bool formats_string(const json_t *row, const char *key, json_t **ret, bool needed,
                           struct example_fault *fault)
{
    *ret = json_object_get(row, key);
    if (json_is_null(*ret))
        *ret = NULL;
    if (json_is_string(*ret) || (*ret == NULL && !needed))
        return true;
    return FAULT(fault, *ret == NULL ? "message_missing_key" : "data_type",
                 "\"%s\" must be %sa string", key, *ret == NULL ? "there and be " : "");
}

static bool formats_history(const json_t *row, json_t *messages, struct example_fault *fault)
{
    const json_t *history = json_object_get(row, "history");
    size_t index;
    const json_t *pair;
    json_array_foreach((json_t *)history, index, pair) /* reads only; it wants non-const */
    {
        json_t *question = json_array_get(pair, 0);
        json_t *answer = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(question) || !json_is_string(answer))
            return FAULT(fault, "data_type", "history[%zu] must be [question, answer]", index);
        if (!formats_say(messages, "user", question, fault) ||
            !formats_say(messages, "assistant", answer, fault))
            return false;
    }
    return history == NULL || json_is_array(history) || json_is_null(history) ||
           FAULT(fault, "data_type", "\"history\" must be a list of [question, answer]");
}

bool example_formats_alpaca(const json_t *row, json_t **ret_messages, struct example_fault *fault)
{
    json_t *instruction, *input, *output;
    CLEANUP(json_unref) json_t *messages = json_array();
    if (messages == NULL)
        return formats_lost(fault);
    if (!formats_string(row, "instruction", &instruction, true, fault) ||
        !formats_string(row, "input", &input, false, fault) ||
        !formats_string(row, "output", &output, true, fault) ||
        !formats_system(row, messages, fault) || !formats_history(row, messages, fault))
        return false;
    CLEANUP(json_unref) json_t *question = json_incref(instruction);
    if (json_string_length(input) > 0) {
        size_t first = json_string_length(instruction), second = json_string_length(input);
        CLEANUP(mem_free_ptr) char *text = mem_new(first + second + 1, 1);
        if (text == NULL)
            return formats_lost(fault);
        memcpy(text, json_string_value(instruction), first);
        text[first] = '\n';
        memcpy(text + first + 1, json_string_value(input), second);
        json_decref(question);
        question = json_stringn(text, first + second + 1);
        if (question == NULL)
            return formats_lost(fault);
    }
    if (!formats_say(messages, "user", question, fault) ||
        !formats_say(messages, "assistant", output, fault))
        return false;
    *ret_messages = json_incref(messages);
    return true;
}

bool example_formats_completion(const json_t *row, json_t **ret_messages,
                                struct example_fault *fault)
{
    json_t *prompt, *completion;
    CLEANUP(json_unref) json_t *messages = json_array();
    if (messages == NULL)
        return formats_lost(fault);
    if (!formats_string(row, "prompt", &prompt, true, fault) ||
        !formats_string(row, "completion", &completion, true, fault) ||
        !formats_say(messages, "user", prompt, fault) ||
        !formats_say(messages, "assistant", completion, fault))
        return false;
    *ret_messages = json_incref(messages);
    return true;
}

/* ---- tokenised ---- */

static bool formats_mask(const json_t *mask, size_t count, struct example_fault *fault)
{
    if (mask == NULL || json_is_null(mask))
        return true;
    bool ones = json_array_size(mask) == count;
    for (size_t i = 0; i < count && ones; i++)
        ones = json_integer_value(json_array_get(mask, i)) == 1;
    return ones || FAULT(fault, "invalid_ids",
                         "\"attention_mask\" must be as long as \"input_ids\" and all 1; leave "
                         "padding out");
}

bool example_formats_tokens(const json_t *row, struct example *example, struct example_fault *fault)
{
    json_t *ids = json_object_get(row, "input_ids");
    json_t *labels = json_object_get(row, "labels");
    size_t count = json_array_size(ids);
    example->kind = EXAMPLE_TOKENS;
    if (!json_is_array(ids) || count == 0)
        return FAULT(fault, "invalid_ids", "\"input_ids\" must be a list of token ids");
    if (json_is_null(labels))
        labels = NULL;
    if (labels != NULL && json_array_size(labels) != count)
        return FAULT(fault, "invalid_ids", "\"labels\" must be a list as long as \"input_ids\"");
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(ids, i);
        const json_t *label = json_array_get(labels, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return FAULT(fault, "invalid_ids", "input_ids[%zu] is no token id", i);
        if (labels != NULL &&
            (!json_is_integer(label) || (json_integer_value(label) != -100 &&
                                         json_integer_value(label) != json_integer_value(id))))
            return FAULT(fault, "invalid_ids",
                         "labels[%zu] must be input_ids[%zu], or -100 where there is no loss", i,
                         i);
    }
    if (!formats_mask(json_object_get(row, "attention_mask"), count, fault))
        return false;
    example->ids = json_incref(ids);
    example->labels = json_incref(labels);
    return true;
}
