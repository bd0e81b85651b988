/* http_listen: the sockets that the server listens on: TCP, and a Unix socket beside it when the
 * setting `socket` names one. */
#pragma once
#include "common/err.h"

struct settings;

/* Closes a socket, with which nothing is lost; *fd becomes -1, and may be that. */
void http_listen_close(int *fd);
/* The one that was passed (settings.tcp_fd), or a new one. *ret_port: the one in use. ERR_IN_USE
 * when it is taken. */
int http_listen_tcp(const struct settings *settings, int *ret_fd, int *ret_port, struct err *err);
/* The one that was passed (settings.unix_fd), as it is, or a new one with the group and mode that
 * settings say. One that a daemon left behind is
 * replaced; ERR_IN_USE when somebody listens there, or the path is no socket. */
int http_listen_unix(const struct settings *settings, int *ret_fd, struct err *err);
