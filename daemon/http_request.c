/* http_request: what a handler may ask of its request, and leave in it. */
#include "common/must.h"
#include "daemon/http_private.h"

#include <stdio.h>
#include <string.h>

const struct route_match *http_request_route(const struct http_request *request)
{
    return &request->match;
}

const char *http_request_header(const struct http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

const char *http_request_id(const struct http_request *request)
{
    return request->id;
}

const char *http_request_target(const struct http_request *request)
{
    return request->target;
}

void http_request_digest(const struct http_request *request, char ret_hex[IO_HASH_BYTES])
{
    if (request->form_hasher != NULL)
        io_hasher_hex(request->form_hasher, ret_hex);
    else
        io_hash(request->body.data, request->body.length, ret_hex);
}

int64_t http_request_peer(const struct http_request *request)
{
    return request->peer_uid;
}

const char *http_request_cookie(const struct http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_COOKIE_KIND, name);
}

void http_request_set_header(struct http_request *request, const char *name, const char *value)
{
    must(strlen(name) < sizeof request->header_name &&
         strlen(value) < sizeof request->header_value);
    (void)snprintf(request->header_name, sizeof request->header_name, "%s", name);
    (void)snprintf(request->header_value, sizeof request->header_value, "%s", value);
}

const struct buf *http_request_body(const struct http_request *request)
{
    return &request->body;
}

int64_t http_request_length(const struct http_request *request)
{
    return request->length;
}

void http_request_set_who(struct http_request *request, const struct auth_who *who)
{
    request->who = *who;
}

const struct auth_who *http_request_who(const struct http_request *request)
{
    return &request->who;
}

const char *http_request_owner(const struct http_request *request)
{
    return request->who.user;
}

void http_request_on_end(struct http_request *request, void (*ended)(void *context), void *context)
{
    must(request->ended == NULL);
    request->ended = ended;
    request->ended_context = context;
}

void *http_request_ended_context(const struct http_request *request)
{
    return request->ended_context;
}
