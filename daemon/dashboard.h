/* dashboard: the pages at / and /dashboard/<name>: static files that are linked into the daemon
 * (dashboard_files.c), and the two files of the chart library dygraphs, read from the folder that
 * the setting dygraphs_dir names. Names are looked up in a table: no name becomes a path.
 *
 * Anyone may load them; they hold no data. What they show comes from the API, with the visitor's
 * session (session.h). Their Content-Security-Policy lets the browser run and load nothing but
 * these files, and talk to nothing but this daemon. */
#pragma once
#include "daemon/api.h"

#include <stdbool.h>
#include <stddef.h>

/* A file that is part of the program. */
struct dashboard_file {
    const char *type;  /* Content-Type */
    const char *bytes; /* static */
    size_t length;
};
/* By its name below /dashboard/; false: there is none. */
bool dashboard_file_find(const char *name, struct dashboard_file *ret_file);

api_handler dashboard_index, dashboard_get;
