/* fuzz_settings: the settings file. What loads has every text, and numbers within the bounds of
 * api/settings.def. */
#include "common/mem.h"
#include "common/must.h"
#include "daemon/settings.h"
#include "tests/fuzz/fuzz.h"

static void settings_list_check(const struct settings_list *list, bool map)
{
    for (size_t i = 0; i < list->count; i++) {
        must(list->items[i].value != NULL && list->items[i].value[0] != '\0');
        must((list->items[i].key != NULL) == map);
    }
}

static void settings_check(const struct settings *settings)
{
#define SETTING_TEXT(name, def, flag, env, doc) must(settings->name != NULL);
#define SETTING_INT(name, def, low, high, unit, flag, env, doc) \
    must(settings->name >= (low) && settings->name <= (high));
#define SETTING_LIST(name, flag, env, doc) settings_list_check(&settings->name, false);
#define SETTING_MAP(name, flag, env, doc) settings_list_check(&settings->name, true);
#include "api/settings.def"
#undef SETTING_TEXT
#undef SETTING_INT
#undef SETTING_LIST
#undef SETTING_MAP
    must(settings->data_dir[0] == '/' && settings->worker[0] == '/');
    for (size_t i = 0; i < settings->model_roots.count; i++)
        must(settings->model_roots.items[i].value[0] == '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    struct err err = {.code = ERR_NONE};
    struct settings settings;
    char *path = mem_strdup(fuzz_file(data, size));
    char program[] = "ithacad", flag[] = "--settings", home[] = "HOME=/nonexistent";
    char *argv[] = {program, flag, path, NULL};
    char *environment[] = {home, NULL};
    int rc = settings_load(3, argv, environment, &settings, &err);
    if (rc == 0) {
        fuzz_taken++;
        settings_check(&settings);
        settings_done(&settings);
    } else {
        fuzz_refused(rc, &err);
    }
    mem_free(path);
    must(mem_live() == live);
    return 0;
}
