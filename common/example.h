/* example: one row of a training file (a line of JSONL, an element of a JSON array), checked, with
 * the rule that is broken by name.
 *
 * Formats, told by their keys; a file may mix them, a row may not:
 *
 *   OpenAI, Together   {"messages": [...], "tools": [...]?}         rules in conversation.h
 *   Together           {"prompt": "...", "completion": "..."}       one question, one answer
 *   plain text         {"text": "..."}                              a document, all of it trained
 *   ShareGPT           {"conversations": [{"from", "value"}, ...], "system"?, "tools"?}; any order;
 *                      from: human, user; gpt, assistant, model; system; observation, tool;
 *                      function_call (a JSON object {"name", "arguments"} or a list of them)
 *   Alpaca             {"instruction", "output", "input"?, "system"?, "history": [[q, a], ...]?};
 *                      input stands below the instruction, after a line feed
 *   tokenised          {"input_ids": [...], "labels": [...]?, "attention_mask": [...]?}; labels are
 *                      the ids, or -100 where there is no loss; the mask must be all 1
 *
 * Preference data (chosen, rejected, ...) and multimodal data (images, ...) are refused by name.
 * Beside messages nothing else may stand but tools; beside the other formats columns that name the
 * row (id, source, url, ...) may. Keys with the value null count as absent.
 *
 * Rules (their code strings are OpenAI's cookbook names where it has one):
 *   invalid_utf8           a byte that is not UTF-8; its column is given
 *   invalid_json           not JSON
 *   data_type              JSON, but not an object where one must be
 *   duplicate_format       keys of two formats on one line
 *   preference_data, multimodal
 *   unrecognized_key       a key that is not of the format
 *   missing_messages_list  no key of any format
 *   empty_messages         messages (text, ...) is null or empty: nothing to train on, harmless
 *   message_missing_key, message_unrecognized_key, unrecognized_role, missing_content,
 *   invalid_weight, invalid_tool_call, invalid_tools, invalid_ids,
 *   example_missing_assistant_message
 * Any order of turns is fine, also without a user (field case R08). A BOM at the start of the file,
 * CRLF and blank lines are the caller's business (dataset_prepare.c). */
#pragma once
#include "common/conversation.h"
#include "common/json.h"

#include <stdint.h>

enum { EXAMPLE_CODE_BYTES = 48, EXAMPLE_TEXT_BYTES = 256 };
struct example_fault {
    char code[EXAMPLE_CODE_BYTES]; /* "invalid_json", "missing_messages_list", ... */
    int64_t line;                  /* below the first line of the row; 0: in it */
    int64_t column;                /* 1-based where known, else 0; bytes for invalid_utf8 */
    char text[EXAMPLE_TEXT_BYTES]; /* what is wrong and how to mend it, with the message's index
                                      counted from 0: "messages[2]: ..."; UTF-8 */
};
/* Fills a fault; for callers that find faults of their own in a row. */
void example_fault_set(struct example_fault *fault, const char *code, int64_t column,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The fault of a byte that is no UTF-8. */
void example_fault_utf8(struct example_fault *fault, int64_t column, char byte);

enum example_kind { EXAMPLE_CHAT, EXAMPLE_TEXT, EXAMPLE_TOKENS };
struct example {
    enum example_kind kind;
    struct conversation conversation; /* CHAT */
    json_t *text;                     /* TEXT: a string */
    json_t *ids;                      /* TOKENS: integers of int32 from 0 on */
    json_t *labels;                   /* TOKENS: as many, or NULL: all trained */
};
void example_done(struct example *example); /* {0} is fine */

/* False with *ret_fault filled. A NUL follows the row. */
bool example_read(const char *row, size_t length, struct example *ret,
                  struct example_fault *ret_fault);
