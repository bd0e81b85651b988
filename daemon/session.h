/* session: /v1/session: who asks, and a cookie for browsers, whose EventSource cannot send a token.
 *
 * POST with a Bearer token opens a session of SESSION_HOURS (or to the token's end): the answer
 * sets the cookie SESSION_COOKIE, HttpOnly (no script reads it), SameSite=Strict, and Secure under
 * TLS. From then on the browser may leave the token out; access.c takes the cookie from the same
 * origin only. DELETE ends it. */
#pragma once
#include "daemon/api.h"

#define SESSION_COOKIE "ithaca_session"
enum { SESSION_HOURS = 12 };

api_handler session_create, session_get, session_end;
