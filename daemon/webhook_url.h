/* webhook_url: where a webhook may go. Users name addresses and the daemon calls them, so without a
 * rule users would reach what the daemon's machine reaches: its own services, the metadata of a
 * cloud, the network behind it.
 *
 * The setting webhook_hosts lists what is allowed; it is empty unless the operator fills it:
 *     hooks.example.com, hooks.example.com:8443   this host, at any port or this one
 *     *.example.com                               hosts below this one
 *     127.0.0.1, [::1]:9000, localhost            this address, or this machine
 *     *                                           any host
 * An entry also says which addresses are connected to. Under "*" only those of the internet; for a
 * host that is named also those of private networks; those of the machine itself and of its link
 * where they are listed as they are. The address is checked as it is connected to, so a name that
 * points elsewhere by then does not help.
 *
 * Pure functions. */
#pragma once
#include "common/err.h"

#include <stdbool.h>

enum webhook_reach {
    WEBHOOK_REACH_NONE,    /* not allowed */
    WEBHOOK_REACH_PUBLIC,  /* addresses of the internet */
    WEBHOOK_REACH_PRIVATE, /* and of private networks */
    WEBHOOK_REACH_ALL,     /* and of this machine and link */
};

enum { WEBHOOK_HOST_BYTES = 255 };
struct webhook_url {
    char host[WEBHOOK_HOST_BYTES + 1]; /* lower case; an IPv6 address without its brackets */
    int port;
};
/* ERR_INVALID_VALUE, field "ithaca.webhook", unless it is "http[s]://host[:port][/...]" without
 * user or fragment. */
int webhook_url_parse(const char *text, struct webhook_url *ret_url, struct err *err);

struct settings_list;
enum webhook_reach webhook_url_reach(const struct webhook_url *url,
                                     const struct settings_list *hosts);
/* The same with its sentence: ERR_INVALID_VALUE where it may not go there. */
int webhook_url_check(const char *text, const struct settings_list *hosts,
                      enum webhook_reach *ret_reach, struct err *err);

struct sockaddr;
bool webhook_url_reaches(enum webhook_reach reach, const struct sockaddr *address);
