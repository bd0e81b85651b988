/* http_check: refuses requests whose framing or Host two programs could read differently.
 *
 * libmicrohttpd 0.9.75 takes Content-Length together with Transfer-Encoding, repeated headers and
 * absolute-form targets; behind a proxy each of these smuggles requests. The Host rule also ends
 * DNS rebinding: a web page whose name was pointed at 127.0.0.1 sends its own name. Pure functions
 * over what the header walk found; after a refusal the connection is closed. */
#pragma once
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct settings_list;

struct http_facts {
    bool http_1_0;                 /* the version is older than HTTP/1.1 */
    int hosts;                     /* times the header came */
    int content_lengths;           /* times the header came */
    int transfer_encodings;        /* times the header came */
    int authorizations;            /* times the header came */
    const char *host;              /* its value, or NULL */
    const char *content_length;    /* its value, or NULL */
    const char *transfer_encoding; /* its value, or NULL */
    const char *content_encoding;  /* its value, or NULL */
    const char *target;            /* as sent */
};

/* *ret_length: the Content-Length, or -1 when there is none (no body, or chunked).
 * ERR_BAD_REQUEST; ERR_FORBIDDEN when the Host is not served; ERR_UNSUPPORTED for a body that is
 * compressed on its way. */
int http_check(const struct http_facts *facts, const char *listen,
               const struct settings_list *hosts, int64_t *ret_length, struct err *err);

/* A request by cookie, which a browser sends for any page that asks: may this page have asked?
 * fetch_site, origin: values of Sec-Fetch-Site and Origin, or NULL; changes: it is no GET.
 * ERR_FORBIDDEN. (W3C Fetch Metadata; RFC 6454) */
int http_check_origin(bool changes, const char *fetch_site, const char *origin, const char *host,
                      struct err *err);

/* Is the Host value (name, name:port, [v6]:port) one of ours? localhost, 127.0.0.1 and ::1
 * always are. */
bool http_check_host(const char *host, const char *listen, const struct settings_list *hosts);
