/* settings_row: one setter a kind of setting, for each of the two forms a value comes in. */
#include "daemon/settings_row.h"

#include "common/mem.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const struct settings_row settings_rows[SETTINGS_COUNT] = {
#define SETTING_TEXT(id, def, opt, env, help) \
    {.name = #id,                             \
     .flag = opt,                             \
     .variable = env,                         \
     .doc = help,                             \
     .text = def,                             \
     .kind = SETTINGS_TEXT,                   \
     .offset = offsetof(struct settings, id)},
#define SETTING_INT(id, def, low, high, what, opt, env, help) \
    {.name = #id,                                             \
     .flag = opt,                                             \
     .variable = env,                                         \
     .doc = help,                                             \
     .unit = what,                                            \
     .number = def,                                           \
     .min = low,                                              \
     .max = high,                                             \
     .kind = SETTINGS_INT,                                    \
     .offset = offsetof(struct settings, id)},
#define SETTING_LIST(id, opt, env, help) \
    {.name = #id,                        \
     .flag = opt,                        \
     .variable = env,                    \
     .doc = help,                        \
     .kind = SETTINGS_LIST,              \
     .offset = offsetof(struct settings, id)},
#define SETTING_MAP(id, opt, env, help) \
    {.name = #id,                       \
     .flag = opt,                       \
     .variable = env,                   \
     .doc = help,                       \
     .kind = SETTINGS_MAP,              \
     .offset = offsetof(struct settings, id)},
#include "api/settings.def"
#undef SETTING_TEXT
#undef SETTING_INT
#undef SETTING_LIST
#undef SETTING_MAP
};

void settings_row_clear_list(struct settings_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        mem_free(list->items[i].key);
        mem_free(list->items[i].value);
    }
    mem_free(list->items);
    *list = (struct settings_list){0};
}

int settings_row_put_text(char **member, const char *text, struct err *err)
{
    char *copy = mem_strdup(text);
    if (copy == NULL)
        return mem_fail(err, strlen(text), "a setting");
    mem_free(*member);
    *member = copy;
    return 0;
}

static int settings_put_int(const struct settings_row *row, int64_t *member, int64_t value,
                            const char *where, struct err *err)
{
    if (value < row->min || value > row->max)
        return err_set_field(err, ERR_SETTING, row->name,
                             "%s: %s must be %lld to %lld%s%s, not %lld", where, row->name,
                             (long long)row->min, (long long)row->max,
                             row->unit[0] != '\0' ? " " : "", row->unit, (long long)value);
    *member = value;
    return 0;
}

/* key is NULL in lists. */
int settings_row_add_item(struct settings_list *list, const char *key, size_t key_length,
                          const char *value, size_t value_length, struct err *err)
{
    struct settings_pair *items = mem_grow(list->items, list->count + 1, sizeof *items);
    if (items == NULL)
        return mem_fail(err, sizeof *items, "a setting");
    list->items = items;
    struct settings_pair *item = &items[list->count++];
    item->key = key != NULL ? mem_strndup(key, key_length) : NULL;
    item->value = mem_strndup(value, value_length);
    if (item->value == NULL || (key != NULL && item->key == NULL))
        return mem_fail(err, value_length, "a setting");
    return 0;
}

/* "a,b" or "k=a,l=b" */
static int settings_split(const struct settings_row *row, struct settings_list *list,
                          const char *text, const char *where, struct err *err)
{
    settings_row_clear_list(list);
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        const char *value = text;
        const char *key = NULL;
        if (row->kind == SETTINGS_MAP) {
            const char *equals = memchr(text, '=', length);
            if (equals == NULL || equals == text)
                return err_set_field(err, ERR_SETTING, row->name, "%s: %s takes name=value,...",
                                     where, row->name);
            key = text;
            value = equals + 1;
        }
        size_t value_length = (size_t)(text + length - value);
        if (value_length == 0)
            return err_set_field(err, ERR_SETTING, row->name, "%s: %s has an empty item", where,
                                 row->name);
        TRY(settings_row_add_item(list, key, key != NULL ? (size_t)(value - 1 - key) : 0, value,
                                  value_length, err));
        text += length;
        text += *text == ',';
    }
    return 0;
}

int settings_row_from_text(const struct settings_row *row, struct settings *settings,
                           const char *text, const char *where, struct err *err)
{
    void *member = (char *)settings + row->offset;
    if (row->kind == SETTINGS_TEXT)
        return settings_row_put_text(member, text, err);
    if (row->kind != SETTINGS_INT)
        return settings_split(row, member, text, where, err);
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        return err_set_field(err, ERR_SETTING, row->name, "%s: %s must be an integer, not \"%s\"",
                             where, row->name, text);
    return settings_put_int(row, member, value, where, err);
}

static int settings_from_list_json(const struct settings_row *row, struct settings_list *list,
                                   json_t *value, const char *where, struct err *err)
{
    bool map = row->kind == SETTINGS_MAP;
    settings_row_clear_list(list);
    if (map ? !json_is_object(value) : !json_is_array(value))
        return err_set_field(err, ERR_SETTING, row->name, "%s: %s must be an %s of strings", where,
                             row->name, map ? "object" : "array");
    void *iter = map ? json_object_iter(value) : NULL;
    size_t count = map ? json_object_size(value) : json_array_size(value);
    for (size_t i = 0; i < count; i++) {
        const char *key = map ? json_object_iter_key(iter) : NULL;
        const json_t *item = map ? json_object_iter_value(iter) : json_array_get(value, i);
        if (!json_is_string(item) || json_string_length(item) == 0)
            return err_set_field(err, ERR_SETTING, row->name,
                                 "%s: %s may hold only strings that are not empty", where,
                                 row->name);
        TRY(settings_row_add_item(list, key, key != NULL ? strlen(key) : 0, json_string_value(item),
                                  json_string_length(item), err));
        if (map)
            iter = json_object_iter_next(value, iter);
    }
    return 0;
}

int settings_row_from_json(const struct settings_row *row, struct settings *settings, json_t *value,
                           const char *where, struct err *err)
{
    void *member = (char *)settings + row->offset;
    switch (row->kind) {
    case SETTINGS_TEXT:
        if (!json_is_string(value))
            return err_set_field(err, ERR_SETTING, row->name, "%s: %s must be a string", where,
                                 row->name);
        return settings_row_put_text(member, json_string_value(value), err);
    case SETTINGS_INT:
        if (!json_is_integer(value))
            return err_set_field(err, ERR_SETTING, row->name, "%s: %s must be an integer", where,
                                 row->name);
        return settings_put_int(row, member, json_integer_value(value), where, err);
    default:
        return settings_from_list_json(row, member, value, where, err);
    }
}
