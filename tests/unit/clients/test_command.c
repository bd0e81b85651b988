/* command: the rows hold together: every command is found, synopses name options that are there,
 * help fits a terminal. */
#include "clients/cli/command.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <string.h>

static void test_lookups(void **state)
{
    const struct command_row *ls = command_find("ls");
    assert_non_null(ls);
    assert_ptr_equal(ls->run, cmd_ls);
    assert_ptr_equal(command_of(cmd_ls), ls);
    assert_null(command_find("l"));
    assert_null(command_find(""));
    assert_null(command_find("--json"));
    assert_string_equal(command_option(ls, "--limit", 7)->name, "--limit");
    assert_string_equal(command_option(ls, "--json=x", 6)->name, "--json");
    assert_null(command_option(ls, "--lim", 5));
    assert_null(command_option(NULL, "--limit", 7));
    assert_string_equal(command_nearest("sbmit")->name, "submit");
    assert_null(command_nearest("zzzzzz"));
    assert_string_equal(command_nearest_option(command_find("submit"), "--folow")->name,
                        "--follow");
}

static void test_choices(void **state)
{
    const struct command_row *scope = command_option(command_find("tokens"), "--scope", 7);
    assert_true(command_choice(scope, "read") && command_choice(scope, "admin"));
    assert_false(command_choice(scope, "rea") || command_choice(scope, "") ||
                 command_choice(scope, "read|submit"));
}

/* No two rows of a name; each says what it is; what only some kinds have is there. */
static void test_rows(void **state)
{
    bool hidden = false;
    const struct command_row *command = NULL;
    for (const struct command_row *row = command_rows; row->kind != COMMAND_KIND_END; row++) {
        assert_true(row->value < COMMAND_VALUE_COUNT);
        if (row->kind == COMMAND_KIND_GROUP) {
            assert_false(hidden); /* the group "" is the last */
            hidden = row->name[0] == '\0';
            continue;
        }
        if (row->doc == NULL || row->doc[0] == '\0')
            fail_msg("%s says nothing", row->name);
        if (row->kind == COMMAND_KIND_COMMAND) {
            command = row;
            assert_ptr_equal(command_find(row->name), row);
        } else if (row->kind == COMMAND_KIND_OPTION || row->kind == COMMAND_KIND_VERB) {
            if (command_row(command, row->kind, row->name, strlen(row->name)) != row)
                fail_msg("%s %s is there twice", command != NULL ? command->name : "", row->name);
        }
        if (row->kind == COMMAND_KIND_OPTION)
            assert_true((row->takes != NULL) == (row->value != COMMAND_VALUE_NOTHING) &&
                        strncmp(row->name, "--", 2) == 0);
        if (row->kind == COMMAND_KIND_OPTION && command != NULL &&
            command_option(NULL, row->name, strlen(row->name)) != NULL)
            fail_msg("%s hides the option %s of all commands", command->name, row->name);
    }
}

/* "--output" in a synopsis is an option of the command. */
static void test_synopses(void **state)
{
    const struct command_row *command = NULL;
    for (const struct command_row *row = command_rows; row->kind != COMMAND_KIND_END; row++) {
        command = row->kind == COMMAND_KIND_COMMAND ? row : command;
        if (row->takes == NULL || row->kind == COMMAND_KIND_OPTION)
            continue;
        for (const char *at = row->takes; (at = strstr(at, "--")) != NULL;) {
            size_t length = strcspn(at, " ]|)");
            if (length > 2 && command_option(command, at, length) == NULL)
                fail_msg("%s: its synopsis has %.*s", row->name, (int)length, at);
            at += length;
        }
    }
}

static void check_columns(const char *text)
{
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        if (length > 79 && strncmp(line, "usage:", 6) != 0)
            fail_msg("%zu columns: %.*s", length, (int)length, line);
        if (length > 0 && line[length - 1] == ' ')
            fail_msg("ends with a space: %.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static void test_help(void **state)
{
    struct buf text;
    buf_init(&text, 1 << 20);
    command_help_all(&text);
    check_columns(buf_str(&text));
    assert_non_null(strstr(buf_str(&text), "\nJobs\n  submit "));
    for (const struct command_row *row = command_rows; row->kind != COMMAND_KIND_END; row++) {
        if (row->kind != COMMAND_KIND_COMMAND)
            continue;
        buf_clear(&text);
        command_help_one(row, &text);
        check_columns(buf_str(&text));
        assert_memory_equal(buf_str(&text), "usage: ithaca ", 14);
        assert_non_null(strstr(buf_str(&text), row->doc));
    }
    buf_clear(&text);
    command_help_one(command_find("files"), &text);
    assert_memory_equal(buf_str(&text), "usage: ithaca files upload PATH\n       ithaca files ls\n",
                        54);
    buf_clear(&text);
    command_help_one(command_find("queue"), &text);
    assert_memory_equal(buf_str(&text), "usage: ithaca queue\n       ithaca queue drain\n", 45);
    buf_clear(&text);
    command_help_one(command_find("ls"), &text);
    assert_memory_equal(buf_str(&text), "usage: ithaca ls [options]\n", 27);
    buf_done(&text);
    assert_int_equal(mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookups), cmocka_unit_test(test_choices),
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_synopses),
        cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
