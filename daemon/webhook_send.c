/* webhook_send: see webhook_send.h. The address is checked as a socket is opened to it, after every
 * resolving, so that what a name meant before does not count. */
#include "daemon/webhook_send.h"

#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"
#include "daemon/webhook_url.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

struct webhook_send {
    enum webhook_reach reach;
    bool refused; /* an address beyond it */
};

static curl_socket_t webhook_open(void *context, curlsocktype purpose,
                                  struct curl_sockaddr *address)
{
    struct webhook_send *send = context;
    (void)purpose;
    if (webhook_url_reaches(send->reach, &address->addr))
        return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    send->refused = true;
    return CURL_SOCKET_BAD;
}

/* The answer's body ends the transfer: the status is known by then. */
static size_t webhook_ignore(char *bytes, size_t size, size_t count, void *context)
{
    (void)bytes;
    (void)size;
    (void)count;
    (void)context;
    return 0;
}

static struct curl_slist *webhook_headers(const json_t *request)
{
    struct curl_slist *list = curl_slist_append(NULL, "Expect:");
    size_t i;
    const json_t *header;
    json_array_foreach(json_object_get(request, "headers"), i, header)
    {
        struct curl_slist *longer = curl_slist_append(list, json_string_value(header));
        list = longer != NULL ? longer : list;
    }
    return list;
}

static void webhook_perform(CURL *curl, struct webhook_send *send)
{
    char why[CURL_ERROR_SIZE] = "";
    long status = 0;
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    CURLcode code = curl_easy_perform(curl);
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, NULL);
    if (code == CURLE_OK || (code == CURLE_WRITE_ERROR && status > 0))
        (void)printf("status %ld\n", status);
    else if (send->refused)
        (void)printf("failed: its address may not be connected to (setting webhook_hosts)\n");
    else
        (void)printf("failed: %s\n", why[0] != '\0' ? why : curl_easy_strerror(code));
}

#define CURL_TRY(call)                                                                    \
    do {                                                                                  \
        CURLcode curl_code_ = (call);                                                     \
        if (curl_code_ != CURLE_OK)                                                       \
            return err_set(err, ERR_IO, "%s: %s", #call, curl_easy_strerror(curl_code_)); \
    } while (0)

static int webhook_configure(CURL *curl, const char *url, const char *body,
                             struct curl_slist *headers, struct webhook_send *send, struct err *err)
{
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_URL, url));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https"));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_PROXY, ""));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, send));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, webhook_open));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)WEBHOOK_CONNECT_S));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)WEBHOOK_SEND_S));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, webhook_ignore));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_USERAGENT, "ithaca/" ITHACA_VERSION));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(body)));
    CURL_TRY(curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body)); /* makes it a POST */
    return 0;
}

static int webhook_deliver(CURL *curl, const json_t *request, struct err *err)
{
    const char *url = NULL, *body = NULL;
    int64_t reach = 0;
    TRY(json_get_string(request, "url", ERR_BAD_REQUEST, &url, err));
    TRY(json_get_string(request, "body", ERR_BAD_REQUEST, &body, err));
    TRY(json_get_i64(request, "reach", ERR_BAD_REQUEST, &reach, err));
    struct webhook_send send = {.reach = (enum webhook_reach)reach};
    struct curl_slist *headers = webhook_headers(request);
    int rc = webhook_configure(curl, url, body, headers, &send, err);
    if (rc == 0)
        webhook_perform(curl, &send);
    curl_slist_free_all(headers);
    return rc;
}

int webhook_send_main(struct err *err)
{
    CLEANUP(json_unref) json_t *request = NULL;
    TRY(json_parse_stream(stdin, LIMIT_JSON_BODY_BYTES, "a delivery", &request, err));
    (void)curl_global_init(CURL_GLOBAL_DEFAULT); /* then there is no handle */
    CURL *curl = curl_easy_init();
    int rc = curl != NULL ? webhook_deliver(curl, request, err)
                          : err_set(err, ERR_NOMEM, "libcurl cannot be started");
    curl_easy_cleanup(curl);
    curl_global_cleanup();
    return rc;
}
