/* chat: POST /v1/chat/completions, minimal: a base model, a tuned model ("ft:...") or a job's id
 * answers messages, greedily, on the CPU, not streamed.
 *
 * Each request is one child, `ithaca-worker --sample MODEL_DIR`, with {"messages","max_tokens"} on
 * its stdin and {"text","prompt_tokens","completion_tokens","finish_reason"} on its stdout. At most
 * CHAT_RUNNING at once, CHAT_WAITING more wait, further ones are refused (ERR_TOO_MANY). A child is
 * killed at CHAT_LIMIT_MS, when its client leaves, and when the daemon stops. */
#pragma once
#include "daemon/api.h"

enum { CHAT_RUNNING = 2, CHAT_WAITING = 8, CHAT_LIMIT_MS = 60000 };

/* Makes <data_dir>/chat empty: requests and answers pass through files there. */
int chat_new(struct api *api, struct chat **ret_chat, struct err *err);
bool chat_is_idle(const struct chat *chat); /* no child is left */
void chat_free(struct chat *chat);          /* NULL is fine; no request is under way */

api_handler chat_create;
