/* chat_jsonl: checks one line of an OpenAI-format chat JSONL file, with the rule that is broken by
 * name.
 *
 * Rules (their code strings are OpenAI's cookbook names where it has one):
 *   invalid_utf8           a byte that is not UTF-8; its column is given
 *   invalid_json           not JSON
 *   data_type              JSON, but not an object where one must be
 *   duplicate_format       keys of two formats on one line
 *   unserved_format        another format than {"messages": [...]}
 *   unrecognized_key       a key beside messages that is not of the format
 *   tools_not_served       tools, tool calls or tool messages
 *   missing_messages_list  no list of messages
 *   empty_messages         messages is null or []: nothing to train on, harmless
 *   message_missing_key, message_unrecognized_key, unrecognized_role, missing_content,
 *   unserved_content (a list of parts), invalid_weight, example_missing_assistant_message
 * Roles: system, developer, user, assistant, tool. Keys with the value null count as absent, as
 * OpenAI's own objects have them. Any order of turns is fine, also without a user (field case R08).
 * weight is 0 or 1, and only an assistant's may be 1. A BOM at the start of the file, CRLF and
 * blank lines are the caller's business (dataset_prepare.c). */
#pragma once
#include "common/json.h"

#include <stdint.h>

enum { CHAT_JSONL_CODE_BYTES = 48, CHAT_JSONL_TEXT_BYTES = 256 };
struct chat_jsonl_fault {
    char code[CHAT_JSONL_CODE_BYTES]; /* "invalid_json", "missing_messages_list", ... */
    int64_t column;                   /* 1-based where known, else 0; bytes for invalid_utf8 */
    char text[CHAT_JSONL_TEXT_BYTES]; /* what is wrong and how to mend it, with the message's index
                                         counted from 0: "messages[2]: ..."; UTF-8 */
};
/* New reference to the example's messages array, or NULL with *ret_fault filled. */
json_t *chat_jsonl_check(const char *line, size_t length, struct chat_jsonl_fault *ret_fault);
/* Fills a fault; for callers that find faults of their own in a line. */
void chat_jsonl_fault_set(struct chat_jsonl_fault *fault, const char *code, int64_t column,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));
