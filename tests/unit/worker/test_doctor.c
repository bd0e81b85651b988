/* doctor: every check says something, levels and exit status agree, nothing stays in the folder. */
#include "tests/lib/program.h"

#include "common/json.h"

#include <dirent.h>

/* Files that the doctor made and left. */
static int left_behind(const char *folder)
{
    int count = 0;
    const struct dirent *entry;
    DIR *stream = opendir(folder);
    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL)
        count += strncmp(entry->d_name, "doctor", 6) == 0;
    (void)closedir(stream);
    return count;
}

/* Levels by what was checked; the number of "bad". */
static int read_page(const json_t **ret_data, json_t **ret_page)
{
    struct err err = {0};
    int bad = 0;
    assert_int_equal(json_parse(program.out, strlen(program.out), "the page", ret_page, &err), 0);
    *ret_data = json_object_get(*ret_page, "data");
    for (size_t i = 0; i < json_array_size(*ret_data); i++) {
        const json_t *finding = json_array_get(*ret_data, i);
        const char *level = json_string_value(json_object_get(finding, "level"));
        assert_true(strlen(json_string_value(json_object_get(finding, "finding"))) > 0);
        bad += strcmp(level, "bad") == 0;
    }
    return bad;
}

static bool told_of(const json_t *data, const char *check)
{
    bool found = false;
    for (size_t i = 0; i < json_array_size(data); i++) {
        const json_t *what = json_object_get(json_array_get(data, i), "what");
        found = found || strcmp(json_string_value(what), check) == 0;
    }
    return found;
}

static void test_page(void **state)
{
    static const char *const checks[] = {"processor",     "memory",     "/dev/shm",
                                         "locked memory", "open files", "control groups",
                                         "huge pages",    "disk"};
    static const char *const of_plugin[] = {"driver", "cuDNN", "NVRTC", "cuBLASLt", "NCCL"};
    const json_t *data = NULL;
    json_t *page = NULL;
    int status = PROGRAM("--doctor", program.folder, "--json");
    int bad = read_page(&data, &page);
    assert_int_equal(status, bad == 0 ? 0 : err_code_exit(ERR_UNSUPPORTED));
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (!told_of(data, checks[i]))
            fail_msg("%s is not told of", checks[i]);
    bool plugin = !told_of(data, "CUDA backend"); /* which is told of where it cannot be loaded */
    for (size_t i = 0; i < sizeof of_plugin / sizeof of_plugin[0]; i++)
        assert_true(told_of(data, of_plugin[i]) == plugin);
    json_decref(page);
    assert_int_equal(left_behind(program.folder), 0);
    assert_int_equal(PROGRAM("--doctor", program.folder), status);
    assert_non_null(strstr(program.out, "processor"));
}

/* A folder that is not there makes jobs fail: said, and so ended. */
static void test_bad_is_told(void **state)
{
    CLEANUP(mem_free_ptr) char *absent = io_join(program.folder, "absent");
    assert_int_equal(PROGRAM("--doctor", absent), err_code_exit(ERR_UNSUPPORTED));
    assert_non_null(strstr(program.out, "bad   disk"));
    assert_non_null(strstr(program.out, absent));
    program_expect_line("will make jobs fail");
}

static int open_program(void **state)
{
    program_open("worker/ithaca-worker");
    return 0;
}

static int close_program(void **state)
{
    program_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_page, open_program, close_program),
        cmocka_unit_test_setup_teardown(test_bad_is_told, open_program, close_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
