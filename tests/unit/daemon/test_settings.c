/* settings: each source wins over the one below it; what is unknown or out of range is named. */
#include "daemon/settings.h"

#include "common/buf.h"
#include "common/io.h"
#include "common/mem.h"
#include "tests/lib/folder.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void write_file(const char *name, const char *text)
{
    struct err err;
    CLEANUP(mem_free_ptr) char *path = io_join(folder, name);
    assert_int_equal(io_write_file(path, text, strlen(text), 0600, &err), 0);
}

/* Loads with --data-dir <folder> and the strings given (NULL: none) as one variable and one flag.
 */
static int load(const char *variable, const char *flag, struct settings *settings, struct err *err)
{
    char data_dir[128];
    (void)snprintf(data_dir, sizeof data_dir, "--data-dir=%s", folder);
    char program[] = "ithacad";
    char *argv[] = {program, data_dir, (char *)(uintptr_t)flag, NULL};
    char *environment[] = {(char *)(uintptr_t)variable, NULL};
    return settings_load(flag != NULL ? 3 : 2, argv, environment, settings, err);
}

static void refuse(const char *variable, const char *flag, int code, const char *part)
{
    struct settings settings;
    struct err err = {0};
    assert_int_equal(load(variable, flag, &settings, &err), -code);
    assert_non_null(strstr(err.text, part));
    assert_int_equal(mem_live(), 0);
}

static void test_defaults(void **state)
{
    struct settings settings;
    struct err err;
    assert_int_equal(load(NULL, NULL, &settings, &err), 0);
    assert_string_equal(settings.data_dir, folder);
    assert_string_equal(settings.listen, "127.0.0.1");
    assert_int_equal(settings.port, 8620);
    assert_int_equal(settings.cpu_slots, 0); /* the inventory counts */
    assert_int_equal(settings.model_roots.count, 1);
    CLEANUP(mem_free_ptr) char *models = io_join(folder, "models");
    assert_string_equal(settings.model_roots.items[0].value, models);
    assert_int_equal(settings.worker[0], '/');
    settings_done(&settings);
    mem_free_ptr(&models);
    models = NULL;
    assert_int_equal(mem_live(), 0);
}

static void test_data_dir_default(void **state)
{
    struct settings settings;
    struct err err;
    char program[] = "ithacad";
    char *argv[] = {program, NULL};
    char home[] = "XDG_DATA_HOME=/tmp/xdg";
    char *environment[] = {home, NULL};
    assert_int_equal(settings_load(1, argv, environment, &settings, &err), 0);
    assert_string_equal(settings.data_dir, geteuid() == 0 ? "/var/lib/ithaca" : "/tmp/xdg/ithaca");
    settings_done(&settings);
}

static void test_order_of_sources(void **state)
{
    struct settings settings;
    struct err err;
    write_file("settings.json", "{\"port\": 1001, \"streams_max\": 3}");
    assert_int_equal(load(NULL, NULL, &settings, &err), 0);
    assert_int_equal(settings.port, 1001);
    assert_int_equal(settings.streams_max, 3);
    settings_done(&settings);
    assert_int_equal(load("ITHACA_PORT=1002", NULL, &settings, &err), 0);
    assert_int_equal(settings.port, 1002);
    settings_done(&settings);
    assert_int_equal(load("ITHACA_PORT=1002", "--port=1003", &settings, &err), 0);
    assert_int_equal(settings.port, 1003);
    assert_int_equal(settings.streams_max, 3);
    settings_done(&settings);
    /* A file that is named takes the place of the one in the data folder. */
    write_file("other.json", "{\"port\": 1004}");
    char flag[128];
    (void)snprintf(flag, sizeof flag, "--settings=%s/other.json", folder);
    assert_int_equal(load(NULL, flag, &settings, &err), 0);
    assert_int_equal(settings.port, 1004);
    assert_int_equal(settings.streams_max, 128);
    settings_done(&settings);
    assert_int_equal(mem_live(), 0);
}

static void test_lists_and_maps(void **state)
{
    struct settings settings;
    struct err err;
    write_file("settings.json",
               "{\"model_roots\": [\"/a\", \"b\"], \"model_aliases\": {\"x\": \"y\"}}");
    assert_int_equal(load(NULL, "--model-aliases=k=v,l=w=z", &settings, &err), 0);
    assert_int_equal(settings.model_roots.count, 2);
    assert_string_equal(settings.model_roots.items[0].value, "/a");
    assert_int_equal(settings.model_roots.items[1].value[0], '/'); /* made absolute */
    assert_string_equal(settings_map_get(&settings.model_aliases, "k"), "v");
    assert_string_equal(settings_map_get(&settings.model_aliases, "l"), "w=z");
    assert_null(settings_map_get(&settings.model_aliases, "x"));
    settings_done(&settings);
    assert_int_equal(mem_live(), 0);
}

static void test_refusals(void **state)
{
    write_file("settings.json", "{}");
    refuse(NULL, "--colour=red", ERR_USAGE, "--colour");
    refuse(NULL, "--port", ERR_USAGE, "--port");
    refuse(NULL, "port", ERR_USAGE, "port");
    refuse(NULL, "--port=70000", ERR_SETTING, "--port");
    refuse(NULL, "--port=", ERR_SETTING, "--port");
    refuse("ITHACA_PORT=1x", NULL, ERR_SETTING, "ITHACA_PORT");
    refuse("ITHACA_LOG_LEVEL=loud", NULL, ERR_SETTING, "log_level");
    refuse("ITHACA_ON_STOP=kill", NULL, ERR_SETTING, "on_stop");
    refuse("ITHACA_DEVICE=gpu", NULL, ERR_SETTING, "device");
    refuse(NULL, "--model-aliases=x", ERR_SETTING, "model_aliases");
    refuse(NULL, "--model-roots=a,,b", ERR_SETTING, "model_roots");
    refuse(NULL, "--settings=/nonexistent/s.json", ERR_SETTING, "/nonexistent/s.json");
    static const struct {
        const char *text;
        const char *part;
    } files[] = {
        {"{\"prot\": 1}", "prot"},
        {"{\"port\": \"1\"}", "port"},
        {"{\"port\": -1}", "port"},
        {"{\"listen\": 1}", "listen"},
        {"{\"model_roots\": \"a\"}", "model_roots"},
        {"{\"model_roots\": [\"\"]}", "model_roots"},
        {"{\"model_aliases\": {\"a\": 1}}", "model_aliases"},
        {"{\"data_dir\": \"/elsewhere\"}", "data_dir"},
        {"[]", "object"},
        {"{", "line 1"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        write_file("settings.json", files[i].text);
        refuse(NULL, NULL, ERR_SETTING, files[i].part);
    }
}

static void test_unknown_variables(void **state)
{
    char known[] = "ITHACA_PORT=1";
    char foreign[] = "ITHACA_URL=x";
    char silence[] = "ITHACA_STREAM_SILENCE_S=9"; /* of the command line's too */
    char test[] = "ITHACA_TEST_SEED=1";
    char other[] = "HOME=/";
    char wrong[] = "ITHACA_PROT=1";
    char *fine[] = {known, foreign, silence, test, other, NULL};
    char *bad[] = {known, wrong, NULL};
    assert_null(settings_unknown_variable(fine));
    assert_ptr_equal(settings_unknown_variable(bad), wrong);
}

static void test_every_allocation_may_fail(void **state)
{
    write_file("settings.json", "{\"model_roots\": [\"/a\", \"b\"], \"model_aliases\": {\"x\": "
                                "\"y\"}, \"worker\": \"w\"}");
    struct settings settings;
    struct err err;
    int rc = -1;
    int64_t n;
    for (n = 1; rc != 0 && n < 1000; n++) {
        mem_fault_after(n);
        rc = load(NULL, "--model-aliases=k=v", &settings, &err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        if (rc != 0)
            assert_int_equal(mem_live(), 0);
    }
    assert_int_equal(rc, 0);
    assert_true(n > 10);
    settings_done(&settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_data_dir_default),
        cmocka_unit_test(test_order_of_sources),
        cmocka_unit_test(test_lists_and_maps),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_unknown_variables),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, folder_open, folder_close);
}
