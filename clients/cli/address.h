/* address: where the daemon is, and the token for it.
 *
 * The URL: the one given (--url, ITHACA_URL), or the file `url` in a data directory. The token:
 * ITHACA_TOKEN, or `admin.token` in that directory. A directory that the user named (--data-dir,
 * ITHACA_DATA_DIR) lends its token to any URL; the default ones only to the URL in their own file,
 * so that no daemon's secret goes to a stranger.
 *
 * "unix:<path>" is a URL too: the daemon's Unix socket, which needs no token. Where no daemon of
 * this user has a URL, that of the system is tried at ADDRESS_SOCKET. */
#pragma once
#include "common/err.h"

#include <stdbool.h>

#define ADDRESS_SOCKET "/run/ithaca/socket"

struct address {
    char *url;   /* no slash and no /v1 at the end; owned */
    char *token; /* or NULL; owned */
    bool local;  /* the URL names this machine: no proxy is needed to reach it */
};

/* url and data_dir may be NULL. ERR_UNAVAILABLE when no URL is found. */
const char *address_unix_path(const char *url); /* of a "unix:" URL; NULL for others */
int address_find(const char *url, const char *data_dir, struct address *ret, struct err *err);
void address_done(struct address *address);
/* The folder named, else the one that a daemon of this user has by default. New string, NULL when
 * out of memory. */
char *address_data_dir(const char *named);
