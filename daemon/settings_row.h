/* settings_row: the rows of api/settings.def as data, and how a value, given as text or as JSON,
 * becomes the member a row stands for. Only settings*.c include it. */
#pragma once
#include "common/json.h"
#include "daemon/settings.h"

enum settings_index {
#define SETTING_TEXT(name, def, flag, env, doc) SETTINGS_INDEX_##name,
#define SETTING_INT(name, def, min, max, unit, flag, env, doc) SETTINGS_INDEX_##name,
#define SETTING_LIST(name, flag, env, doc) SETTINGS_INDEX_##name,
#define SETTING_MAP(name, flag, env, doc) SETTINGS_INDEX_##name,
#include "api/settings.def"
#undef SETTING_TEXT
#undef SETTING_INT
#undef SETTING_LIST
#undef SETTING_MAP
    SETTINGS_COUNT
};

enum settings_kind { SETTINGS_TEXT, SETTINGS_INT, SETTINGS_LIST, SETTINGS_MAP };

struct settings_row {
    const char *name;        /* key in the settings file */
    const char *flag;        /* "--port" */
    const char *variable;    /* "ITHACA_PORT" */
    const char *doc;         /* help text */
    const char *unit;        /* of an integer, "" when none */
    const char *text;        /* default of a text */
    int64_t number;          /* default of an integer */
    int64_t min;             /* bounds of an integer, both legal */
    int64_t max;             /* bounds of an integer, both legal */
    size_t offset;           /* of the member in struct settings */
    enum settings_kind kind; /* what the member is */
};

extern const struct settings_row settings_rows[SETTINGS_COUNT];

/* where names the source in errors: a file, a flag, a variable. ERR_SETTING, field: the row's name.
 */
int settings_row_from_text(const struct settings_row *row, struct settings *settings,
                           const char *text, const char *where, struct err *err);
int settings_row_from_json(const struct settings_row *row, struct settings *settings, json_t *value,
                           const char *where, struct err *err);

int settings_row_put_text(char **member, const char *text, struct err *err); /* replaces */
/* Appends; key is NULL in lists. */
int settings_row_add_item(struct settings_list *list, const char *key, size_t key_length,
                          const char *value, size_t value_length, struct err *err);
void settings_row_clear_list(struct settings_list *list);
