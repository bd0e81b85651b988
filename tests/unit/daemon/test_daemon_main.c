/* main of ithacad, the program itself: what needs no daemon, and every way in which one does not
 * start: a status and one line each. */
#include "tests/lib/program.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static int setup(void **state)
{
    program_open("daemon/ithacad");
    return unsetenv("XDG_DATA_HOME");
}

static int teardown(void **state)
{
    program_close();
    assert_int_equal(mem_live(), 0);
    return 0;
}

static void test_without_a_daemon(void **state)
{
    assert_int_equal(PROGRAM("--version"), 0);
    assert_string_equal(program.out, "ithacad " ITHACA_VERSION "\n");
    assert_int_equal(PROGRAM("--help"), 0);
    assert_memory_equal(program.out, "usage: ithacad", 14);
#define SETTING_TEXT(name, def, flag, env, doc) assert_non_null(strstr(program.out, flag));
#define SETTING_INT(name, def, min, max, unit, flag, env, doc) SETTING_TEXT(name, 0, flag, env, 0)
#define SETTING_LIST(name, flag, env, doc) SETTING_TEXT(name, 0, flag, env, 0)
#define SETTING_MAP(name, flag, env, doc) SETTING_TEXT(name, 0, flag, env, 0)
#include "api/settings.def"
    assert_int_equal(PROGRAM("run", "--help"), 0);
    assert_int_equal(PROGRAM("schema"), 0);
    assert_non_null(strstr(program.out, "\"openapi\": \"3.1"));
    assert_int_equal(PROGRAM("schema", "job"), 0);
    assert_non_null(strstr(program.out, "training_file"));
    assert_int_equal(PROGRAM("schema", "cat"), err_code_exit(ERR_USAGE));
    program_expect_line("cat");
    assert_int_equal(PROGRAM("schema", "job", "more"), err_code_exit(ERR_USAGE));
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_int_equal(program_run(full, (const char *const[]){"schema", NULL}),
                     err_code_exit(ERR_IO));
    program_expect_line("standard output cannot be written");
    (void)close(full);
}

static void test_settings(void **state)
{
    assert_int_equal(PROGRAM("--colour", "red"), err_code_exit(ERR_USAGE));
    program_expect_line("--colour");
    assert_int_equal(PROGRAM("walk"), err_code_exit(ERR_USAGE));
    program_expect_line("walk");
    assert_int_equal(PROGRAM("run", "--port", "70000"), err_code_exit(ERR_SETTING));
    program_expect_line("port");
    assert_int_equal(PROGRAM("--data-dir"), err_code_exit(ERR_USAGE));
    CLEANUP(mem_free_ptr) char *file = io_join(program.folder, "settings.json");
    struct err err;
    assert_int_equal(io_write_file(file, "{\"prot\":1}", 10, 0600, &err), 0);
    assert_int_equal(PROGRAM("--settings", file), err_code_exit(ERR_SETTING));
    program_expect_line("prot");
}

/* A data directory that cannot be one; an address that is taken (field case R47). */
static void test_places(void **state)
{
    struct err err;
    CLEANUP(mem_free_ptr) char *file = io_join(program.folder, "a-file");
    CLEANUP(mem_free_ptr) char *dir = io_join(program.folder, "data");
    assert_int_equal(io_write_file(file, "x", 1, 0600, &err), 0);
    assert_int_not_equal(PROGRAM("--data-dir", file), 0);
    assert_non_null(strstr(program.err, file));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    const int on = 1; /* whoever has it may share it: two daemons would take turns */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    char port[16];
    (void)snprintf(port, sizeof port, "%d", ntohs(address.sin_port));
    assert_int_equal(PROGRAM("--data-dir", dir, "--port", port, "--worker", "/bin/true"),
                     err_code_exit(ERR_IN_USE));
    assert_non_null(strstr(program.err, port));
    assert_non_null(strstr(program.err, "choose another --port"));
    (void)close(fd);
    CLEANUP(mem_free_ptr) char *url = io_join(dir, "url");
    assert_false(io_exists(url)); /* nobody is sent there */
}

#define MAIN_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MAIN_TEST(test_without_a_daemon),
        MAIN_TEST(test_settings),
        MAIN_TEST(test_places),
    };
    if (getenv("ITHACA_BUILD_DIR") == NULL)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
