/* chat: POST /v1/chat/completions, minimal: a base model, a tuned model ("ft:...") or a job's id
 * answers messages, greedily, on the CPU, not streamed.
 *
 * Each request is one child, `ithaca-worker --sample MODEL_DIR`, with {"messages","max_tokens",
 * "chat_template"} on its stdin and {"text","prompt_tokens","completion_tokens","finish_reason"} on
 * its stdout. At most CHAT_RUNNING at once, CHAT_WAITING more wait, further ones are refused
 * (ERR_TOO_MANY). A child is killed at CHAT_LIMIT_MS, when its client leaves, and when the daemon
 * stops. */
#pragma once
#include "daemon/api.h"

enum { CHAT_RUNNING = 2, CHAT_WAITING = 8, CHAT_LIMIT_MS = 60000 };

/* Makes <data_dir>/chat empty: requests and answers pass through files there. */
int chat_new(struct api *api, struct chat **ret_chat, struct err *err);
bool chat_is_idle(const struct chat *chat); /* no child is left */
void chat_free(struct chat *chat);          /* NULL is fine; no request is under way */

api_handler chat_create;

/* The same for other questions to a child about a model: its role on the command line, and what
 * becomes of its answer. */
struct chat_kind {
    const char *role;   /* "--sample" */
    const char *prefix; /* of ids: "chatcmpl-" */
    const char *late;   /* what to do when it takes too long */
    int (*answer)(struct http_request *request, const char *id, int64_t created_ms,
                  const char *model, const json_t *output, struct err *err);
};
/* Takes a deferred request: input, with the model's chat_template added, goes to the child's stdin,
 * its stdout to kind->answer. */
int chat_ask(struct api *api, struct http_request *request, const struct chat_kind *kind,
             const char *model, json_t *input, struct err *err);
