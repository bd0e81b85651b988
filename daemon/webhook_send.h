/* webhook_send: the child that delivers one message: `ithacad webhook`. Its request comes on stdin,
 * as JSON: {"url", "reach" (webhook_url.h), "headers": [...], "body"}. It prints "status 204", or
 * "failed: <why>", and ends with 0; the daemon decides what that means.
 *
 * A child, not a thread: another host's answer is read by libcurl and its TLS, which the daemon's
 * memory, with everybody's tokens and jobs, is kept away from; and it may take its time. No
 * redirect is followed, no proxy asked, nothing of the answer read but its status. */
#pragma once
#include "common/err.h"

enum { WEBHOOK_SEND_S = 15, WEBHOOK_CONNECT_S = 5 }; /* limits of a delivery */

int webhook_send_main(struct err *err);
