/* webhook_message: what is said of an event: the body of a message. */
#pragma once
#include "daemon/api.h"

/* Appends the body; nothing where the event is none that is told. */
int webhook_message_print(const struct api *api, const struct store_event *event,
                          const struct store_job *job, struct buf *out, struct err *err);
/* The job's own address; "" where it has none. */
int webhook_message_url(const struct store_job *job, char ret_url[LIMIT_TEXT_BYTES + 1],
                        struct err *err);
