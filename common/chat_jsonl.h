/* chat_jsonl: checks one line of an OpenAI-format chat JSONL file, with the rule that is broken by
 * name.
 *
 * Rules (their code strings are OpenAI's cookbook names where it has one): data_type,
 * missing_messages_list, message_missing_key, message_unrecognized_key, unrecognized_role,
 * missing_content, example_missing_assistant_message, invalid_weight, duplicate_format. Roles:
 * system, developer, user, assistant, tool. A BOM at the start of the file, CRLF and blank lines
 * are the caller's business (dataset.c). system+assistant without user is fine (field case R08). */
#pragma once
#include "common/json.h"

enum { CHAT_JSONL_CODE_BYTES = 48, CHAT_JSONL_TEXT_BYTES = 256 };
struct chat_jsonl_fault {
    char code[CHAT_JSONL_CODE_BYTES]; /* "invalid_json", "missing_messages_list", ... */
    int64_t column;                   /* 1-based where known, else 0 */
    char text[CHAT_JSONL_TEXT_BYTES]; /* what is wrong and how to mend it, with the message's index
                                       */
};
/* New reference to the example's messages array, or NULL with *ret_fault filled. */
json_t *chat_jsonl_check(const char *line, size_t length, struct chat_jsonl_fault *ret_fault);
