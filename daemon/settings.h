/* settings: what the operator chose. One row of api/settings.def gives member, key in the settings
 * file, environment variable, flag and help text.
 *
 * Sources in rising order: defaults, the settings file (--settings FILE, ITHACA_SETTINGS, else
 * <data_dir>/settings.json when it is there), ITHACA_* variables, flags ("--port 1" or "--port=1").
 * Keys and flags that do not exist are refused by name (ERR_SETTING, ERR_USAGE). Paths come out
 * absolute. data_dir may stand in a file named by --settings, not in <data_dir>/settings.json.
 *
 *     struct settings settings;
 *     TRY(settings_load(argc, argv, environ, &settings, err));
 *     ...
 *     settings_done(&settings); */
#pragma once
#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct settings_pair {
    char *key;   /* of a list: NULL */
    char *value; /* never NULL */
};

struct settings_list {
    struct settings_pair *items; /* count of them */
    size_t count;
};

struct settings {
#define SETTING_TEXT(name, def, flag, env, doc) char *name;
#define SETTING_INT(name, def, min, max, unit, flag, env, doc) int64_t name;
#define SETTING_LIST(name, flag, env, doc) struct settings_list name;
#define SETTING_MAP(name, flag, env, doc) struct settings_list name;
#include "api/settings.def"
#undef SETTING_TEXT
#undef SETTING_INT
#undef SETTING_LIST
#undef SETTING_MAP
    int tcp_fd;  /* listening sockets that were passed (systemd.h) and are at listen and port, */
    int unix_fd; /* or at socket; 0: none. The HTTP server takes them over */
};

/* argv[0] is skipped. On failure nothing is left to release. */
int settings_load(int argc, char *const *argv, char *const *environment,
                  struct settings *ret_settings, struct err *err);
void settings_done(struct settings *settings);

/* The first ITHACA_ variable that is no setting and belongs to no other program of Ithaca: worth a
 * warning, a typing error is likely. NULL when there is none. */
const char *settings_unknown_variable(char *const *environment);

/* Value of a map's key, or NULL. */
const char *settings_map_get(const struct settings_list *map, const char *key);

/* The help text of all flags, for `ithacad --help`. */
struct buf;
void settings_help(struct buf *out);
