/* settings: the rows of api/settings.def as a table of (member, kind, bounds), filled from four
 * sources.
 *
 * Every source is brought to one of two forms, a text (environment, flag) or a JSON value (file),
 * and each kind has one setter for either. Flags and variables are collected first, because they
 * say where the file is, and applied last, because they win. */
#include "daemon/settings.h"

#include "common/buf.h"
#include "common/io.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/worker_program.h"
#include "daemon/settings_row.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const char settings_file_flag[] = "--settings";
static const char settings_file_variable[] = "ITHACA_SETTINGS";
/* Variables of the other programs and of the tests. */
static const char *const settings_foreign[] = {
    "ITHACA_SETTINGS",         "ITHACA_URL",       "ITHACA_TOKEN",     "ITHACA_CACERT",
    "ITHACA_STREAM_SILENCE_S", "ITHACA_BUILD_DIR", "ITHACA_SOURCE_DIR"};

/* Values given as text, by row; borrowed from argv and the environment. */
struct settings_texts {
    const char *values[SETTINGS_COUNT];
    const char *file; /* path of the settings file, or NULL */
};

void settings_done(struct settings *settings)
{
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        char *member = (char *)settings + settings_rows[i].offset;
        if (settings_rows[i].kind == SETTINGS_TEXT)
            mem_free(*(char **)(void *)member);
        else if (settings_rows[i].kind != SETTINGS_INT)
            settings_row_clear_list((struct settings_list *)(void *)member);
    }
    *settings = (struct settings){0};
}

/* ---- sources ---- */

static int settings_defaults(struct settings *settings, struct err *err)
{
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        const struct settings_row *row = &settings_rows[i];
        void *member = (char *)settings + row->offset;
        if (row->kind == SETTINGS_TEXT)
            TRY(settings_row_put_text(member, row->text, err));
        else if (row->kind == SETTINGS_INT)
            *(int64_t *)member = row->number;
    }
    return 0;
}

static const char **settings_slot(struct settings_texts *texts, const char *flag, size_t length)
{
    if (strlen(settings_file_flag) == length && memcmp(settings_file_flag, flag, length) == 0)
        return &texts->file;
    for (int i = 0; i < SETTINGS_COUNT; i++)
        if (strlen(settings_rows[i].flag) == length &&
            memcmp(settings_rows[i].flag, flag, length) == 0)
            return &texts->values[i];
    return NULL;
}

static int settings_scan_flags(int argc, char *const *argv, struct settings_texts *ret_texts,
                               struct err *err)
{
    for (int i = 1; i < argc; i++) {
        size_t length = strcspn(argv[i], "=");
        const char **slot = settings_slot(ret_texts, argv[i], length);
        if (slot == NULL)
            return err_set(err, ERR_USAGE, "%.*s is no option of ithacad; see ithacad --help",
                           (int)length, argv[i]);
        if (argv[i][length] == '=')
            *slot = argv[i] + length + 1;
        else if (i + 1 < argc)
            *slot = argv[++i];
        else
            return err_set(err, ERR_USAGE, "%s needs a value", argv[i]);
    }
    return 0;
}

static const char *settings_variable(char *const *environment, const char *name)
{
    size_t length = strlen(name);
    for (char *const *entry = environment; *entry != NULL; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

static void settings_scan_variables(char *const *environment, struct settings_texts *ret_texts)
{
    ret_texts->file = settings_variable(environment, settings_file_variable);
    for (int i = 0; i < SETTINGS_COUNT; i++)
        ret_texts->values[i] = settings_variable(environment, settings_rows[i].variable);
}

static int settings_apply(const struct settings_texts *texts, bool flags, struct settings *settings,
                          struct err *err)
{
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        const struct settings_row *row = &settings_rows[i];
        if (texts->values[i] != NULL)
            TRY(settings_row_from_text(row, settings, texts->values[i],
                                       flags ? row->flag : row->variable, err));
    }
    return 0;
}

static const struct settings_row *settings_row_named(const char *name)
{
    for (int i = 0; i < SETTINGS_COUNT; i++)
        if (strcmp(settings_rows[i].name, name) == 0)
            return &settings_rows[i];
    return NULL;
}

/* implied: the file was found in the data folder, so it cannot say where that is. */
static int settings_apply_file(const char *path, bool implied, struct settings *settings,
                               struct err *err)
{
    CLEANUP(json_unref) json_t *object = NULL;
    if (json_parse_file(path, LIMIT_SETTINGS_BYTES, &object, err) != 0) {
        err->code = ERR_SETTING; /* whatever was wrong with it */
        return err_wrap(err, -ERR_SETTING, "settings file: ");
    }
    if (!json_is_object(object))
        return err_set(err, ERR_SETTING, "%s: must hold one JSON object", path);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const struct settings_row *row = settings_row_named(key);
        if (row == NULL)
            return err_set_field(err, ERR_SETTING, key, "%s: there is no setting \"%s\"", path,
                                 key);
        if (implied && row->offset == offsetof(struct settings, data_dir))
            return err_set_field(err, ERR_SETTING, key,
                                 "%s: data_dir cannot be set by a file in the data folder; use "
                                 "--data-dir or --settings",
                                 path);
        TRY(settings_row_from_json(row, settings, value, path, err));
    }
    return 0;
}

/* ---- defaults that depend on the machine, and absolute paths ---- */

static int settings_default_data_dir(char *const *environment, char **member, struct err *err)
{
    const char *data_home = settings_variable(environment, "XDG_DATA_HOME");
    const char *home = settings_variable(environment, "HOME");
    CLEANUP(mem_free_ptr) char *path = NULL;
    if (geteuid() == 0)
        path = mem_strdup("/var/lib/ithaca");
    else if (data_home != NULL && data_home[0] == '/')
        path = io_join(data_home, "ithaca");
    else if (home != NULL && home[0] == '/')
        path = io_join(home, ".local/share/ithaca");
    else
        return err_set_field(
            err, ERR_SETTING, "data_dir",
            "no data folder: neither XDG_DATA_HOME nor HOME is set; use --data-dir");
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    return settings_row_put_text(member, path, err);
}

static int settings_absolute(char **member, struct err *err)
{
    if ((*member)[0] == '/')
        return 0;
    char folder[LIMIT_PATH_BYTES];
    if (getcwd(folder, sizeof folder) == NULL)
        return err_set_errno(err, errno, "the current folder");
    CLEANUP(mem_free_ptr) char *path = io_join(folder, *member);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    return settings_row_put_text(member, path, err);
}

static int settings_default_worker(char **member, struct err *err)
{
    CLEANUP(mem_free_ptr) char *path = NULL;
    TRY(worker_program_find(NULL, &path, err));
    return settings_row_put_text(member, path, err);
}

static int settings_finish(struct settings *settings, struct err *err)
{
    TRY(settings_absolute(&settings->data_dir, err));
    if (settings->worker[0] == '\0')
        TRY(settings_default_worker(&settings->worker, err));
    char **const paths[] = {&settings->worker, &settings->socket, &settings->tls_cert,
                            &settings->tls_key};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if ((*paths[i])[0] != '\0')
            TRY(settings_absolute(paths[i], err));
    if (settings->model_roots.count == 0) {
        CLEANUP(mem_free_ptr) char *models = io_join(settings->data_dir, "models");
        if (models == NULL)
            return mem_fail(err, LIMIT_PATH_BYTES, "a path");
        TRY(settings_row_add_item(&settings->model_roots, NULL, 0, models, strlen(models), err));
    }
    for (size_t i = 0; i < settings->model_roots.count; i++)
        TRY(settings_absolute(&settings->model_roots.items[i].value, err));
    if (log_level_parse(settings->log_level) == LOG_LEVEL_COUNT)
        return err_set_field(err, ERR_SETTING, "log_level",
                             "log_level must be debug, info, warn or error, not \"%s\"",
                             settings->log_level);
    if (strcmp(settings->on_stop, "pause") != 0 && strcmp(settings->on_stop, "leave") != 0)
        return err_set_field(err, ERR_SETTING, "on_stop",
                             "on_stop must be pause or leave, not \"%s\"", settings->on_stop);
    if (strcmp(settings->device, "auto") != 0 && strcmp(settings->device, "cpu") != 0 &&
        strcmp(settings->device, "cuda") != 0)
        return err_set_field(err, ERR_SETTING, "device",
                             "device must be auto, cpu or cuda, not \"%s\"", settings->device);
    if ((settings->tls_cert[0] != '\0') != (settings->tls_key[0] != '\0'))
        return err_set_field(err, ERR_SETTING,
                             settings->tls_cert[0] != '\0' ? "tls_key" : "tls_cert",
                             "tls_cert and tls_key go together: give both files or neither");
    if (settings->streams_max > settings->connections_max - 4)
        settings->streams_max = settings->connections_max - 4; /* the rest of the API stays open */
    return 0;
}

static int settings_fill(int argc, char *const *argv, char *const *environment,
                         struct settings *settings, struct err *err)
{
    struct settings_texts variables = {0};
    struct settings_texts flags = {0};
    settings_scan_variables(environment, &variables);
    TRY(settings_scan_flags(argc, argv, &flags, err));
    TRY(settings_defaults(settings, err));
    const char *named = flags.file != NULL ? flags.file : variables.file;
    if (named != NULL)
        TRY(settings_apply_file(named, false, settings, err));
    TRY(settings_apply(&variables, false, settings, err));
    TRY(settings_apply(&flags, true, settings, err));
    if (settings->data_dir[0] == '\0')
        TRY(settings_default_data_dir(environment, &settings->data_dir, err));
    if (named == NULL) {
        CLEANUP(mem_free_ptr) char *implied = io_join(settings->data_dir, "settings.json");
        if (implied == NULL)
            return mem_fail(err, LIMIT_PATH_BYTES, "a path");
        if (io_exists(implied)) {
            TRY(settings_apply_file(implied, true, settings, err));
            TRY(settings_apply(&variables, false, settings, err)); /* they win over the file */
            TRY(settings_apply(&flags, true, settings, err));
        }
    }
    return settings_finish(settings, err);
}

int settings_load(int argc, char *const *argv, char *const *environment,
                  struct settings *ret_settings, struct err *err)
{
    struct settings settings = {0};
    int rc = settings_fill(argc, argv, environment, &settings, err);
    if (rc != 0)
        settings_done(&settings);
    else
        *ret_settings = settings;
    return rc;
}

static bool settings_knows_variable(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof settings_foreign / sizeof settings_foreign[0]; i++)
        if (strlen(settings_foreign[i]) == length && memcmp(settings_foreign[i], name, length) == 0)
            return true;
    for (int i = 0; i < SETTINGS_COUNT; i++)
        if (strlen(settings_rows[i].variable) == length &&
            memcmp(settings_rows[i].variable, name, length) == 0)
            return true;
    return false;
}

const char *settings_unknown_variable(char *const *environment)
{
    for (char *const *entry = environment; *entry != NULL; entry++)
        if (strncmp(*entry, "ITHACA_", 7) == 0 && strncmp(*entry, "ITHACA_TEST_", 12) != 0 &&
            !settings_knows_variable(*entry, strcspn(*entry, "=")))
            return *entry;
    return NULL;
}

const char *settings_map_get(const struct settings_list *map, const char *key)
{
    for (size_t i = 0; i < map->count; i++)
        if (strcmp(map->items[i].key, key) == 0)
            return map->items[i].value;
    return NULL;
}

void settings_help(struct buf *out)
{
    buf_printf(out, "  %-24s Settings file, JSON (default: <data_dir>/settings.json)\n",
               settings_file_flag);
    for (int i = 0; i < SETTINGS_COUNT; i++) {
        const struct settings_row *row = &settings_rows[i];
        buf_printf(out, "  %-24s %s", row->flag, row->doc);
        if (row->kind == SETTINGS_INT)
            buf_printf(out, " (default %lld%s%s)", (long long)row->number,
                       row->unit[0] != '\0' ? " " : "", row->unit);
        else if (row->kind == SETTINGS_TEXT && row->text[0] != '\0')
            buf_printf(out, " (default %s)", row->text);
        buf_char(out, '\n');
    }
}
