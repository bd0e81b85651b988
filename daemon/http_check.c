/* http_check: the rules one by one, each with its own sentence. */
#include "daemon/http_check.h"

#include "daemon/settings.h"

#include <string.h>
#include <strings.h>

static bool http_check_is(const char *host, size_t length, const char *name)
{
    return strlen(name) == length && strncasecmp(host, name, length) == 0;
}

bool http_check_host(const char *host, const char *listen, const struct settings_list *hosts)
{
    size_t length;
    const char *port;
    if (host[0] == '[') {
        length = strcspn(host, "]");
        if (host[length] != ']')
            return false;
        port = host + length + 1;
        host++;
        length--;
    } else {
        length = strcspn(host, ":");
        port = host + length;
    }
    if (*port == ':' ? port[1 + strspn(port + 1, "0123456789")] != '\0' : *port != '\0')
        return false;
    if (http_check_is(host, length, "localhost") || http_check_is(host, length, "127.0.0.1") ||
        http_check_is(host, length, "::1") || http_check_is(host, length, listen))
        return true;
    for (size_t i = 0; i < hosts->count; i++)
        if (http_check_is(host, length, hosts->items[i].value))
            return true;
    return false;
}

static int http_check_length(const char *text, int64_t *ret_length, struct err *err)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || text[digits] != '\0' || digits > 18)
        return err_set(err, ERR_BAD_REQUEST, "Content-Length is not a number");
    int64_t value = 0;
    for (size_t i = 0; i < digits; i++)
        value = value * 10 + (text[i] - '0');
    *ret_length = value;
    return 0;
}

int http_check(const struct http_facts *facts, const char *listen,
               const struct settings_list *hosts, int64_t *ret_length, struct err *err)
{
    if (facts->target[0] != '/')
        return err_set(err, ERR_BAD_REQUEST,
                       "the request target must be a path; send the host in the Host header");
    if (facts->transfer_encodings > 0 && facts->content_lengths > 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "Transfer-Encoding and Content-Length exclude each other");
    if (facts->content_lengths > 1)
        return err_set(err, ERR_BAD_REQUEST, "Content-Length is given twice");
    if (facts->transfer_encodings > 1)
        return err_set(err, ERR_BAD_REQUEST, "Transfer-Encoding is given twice");
    if (facts->hosts > 1)
        return err_set(err, ERR_BAD_REQUEST, "Host is given twice");
    if (facts->authorizations > 1)
        return err_set(err, ERR_BAD_REQUEST, "Authorization is given twice");
    if (facts->transfer_encoding != NULL &&
        (facts->http_1_0 || strcasecmp(facts->transfer_encoding, "chunked") != 0))
        return err_set(err, ERR_BAD_REQUEST,
                       "the only Transfer-Encoding served is \"chunked\", in HTTP/1.1");
    if (facts->host == NULL && !facts->http_1_0)
        return err_set(err, ERR_BAD_REQUEST, "the Host header is missing");
    if (facts->host != NULL && !http_check_host(facts->host, listen, hosts))
        return err_set(err, ERR_FORBIDDEN,
                       "this server does not serve the Host \"%.200s\"; the setting allowed_hosts "
                       "adds names",
                       facts->host);
    if (facts->content_encoding != NULL && strcasecmp(facts->content_encoding, "identity") != 0)
        return err_set_field(err, ERR_UNSUPPORTED, "Content-Encoding",
                             "bodies are not taken in the Content-Encoding \"%.64s\": send them as "
                             "they are (a training file itself may be .gz or .zst)",
                             facts->content_encoding);
    int64_t length = -1;
    if (facts->content_length != NULL)
        TRY(http_check_length(facts->content_length, &length, err));
    *ret_length = length;
    return 0;
}

int http_check_origin(bool changes, const char *fetch_site, const char *origin, const char *host,
                      struct err *err)
{
    bool same = !changes;
    if (fetch_site != NULL) {
        same = strcmp(fetch_site, "same-origin") == 0 ||
               (!changes && strcmp(fetch_site, "none") == 0); /* the address bar */
    } else if (origin != NULL) {
        const char *scheme_end = strstr(origin, "://");
        same = host != NULL && scheme_end != NULL && strcasecmp(scheme_end + 3, host) == 0;
    }
    if (same)
        return 0;
    return err_set(err, ERR_FORBIDDEN,
                   "a session's requests must come from a page of this server; programs send "
                   "\"Authorization: Bearer <token>\"");
}
