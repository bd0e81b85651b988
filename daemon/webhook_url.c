/* webhook_url: strict about what a URL is, so that no other reader of it sees another host: of
 * letters, digits and a few signs, without user, escape or backslash before the path. Ranges of
 * addresses after IANA's registries of special-purpose addresses (RFC 6890). */
#include "daemon/webhook_url.h"

#include "daemon/settings.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FIELD "ithaca.webhook"

/* ---- text ---------------------------------------------------------------------------------- */

/* "host[:port]", "[address][:port]" or a bare IPv6 address, of `length` bytes. port 0: not given.
 */
static bool webhook_split(const char *text, size_t length, struct webhook_url *ret)
{
    const char *host = text, *end = text + length, *colon = NULL;
    size_t host_length = 0;
    if (length > 0 && text[0] == '[') {
        const char *close = memchr(text, ']', length);
        if (close == NULL)
            return false;
        host = text + 1;
        host_length = (size_t)(close - host);
        colon = close + 1;
    } else {
        colon = memchr(text, ':', length);
        if (colon != NULL && memchr(colon + 1, ':', (size_t)(end - colon) - 1) != NULL)
            colon = NULL; /* a bare IPv6 address */
        host_length = colon != NULL ? (size_t)(colon - text) : length;
    }
    if (host_length == 0 || host_length > WEBHOOK_HOST_BYTES)
        return false;
    for (size_t i = 0; i < host_length; i++)
        ret->host[i] = (char)tolower((unsigned char)host[i]);
    ret->host[host_length] = '\0';
    ret->port = 0;
    if (colon == NULL || colon == end)
        return true;
    char digits[6] = "";
    size_t digit_count = (size_t)(end - colon) - 1;
    if (colon[0] != ':' || digit_count == 0 || digit_count >= sizeof digits)
        return false;
    memcpy(digits, colon + 1, digit_count);
    ret->port = (int)strtol(digits, NULL, 10);
    return strspn(digits, "0123456789") == digit_count && ret->port > 0 && ret->port < 65536;
}

int webhook_url_parse(const char *text, struct webhook_url *ret_url, struct err *err)
{
    const bool secure = strncasecmp(text, "https://", 8) == 0;
    if (!secure && strncasecmp(text, "http://", 7) != 0)
        return err_set_field(err, ERR_INVALID_VALUE, FIELD,
                             FIELD " must begin with https:// or http://");
    const char *authority = text + (secure ? 8 : 7);
    size_t length = strcspn(authority, "/?");
    if (strchr(text, '#') != NULL ||
        strspn(authority, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]") <
            length ||
        !webhook_split(authority, length, ret_url))
        return err_set_field(err, ERR_INVALID_VALUE, FIELD,
                             FIELD " must be scheme, host, port where it is another, and path, as "
                                   "in https://hooks.example.com:8443/ithaca; without user or #");
    if (ret_url->port == 0)
        ret_url->port = secure ? 443 : 80;
    return 0;
}

/* ---- the list ------------------------------------------------------------------------------ */

static bool webhook_is_address(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

static enum webhook_reach webhook_entry_reach(const char *entry, const struct webhook_url *url)
{
    struct webhook_url allowed;
    if (strcmp(entry, "*") == 0)
        return WEBHOOK_REACH_PUBLIC;
    if (!webhook_split(entry, strlen(entry), &allowed) ||
        (allowed.port != 0 && allowed.port != url->port))
        return WEBHOOK_REACH_NONE;
    if (strncmp(allowed.host, "*.", 2) == 0) {
        size_t length = strlen(url->host), tail = strlen(allowed.host) - 1;
        bool below = length > tail && strcmp(url->host + length - tail, allowed.host + 1) == 0;
        return below ? WEBHOOK_REACH_PRIVATE : WEBHOOK_REACH_NONE;
    }
    if (strcmp(allowed.host, url->host) != 0)
        return WEBHOOK_REACH_NONE;
    return webhook_is_address(url->host) || strcmp(url->host, "localhost") == 0
               ? WEBHOOK_REACH_ALL
               : WEBHOOK_REACH_PRIVATE;
}

enum webhook_reach webhook_url_reach(const struct webhook_url *url,
                                     const struct settings_list *hosts)
{
    enum webhook_reach most = WEBHOOK_REACH_NONE;
    for (size_t i = 0; i < hosts->count; i++) {
        enum webhook_reach reach = webhook_entry_reach(hosts->items[i].value, url);
        most = reach > most ? reach : most;
    }
    return most;
}

int webhook_url_check(const char *text, const struct settings_list *hosts,
                      enum webhook_reach *ret_reach, struct err *err)
{
    struct webhook_url url;
    TRY(webhook_url_parse(text, &url, err));
    *ret_reach = webhook_url_reach(&url, hosts);
    if (*ret_reach != WEBHOOK_REACH_NONE)
        return 0;
    return err_set_field(err, ERR_INVALID_VALUE, FIELD,
                         FIELD ": webhooks may not go to %s at port %d: the operator lists hosts "
                               "in the setting webhook_hosts%s",
                         url.host, url.port, hosts->count == 0 ? ", which is empty" : "");
}

/* ---- addresses ----------------------------------------------------------------------------- */

static enum webhook_reach webhook_ipv4_needs(uint32_t address)
{
    static const struct {
        uint32_t first;
        int bits;
        enum webhook_reach reach;
    } ranges[] = {
        {.first = 0x00000000, .bits = 8, .reach = WEBHOOK_REACH_ALL},      /* this host */
        {.first = 0x7f000000, .bits = 8, .reach = WEBHOOK_REACH_ALL},      /* loopback */
        {.first = 0xa9fe0000, .bits = 16, .reach = WEBHOOK_REACH_ALL},     /* link-local */
        {.first = 0xe0000000, .bits = 3, .reach = WEBHOOK_REACH_ALL},      /* multicast, reserved */
        {.first = 0x0a000000, .bits = 8, .reach = WEBHOOK_REACH_PRIVATE},  /* 10 */
        {.first = 0xac100000, .bits = 12, .reach = WEBHOOK_REACH_PRIVATE}, /* 172.16 */
        {.first = 0xc0a80000, .bits = 16, .reach = WEBHOOK_REACH_PRIVATE}, /* 192.168 */
        {.first = 0x64400000, .bits = 10, .reach = WEBHOOK_REACH_PRIVATE}, /* shared (carriers) */
        {.first = 0xc0000000, .bits = 24, .reach = WEBHOOK_REACH_PRIVATE}, /* IETF's protocols */
        {.first = 0xc6120000, .bits = 15, .reach = WEBHOOK_REACH_PRIVATE}, /* benchmarks */
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if ((address ^ ranges[i].first) >> (32 - ranges[i].bits) == 0)
            return ranges[i].reach;
    return WEBHOOK_REACH_PUBLIC;
}

static uint32_t webhook_be32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
           (uint32_t)bytes[3];
}

static enum webhook_reach webhook_ipv6_needs(const uint8_t a[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:a.b.c.d */
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};    /* 64:ff9b::a.b.c.d */
    static const uint8_t zeros[12] = {0};                         /* ::, ::1, ::a.b.c.d */
    if (memcmp(a, mapped, sizeof mapped) == 0 || memcmp(a, nat64, sizeof nat64) == 0)
        return webhook_ipv4_needs(webhook_be32(a + 12));
    if (a[0] == 0x20 && a[1] == 0x02) /* 6to4 */
        return webhook_ipv4_needs(webhook_be32(a + 2));
    if (memcmp(a, zeros, sizeof zeros) == 0 || a[0] == 0xff || (a[0] == 0xfe && a[1] >= 0x80) ||
        webhook_be32(a) == 0x20010000) /* multicast, link and site, Teredo */
        return WEBHOOK_REACH_ALL;
    return (a[0] & 0xfe) == 0xfc || (a[0] & 0xe0) != 0x20 ? WEBHOOK_REACH_PRIVATE
                                                          : WEBHOOK_REACH_PUBLIC;
}

bool webhook_url_reaches(enum webhook_reach reach, const struct sockaddr *address)
{
    enum webhook_reach needed = WEBHOOK_REACH_ALL;
    if (address->sa_family == AF_INET)
        needed = webhook_ipv4_needs(
            ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr));
    else if (address->sa_family == AF_INET6)
        needed = webhook_ipv6_needs(
            ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr.s6_addr);
    else
        return false;
    return reach >= needed;
}
