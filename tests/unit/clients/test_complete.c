/* complete: candidates for the last word of a command line, whatever stands before it. */
#include "clients/cli/complete.h"

#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

/* What was asked of the daemon: "JOB url=- ftjob-a" and so on. */
static char asked[256];
static struct buf text;

static void ask(void *context, const struct complete_line *line, enum command_value value,
                struct complete_out *out)
{
    assert_ptr_equal(context, &asked);
    (void)snprintf(asked, sizeof asked, "%d %s %s", (int)value, line->url != NULL ? line->url : "-",
                   line->argument != NULL ? line->argument : "-");
    complete_offer(out, "ftjob-one", "running\n\tnow");
    complete_offer(out, "ft:model:x", NULL);
}

/* The candidates, without what they are, each with a space behind it. */
static const char *complete(const char *const words[])
{
    static char names[16384];
    char *argv[16];
    size_t count = 0, used = 0;
    for (; words[count] != NULL; count++)
        argv[count] = (char *)(uintptr_t)words[count];
    buf_clear(&text);
    asked[0] = '\0';
    complete_words(argv, count, ask, &asked, &text);
    names[0] = '\0';
    for (const char *line = buf_str(&text); *line != '\0';) {
        size_t length = strcspn(line, "\t\n");
        used += (size_t)snprintf(names + used, sizeof names - used, "%.*s ", (int)length, line);
        assert_true(used < sizeof names);
        line += strcspn(line, "\n") + 1;
    }
    return names;
}

#define COMPLETE(...) complete((const char *const[]){__VA_ARGS__, NULL})

static int setup(void **state)
{
    buf_init(&text, 1 << 20);
    return 0;
}

static int teardown(void **state)
{
    buf_done(&text);
    assert_int_equal(mem_live(), 0);
    return 0;
}

static void test_commands(void **state)
{
    assert_string_equal(COMPLETE("subm"), "submit ");
    assert_string_equal(COMPLETE("--json", "subm"), "submit ");
    assert_string_equal(COMPLETE("--url", "http://a", "subm"), "submit ");
    assert_string_equal(COMPLETE("compl"), "completion "); /* complete is not for people */
    assert_string_equal(COMPLETE("zzz"), "");
    assert_non_null(strstr(COMPLETE(""), "plan "));
    assert_non_null(strstr(buf_str(&text), "plan\twhat a job takes of memory and time"));
    assert_non_null(strstr(COMPLETE(NULL), "plan "));
}

static void test_options(void **state)
{
    assert_string_equal(COMPLETE("submit", "--f"), "--follow ");
    assert_string_equal(COMPLETE("--ur"), "--url ");
    assert_string_equal(COMPLETE("submit", "--js"), "--json "); /* of all commands, too */
    assert_string_equal(COMPLETE("ls", "--f"), "");
    assert_string_equal(COMPLETE("submit", "--", "--f"), ":files "); /* no option any more */
    assert_string_equal(COMPLETE("plan", "--backend", "c"), "cpu cuda cuda_own ");
    assert_string_equal(COMPLETE("plan", "--backend", "cuda_"), "cuda_own ");
    assert_string_equal(COMPLETE("plan", "--backend=cp"), "--backend=cpu ");
    assert_string_equal(COMPLETE("plan", "--auto", "--backend", "x"), "");
    assert_string_equal(COMPLETE("plan", "--auto=x"), ""); /* a flag */
    assert_string_equal(COMPLETE("plan", "--no-such=x"), "");
    assert_string_equal(COMPLETE("submit", "--training-file", "tr"), ":files ");
    assert_string_equal(COMPLETE("download", "--output", ""), ":folders ");
    assert_string_equal(COMPLETE("submit", "--suffix", ""), "");
    assert_string_equal(COMPLETE("compare", "--metric", "valid_l"),
                        "valid_loss valid_loss_pos_0 valid_loss_pos_1 valid_loss_pos_2 "
                        "valid_loss_pos_3 valid_loss_pos_4 valid_loss_pos_5 valid_loss_pos_6 "
                        "valid_loss_pos_7 ");
}

static void test_fields(void **state)
{
    assert_string_equal(COMPLETE("submit", "--set", "lora.r"), "lora.r= ");
    assert_string_equal(COMPLETE("submit", "--set", "lora.r="), ""); /* a number */
    assert_string_equal(COMPLETE("submit", "--set=lora.ex"), "--set=lora.export= ");
    assert_string_equal(COMPLETE("submit", "--set", "context_parallel.kind=u"),
                        "context_parallel.kind=ulysses context_parallel.kind=upipe ");
    assert_string_equal(COMPLETE("update", "--set", "hold="), "hold=true hold=false ");
    assert_string_equal(COMPLETE("submit", "--set", "no.such=x"), "");
}

static void test_verbs(void **state)
{
    assert_string_equal(COMPLETE("files", ""), "upload ls show get rm ");
    assert_string_equal(COMPLETE("files", "upload", ""), ":files ");
    assert_string_equal(COMPLETE("files", "--json", "u"), "upload ");
    assert_string_equal(COMPLETE("queue", "d"), "drain ");
    assert_string_equal(COMPLETE("queue", "drain", ""), "");
    assert_string_equal(COMPLETE("completion", ""), "bash zsh fish ");
}

static void expect_asked(enum command_value value, const char *url, const char *argument)
{
    char wanted[256];
    (void)snprintf(wanted, sizeof wanted, "%d %s %s", (int)value, url, argument);
    assert_string_equal(asked, wanted);
}

static void test_what_the_daemon_knows(void **state)
{
    assert_string_equal(COMPLETE("show", "ftj"), "ftjob-one ");
    expect_asked(COMMAND_VALUE_JOB, "-", "-");
    assert_non_null(strstr(buf_str(&text), "ftjob-one\trunning??now\n"));
    assert_string_equal(COMPLETE("--url=http://b", "sample", "--model", "ft:"), "ft:model:x ");
    expect_asked(COMMAND_VALUE_MODEL, "http://b", "-");
    (void)COMPLETE("resume", "ftjob-one", "--checkpoint", "");
    expect_asked(COMMAND_VALUE_CHECKPOINT, "-", "ftjob-one");
    (void)COMPLETE("gpus", "drain", "");
    expect_asked(COMMAND_VALUE_GPU, "-", "-");
    (void)COMPLETE("submit", "--url", "u", "--se");
    assert_string_equal(asked, ""); /* nothing is asked in vain */
    assert_non_null(strstr(COMPLETE("plan", "--model", ""), "llama3-8b "));
    assert_non_null(strstr(buf_str(&text), ":folders\n"));
}

/* Every option and verb of every command leads somewhere without falling over. */
static void test_every_row(void **state)
{
    const char *command = NULL;
    for (const struct command_row *row = command_rows; row->kind != COMMAND_KIND_END; row++) {
        command = row->kind == COMMAND_KIND_COMMAND ? row->name : command;
        if (command == NULL || row->kind == COMMAND_KIND_NOTE || row->kind == COMMAND_KIND_GROUP)
            continue;
        if (row->kind == COMMAND_KIND_COMMAND)
            (void)COMPLETE(command, "");
        else
            (void)COMPLETE(command, row->name, "");
        struct err err;
        assert_int_equal(buf_error(&text, &err), 0);
    }
}

#define COMPLETE_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        COMPLETE_TEST(test_commands),
        COMPLETE_TEST(test_options),
        COMPLETE_TEST(test_fields),
        COMPLETE_TEST(test_verbs),
        COMPLETE_TEST(test_what_the_daemon_knows),
        COMPLETE_TEST(test_every_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
