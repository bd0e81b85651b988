/* systemd: what a service manager and this daemon tell each other: the sockets that it opened for
 * us (as sd_listen_fds(3)), our state and heartbeats (as sd_notify(3)). Both are a few variables of
 * the environment and a datagram, so no library is needed. Under no manager nothing happens. */
#pragma once
#include "common/err.h"

#include <stdint.h>

struct settings;

/* Sockets that were passed take the place of those that settings name: listen and port, or socket,
 * become theirs. At most one of each kind; another one, or one that does not listen, is
 * ERR_SETTING. Call once, before anything is started: no child gets them. */
int systemd_take_sockets(struct settings *settings, struct err *err);

/* Lines of NAME=value: "READY=1\nSTATUS=Serving". Waits a second at most for the manager to listen;
 * a message that is lost is logged. */
void systemd_notify(const char *state);

/* How often the manager wants to hear "WATCHDOG=1", halved as it advises; 0: never. */
int64_t systemd_watchdog_ms(void);
