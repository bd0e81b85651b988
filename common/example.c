/* example: one row, top down: bytes, JSON, the format by its keys, then what the format has. The
 * first rule broken is the fault; each rule is one function that returns false when it fills it in.
 */
#include "common/example.h"

#include "common/example_formats.h"
#include "common/mem.h"
#include "common/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void example_fault_set(struct example_fault *fault, const char *code, int64_t column,
                       const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)snprintf(fault->code, sizeof fault->code, "%s", code);
    (void)vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    fault->line = 0;
    fault->column = column;
    utf8_cut(fault->text);
    utf8_scrub(fault->text);
}

void example_fault_utf8(struct example_fault *fault, int64_t column, char byte)
{
    example_fault_set(fault, "invalid_utf8", column,
                      "byte 0x%02x is not UTF-8; save the file as UTF-8",
                      (unsigned)(unsigned char)byte);
}

/* Sets the fault and is false, so that a rule can end with it. */
#define FAULT(fault, code, ...) (example_fault_set(fault, code, 0, __VA_ARGS__), false)

void example_done(struct example *example)
{
    conversation_done(&example->conversation);
    json_decref(example->text);
    json_decref(example->ids);
    json_decref(example->labels);
    *example = (struct example){.kind = EXAMPLE_CHAT};
}

static bool example_utf8(const char *row, size_t length, struct example_fault *fault)
{
    size_t good = utf8_prefix(row, length), zero = strlen(row);
    if (good == length && zero == length)
        return true;
    if (zero < good) {
        example_fault_set(fault, "invalid_json", (int64_t)zero + 1,
                          "a byte 0, which no JSON has; the file may be damaged, or not text");
        return false;
    }
    example_fault_utf8(fault, (int64_t)good + 1, row[good]);
    return false;
}

/* What a row that is not JSON may be instead. */
static const char *example_hint(const char *row, const json_error_t *where)
{
    enum json_error_code code = json_error_code(where);
    if (where->position > 0 && row[where->position - 1] == '\'')
        return "; strings stand in double quotes (Python: json.dumps)";
    if (code == json_error_premature_end_of_input)
        return "; an example must be whole on one line (pretty-printed? jq -c . FILE)";
    if (code == json_error_end_of_input_expected)
        return "; a line is one object, with nothing after it";
    if (strchr("{[\"", row[strspn(row, " \t")]) == NULL)
        return "; a line is an object, {\"messages\": [...]} for one; CSV and the like must be "
               "converted";
    return "";
}

static json_t *example_parse(const char *row, size_t length, struct example_fault *fault)
{
    json_error_t where;
    json_t *value =
        json_loadb(row, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    if (value == NULL) {
        example_fault_set(fault, "invalid_json", where.column, "not valid JSON: %s%s", where.text,
                          example_hint(row, &where));
        fault->line = where.line > 1 ? where.line - 1 : 0;
        return NULL;
    }
    if (json_is_object(value))
        return value;
    if (json_is_array(value))
        example_fault_set(fault, "data_type", 1,
                          "a JSON array of %zu values where an object must be; write one object a "
                          "line (jq -c '.[]' FILE)",
                          json_array_size(value));
    else if (json_is_string(value))
        example_fault_set(fault, "data_type", 1,
                          "a JSON string where an object must be; JSON inside a string was encoded "
                          "twice: write the inner text itself");
    else
        example_fault_set(fault, "data_type", 1,
                          "neither an object nor anything that holds one; a line is "
                          "{\"messages\": [...]}");
    json_decref(value);
    return NULL;
}

/* ---- formats ---- */

enum example_format {
    FORMAT_MESSAGES,
    FORMAT_TEXT,
    FORMAT_COMPLETION,
    FORMAT_SHAREGPT,
    FORMAT_ALPACA,
    FORMAT_TOKENS,
    FORMAT_PREFERENCE,
    FORMAT_MULTIMODAL,
    FORMAT_LABEL, /* says something about the row, beside any format but messages */
    FORMAT_PART,  /* of several formats, decides nothing */
};

static const struct {
    const char *key;
    enum example_format format;
} example_keys[] = {
    {.key = "messages", .format = FORMAT_MESSAGES},
    {.key = "text", .format = FORMAT_TEXT},
    {.key = "prompt", .format = FORMAT_COMPLETION},
    {.key = "completion", .format = FORMAT_COMPLETION},
    {.key = "conversations", .format = FORMAT_SHAREGPT},
    {.key = "instruction", .format = FORMAT_ALPACA},
    {.key = "output", .format = FORMAT_ALPACA},
    {.key = "history", .format = FORMAT_ALPACA},
    {.key = "input_ids", .format = FORMAT_TOKENS},
    {.key = "labels", .format = FORMAT_TOKENS},
    {.key = "attention_mask", .format = FORMAT_TOKENS},
    {.key = "chosen", .format = FORMAT_PREFERENCE},
    {.key = "rejected", .format = FORMAT_PREFERENCE},
    {.key = "preferred_output", .format = FORMAT_PREFERENCE},
    {.key = "non_preferred_output", .format = FORMAT_PREFERENCE},
    {.key = "kto_tag", .format = FORMAT_PREFERENCE},
    {.key = "image", .format = FORMAT_MULTIMODAL},
    {.key = "images", .format = FORMAT_MULTIMODAL},
    {.key = "video", .format = FORMAT_MULTIMODAL},
    {.key = "videos", .format = FORMAT_MULTIMODAL},
    {.key = "audio", .format = FORMAT_MULTIMODAL},
    {.key = "audios", .format = FORMAT_MULTIMODAL},
    {.key = "input", .format = FORMAT_PART}, /* Alpaca; Together's preference data */
    {.key = "system", .format = FORMAT_PART},
    {.key = "tools", .format = FORMAT_PART},
    {.key = "functions", .format = FORMAT_PART},
    {.key = "parallel_tool_calls", .format = FORMAT_PART},
    {.key = "id", .format = FORMAT_LABEL},
    {.key = "idx", .format = FORMAT_LABEL},
    {.key = "index", .format = FORMAT_LABEL},
    {.key = "source", .format = FORMAT_LABEL},
    {.key = "dataset", .format = FORMAT_LABEL},
    {.key = "category", .format = FORMAT_LABEL},
    {.key = "lang", .format = FORMAT_LABEL},
    {.key = "language", .format = FORMAT_LABEL},
    {.key = "meta", .format = FORMAT_LABEL},
    {.key = "metadata", .format = FORMAT_LABEL},
    {.key = "url", .format = FORMAT_LABEL},
    {.key = "timestamp", .format = FORMAT_LABEL},
    {.key = "title", .format = FORMAT_LABEL},
};

/* Index of a key in the table, or -1. */
static int example_key(const char *key)
{
    for (size_t i = 0; i < sizeof example_keys / sizeof example_keys[0]; i++)
        if (strcmp(example_keys[i].key, key) == 0)
            return (int)i;
    return -1;
}

/* The keys that a format may have beside those that are its own. */
static bool example_may_have(enum example_format format, const char *key)
{
    switch (format) {
    case FORMAT_MESSAGES:
        return strcmp(key, "tools") == 0 || strcmp(key, "functions") == 0 ||
               strcmp(key, "parallel_tool_calls") == 0;
    case FORMAT_SHAREGPT:
        return strcmp(key, "system") == 0 || strcmp(key, "tools") == 0;
    case FORMAT_ALPACA:
        return strcmp(key, "system") == 0 || strcmp(key, "input") == 0;
    default:
        return false;
    }
}

static bool example_empty(const json_t *value)
{
    return json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
}

/* Preference and multimodal rows have other formats' keys too; they are told first. */
static bool example_served(const json_t *row, struct example_fault *fault)
{
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)row, key, value) /* reads only; it wants non-const */
    {
        int at = example_key(key);
        if (at < 0 || example_empty(value))
            continue;
        if (example_keys[at].format == FORMAT_PREFERENCE)
            return FAULT(fault, "preference_data",
                         "\"%s\": preference data is not served; served: examples of answers "
                         "(supervised)",
                         key);
        if (example_keys[at].format == FORMAT_MULTIMODAL)
            return FAULT(fault, "multimodal", "\"%s\": multimodal data is not served; served: text",
                         key);
    }
    return true;
}

/* Names the row's keys, so that one sees what it was taken for. */
static bool example_unknown(const json_t *row, struct example_fault *fault)
{
    char keys[96] = "";
    size_t length = 0;
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)row, key, value)
    {
        int more = snprintf(keys + length, sizeof keys - length, "%s\"%.24s\"",
                            length > 0 ? ", " : "", key);
        if (more < 0 || length + (size_t)more >= sizeof keys)
            break;
        length += (size_t)more;
    }
    keys[length] = '\0'; /* whole keys only */
    return FAULT(fault, "missing_messages_list",
                 "no \"messages\" (nor text, prompt and completion, conversations, instruction, "
                 "input_ids), but %s; a line is {\"messages\": [{\"role\", \"content\"}, ...]}",
                 length > 0 ? keys : "nothing");
}

static bool example_format(const json_t *row, enum example_format *ret_format,
                           struct example_fault *fault)
{
    const char *first = NULL; /* the key that told the format */
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)row, key, value)
    {
        int at = example_key(key);
        if (at < 0 || example_keys[at].format >= FORMAT_LABEL ||
            (example_empty(value) && example_keys[at].format != FORMAT_MESSAGES))
            continue;
        if (first != NULL && example_keys[at].format != *ret_format)
            return FAULT(fault, "duplicate_format",
                         "both %s and %s: a line must hold one format; remove one of them", first,
                         key);
        first = key;
        *ret_format = example_keys[at].format;
    }
    if (first == NULL)
        return example_unknown(row, fault);
    json_object_foreach((json_t *)row, key, value)
    {
        int at = example_key(key);
        bool label =
            at >= 0 && example_keys[at].format == FORMAT_LABEL && *ret_format != FORMAT_MESSAGES;
        if (json_is_null(value) || label || (at >= 0 && example_keys[at].format == *ret_format) ||
            example_may_have(*ret_format, key) || (at >= 0 && example_empty(value)))
            continue;
        return FAULT(fault, "unrecognized_key",
                     "unknown key \"%.64s\" beside %s; remove it (jq -c 'del(.\"%.64s\")' FILE)",
                     key, first, key);
    }
    return true;
}

/* ---- rows ---- */

static bool example_has_answer(const json_t *messages)
{
    size_t index;
    const json_t *message;
    json_array_foreach((json_t *)messages, index, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (role != NULL && strcmp(role, "assistant") == 0)
            return true;
    }
    return false;
}

static bool example_chat(const json_t *row, enum example_format format, struct example *example,
                         struct example_fault *fault)
{
    CLEANUP(json_unref) json_t *messages = NULL;
    CLEANUP(json_unref) json_t *tools = NULL;
    bool good = true;
    const json_t *functions = json_object_get(row, "functions");
    if (format == FORMAT_SHAREGPT)
        good = example_formats_sharegpt(row, &messages, &tools, fault);
    else if (format == FORMAT_ALPACA)
        good = example_formats_alpaca(row, &messages, fault);
    else if (format == FORMAT_COMPLETION)
        good = example_formats_completion(row, &messages, fault);
    else if (functions != NULL && !example_empty(functions))
        return FAULT(fault, "invalid_tools",
                     "\"functions\": the older form; name them in \"tools\"");
    else {
        messages = json_incref(json_object_get(row, "messages"));
        tools = json_incref(json_object_get(row, "tools"));
    }
    struct conversation_fault wrong;
    if (!good)
        return false;
    if (!conversation_from_openai(messages, tools, &example->conversation, &wrong))
        return FAULT(fault, wrong.code, "%s", wrong.text);
    if (!example_has_answer(example->conversation.messages))
        return FAULT(fault, "example_missing_assistant_message",
                     "no message has the role assistant, so there is nothing to learn");
    return true;
}

static bool example_text(const json_t *row, struct example *example, struct example_fault *fault)
{
    json_t *text = json_object_get(row, "text");
    example->kind = EXAMPLE_TEXT;
    if (!json_is_string(text))
        return FAULT(fault, "data_type", "\"text\" must be a string");
    if (json_string_length(text) == 0)
        return FAULT(fault, "empty_messages", "\"text\" is empty: nothing to train on");
    example->text = json_incref(text);
    return true;
}

bool example_read(const char *row, size_t length, struct example *ret,
                  struct example_fault *ret_fault)
{
    if (!example_utf8(row, length, ret_fault))
        return false;
    CLEANUP(json_unref) json_t *json = example_parse(row, length, ret_fault);
    CLEANUP(example_done) struct example example = {.kind = EXAMPLE_CHAT};
    enum example_format format = FORMAT_MESSAGES;
    if (json == NULL || !example_served(json, ret_fault) ||
        !example_format(json, &format, ret_fault))
        return false;
    if (!(format == FORMAT_TEXT     ? example_text(json, &example, ret_fault)
          : format == FORMAT_TOKENS ? example_formats_tokens(json, &example, ret_fault)
                                    : example_chat(json, format, &example, ret_fault)))
        return false;
    *ret = example;
    example = (struct example){.kind = EXAMPLE_CHAT};
    return true;
}
