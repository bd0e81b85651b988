/* top_frame: the screen as a function of what was fetched: all of it, narrow, low, without colours,
 * with many jobs, without a daemon; the page of one job. */
#include "clients/cli/table.h"
#include "clients/cli/top.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <string.h>

#define RUNNING(id)                                                                          \
    "{\"id\":\"" id "\",\"owner\":\"ann\",\"state\":\"running\",\"priority\":0,\"slots\":2," \
    "\"estimated_end\":1000060}"
#define WAITING(place, id, why)                                                         \
    "{\"id\":" id ",\"owner\":\"bob\",\"state\":\"queued\",\"priority\":5,\"slots\":1," \
    "\"queue_position\":" #place ",\"estimated_start\":1003725,\"pending_reason\":\"" why "\"}"
#define GPU(number, share)                                                                        \
    "{\"id\":\"GPU-" #number "\",\"kind\":\"gpu\",\"number\":" #number ",\"name\":\"NVIDIA "      \
    "H200\",\"state\":\"taken\",\"utilization\":" share ",\"used_bytes\":64424509440,"            \
    "\"total_bytes\":150323855360,\"power_w\":612.4,\"temperature_c\":61,\"job_id\":\"ftjob-a\"," \
    "\"owner\":\"ann\",\"reason\":null}"
#define JOB                                                                                      \
    "{\"job\":{\"id\":\"ftjob-a\",\"model\":\"llama3-8b\",\"error\":null,\"ithaca\":{\"state\":" \
    "\"running\",\"steps_done\":120,\"steps_total\":300,\"eta\":1000125,\"owner\":\"ann\"}},"    \
    "\"latest\":{\"loss\":1.23456,\"tokens_per_s\":5123.4,\"mfu_causal\":0.4567,"                \
    "\"arena_peak_bytes\":12884901888},\"planned_bytes\":16106127360"
/* What belongs together is not the formatter's to say. */
/* clang-format off */
static const char data[] =
    "{\"queue\":{\"drained\":false,\"slots\":4,\"free_slots\":1,\"waiting_count\":2,"
    "\"running\":[" RUNNING(
        "ftjob-a") "],"
                   "\"waiting\":[" WAITING(1, "\"ftjob-b\"", "needs 2 of 4 slots") "," WAITING(
                       2, "null", "waits") "]},"
                                           "\"gpus\":{\"data\":[" GPU(0, "0.5") "," GPU(
                                               1, "null") "]},"
                                                          "\"jobs\":{\"ftjob-a\":" JOB
                                                          "}},\"detail\":null}";
/* clang-format on */

static struct top top;
static struct buf frame;

static int setup(void **state)
{
    top = (struct top){.url = "http://h", .now_s = 1000000, .columns = 130, .rows = 24};
    buf_init(&frame, TOP_FRAME_BYTES);
    return 0;
}

static int teardown(void **state)
{
    json_unref(&top.data);
    buf_done(&frame);
    assert_int_equal(mem_live(), 0);
    return 0;
}

static void take(const char *text)
{
    struct err err;
    json_t *value = NULL;
    MUST_WORK(json_parse(text, strlen(text), "data", &value, &err), &err);
    top_take(&top, value);
}

static const char *draw(void)
{
    buf_clear(&frame);
    top_frame(&top, &frame);
    return buf_str(&frame);
}

static void expect_line(const char *line)
{
    char whole[512];
    (void)snprintf(whole, sizeof whole, "\n%s\n", line);
    if (strstr(buf_str(&frame), whole) == NULL)
        fail_msg("\"%s\" is no line of:\n%s", line, buf_str(&frame));
}

/* Lines, and the widest of them; escape sequences take no room. */
static size_t lines_of(const char *text, size_t *ret_widest)
{
    size_t lines = 0;
    *ret_widest = 0;
    while (*text != '\0') {
        char line[1024];
        size_t used = 0;
        for (; *text != '\n'; text++) {
            if (*text == '\x1b')
                text += strcspn(text, "m");
            else
                line[used++] = *text;
            assert_true(used < sizeof line);
        }
        line[used] = '\0';
        *ret_widest = table_width(line) > *ret_widest ? table_width(line) : *ret_widest;
        lines++;
        text++;
    }
    return lines;
}

static void test_all_of_it(void **state)
{
    take(data);
    draw();
    assert_memory_equal(
        buf_str(&frame),
        "ithaca top  13:46:40Z  1 running, 2 waiting  1 of 4 slots free  http://h\n\n", 74);
    expect_line(
        "  GPU  NAME         STATE  BUSY             MEMORY GiB  POWER  TEMP  OWNER  JOB    "
        "  WHY");
    expect_line("    0  NVIDIA H200  taken  #####-----  50%  60.0/140.0  612 W  61 C  ann    "
                "ftjob-a");
    expect_line("    1  NVIDIA H200  taken  -                60.0/140.0  612 W  61 C  ann    "
                "ftjob-a");
    expect_line("  RUNNING  OWNER  STATE       STEP    LOSS  TOKENS/S    MFU   LEFT     GiB/PLAN  "
                "SLOTS  MODEL");
    expect_line("> ftjob-a  ann    running  120/300  1.2346      5123  45.7%  2m05s  12.00/15.00  "
                "    2  llama3-8b");
    expect_line("  #  WAITING           OWNER  STATE   PRIORITY  SLOTS  STARTS IN  WHY");
    expect_line("  1  ftjob-b           bob    queued         5      1      1h02m  needs 2 of 4 "
                "slots");
    expect_line("  2  (another user's)  bob    queued         5      1      1h02m  waits");
    assert_null(strchr(buf_str(&frame), '\x1b'));
    size_t widest;
    assert_int_equal(lines_of(buf_str(&frame), &widest), 24);
    assert_non_null(strstr(buf_str(&frame), "q: quit"));
}

/* No size of a terminal is overrun, with colours and without. */
static void test_every_size(void **state)
{
    take(data);
    for (int colour = 0; colour < 2; colour++) {
        for (top.columns = 1; top.columns < 140; top.columns += 3) {
            for (top.rows = 1; top.rows < 30; top.rows++) {
                size_t widest;
                top.colour = colour == 1;
                size_t lines = lines_of(draw(), &widest);
                if (lines != top.rows || widest > top.columns)
                    fail_msg("%zu x %zu: %zu lines of %zu columns", top.columns, top.rows, lines,
                             widest);
            }
        }
    }
}

static void test_once(void **state)
{
    top.rows = top.columns = 0;
    take(data);
    draw();
    assert_null(strstr(buf_str(&frame), "quit"));
    assert_null(strstr(buf_str(&frame), "> ftjob-a")); /* nothing is selected */
    assert_non_null(strstr(buf_str(&frame), "  ftjob-a  ann"));
}

static void test_colours(void **state)
{
    top.colour = true;
    take(data);
    draw();
    assert_non_null(strstr(buf_str(&frame), "\x1b[7m> ftjob-a"));
    assert_non_null(strstr(buf_str(&frame), "\x1b[1mithaca top"));
}

/* Slots of the CPU have no lines; the summary counts them. */
static void test_cpu(void **state)
{
    take("{\"queue\":{\"slots\":2,\"free_slots\":2,\"waiting_count\":0,\"running\":[],\"waiting\":"
         "[],\"drained\":true},\"gpus\":{\"data\":[{\"id\":\"CPU-0\",\"kind\":\"cpu\",\"state\":"
         "\"free\"}]},\"jobs\":{},\"detail\":null}");
    draw();
    assert_null(strstr(buf_str(&frame), "GPU"));
    assert_non_null(strstr(buf_str(&frame), "2 of 2 slots free  DRAINED: nothing starts"));
    expect_line("  no job runs or waits");
    top_move(&top, 1);
    assert_string_equal(top.selected_id, "");
}

static void test_no_daemon(void **state)
{
    (void)snprintf(top.gone, sizeof top.gone, "http://h: refused");
    draw();
    expect_line("waiting for the daemon: http://h: refused");
    take(data);
    draw();
    expect_line("lost: http://h: refused");
    assert_non_null(strstr(buf_str(&frame), "ftjob-b")); /* what was known stays */
}

/* Many jobs: a window that holds the selected one; what is not shown is counted. */
static void test_many_jobs(void **state)
{
    struct buf text;
    buf_init(&text, 1 << 20);
    buf_text(&text,
             "{\"queue\":{\"slots\":4,\"free_slots\":0,\"waiting_count\":250,\"running\":[" RUNNING(
                 "ftjob-r") "],\"waiting\":[");
    for (int i = 0; i < 99; i++)
        buf_printf(
            &text,
            "{\"id\":\"ftjob-%d\",\"owner\":\"a\",\"state\":\"queued\",\"queue_position\":%d}"
            ",",
            i, i + 1);
    buf_text(&text, WAITING(100, "\"ftjob-99\"", "waits") "]},\"gpus\":{\"data\":[]},\"jobs\":{},"
                                                          "\"detail\":null}");
    take(buf_str(&text));
    draw();
    assert_non_null(strstr(buf_str(&frame), "> ftjob-r"));
    assert_non_null(strstr(buf_str(&frame), "ftjob-10"));
    assert_null(strstr(buf_str(&frame), "ftjob-20"));
    for (int i = 0; i < 60; i++)
        top_move(&top, 1);
    draw();
    assert_string_equal(top.selected_id, "ftjob-59");
    assert_null(strstr(buf_str(&frame), "ftjob-r"));
    assert_non_null(strstr(buf_str(&frame), ">  60  ftjob-59"));
    assert_non_null(strstr(buf_str(&frame), "  and 235 more jobs\n"));
    for (int i = 0; i < 60; i++)
        top_move(&top, 1);
    assert_string_equal(top.selected_id, "ftjob-99"); /* the last */
    for (int i = 0; i < 200; i++)
        top_move(&top, -1);
    assert_string_equal(top.selected_id, "ftjob-r");
    buf_done(&text);
}

/* The selected job stays selected where the queue moves; one that is gone gives way. */
static void test_selection_follows_its_job(void **state)
{
    take(data);
    top_move(&top, 1);
    assert_string_equal(top.selected_id, "ftjob-b");
    take(
        "{\"queue\":{\"running\":[" RUNNING("ftjob-x") "," RUNNING("ftjob-b") "],\"waiting\":[]}}");
    assert_string_equal(top.selected_id, "ftjob-b");
    assert_int_equal(top.selected, 1);
    assert_true(top_has_job(&top));
    top.asking = true;
    take("{\"queue\":{\"running\":[" RUNNING("ftjob-x") "],\"waiting\":[]}}");
    assert_string_equal(top.selected_id, "ftjob-b"); /* what the question names */
    draw();
    expect_line("cancel ftjob-b? y: yes, any other key: no");
    top.asking = false;
    assert_int_equal(top.selected, TOP_NONE);
    assert_false(top_has_job(&top)); /* no key acts on another one */
    assert_null(strstr(draw(), "> "));
    take(
        "{\"queue\":{\"running\":[" RUNNING("ftjob-x") "," RUNNING("ftjob-b") "],\"waiting\":[]}}");
    assert_int_equal(top.selected, 1); /* it is back */
    take("{\"queue\":{\"running\":[],\"waiting\":[]}}");
    top_move(&top, 1);
    assert_string_equal(top.selected_id, "");
}

static void test_detail(void **state)
{
    take("{\"queue\":{\"running\":[" RUNNING(
        "ftjob-a") "],\"waiting\":[]},\"detail\":" JOB
                   ",\"loss\":[[1,2.5],[120,1.2346]],\"events\":[{\"created_at\":999999,\"level\":"
                   "\"info\","
                   "\"message\":\"second \\u001b[31m\"},{\"created_at\":999990,\"level\":\"error\","
                   "\"message\":\"first\"}]}}");
    top.detail = true;
    top.columns = 80;
    draw();
    assert_non_null(strstr(buf_str(&frame), "ftjob-a  running  llama3-8b  of ann\nstep 120/300  "
                                            "loss 1.2346  learning rate -"));
    expect_line("memory of a rank: 12.00/15.00 GiB (peak of the last step / planned)");
    assert_non_null(strstr(buf_str(&frame), "       2.5 |*"));
    assert_non_null(
        strstr(buf_str(&frame), "\n13:46:30Z  error  first\n13:46:39Z  info   second ?[31m\n"));
    for (top.columns = 1; top.columns < 100; top.columns += 7) {
        for (top.rows = 1; top.rows < 40; top.rows++) {
            size_t widest;
            assert_int_equal(lines_of(draw(), &widest), top.rows);
            assert_true(widest <= top.columns);
        }
    }
}

/* Long steps and steep gradients are written without an exponent, small rates with one. */
static void test_detail_figures(void **state)
{
    take("{\"queue\":{\"running\":[" RUNNING(
        "ftjob-a") "],\"waiting\":[]},\"detail\":{\"job\":{\"id\":\"ftjob-a\"},\"latest\":{"
                   "\"learning_rate\":0.00002,\"grad_norm\":12345.6,\"step_time_s\":1234.5}}}");
    top.detail = true;
    draw();
    expect_line(
        "step -  loss -  learning rate 2e-05  gradient norm 12346  tokens/s -  step 1234 s");
}

#define TOP_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TOP_TEST(test_all_of_it), TOP_TEST(test_every_size),
        TOP_TEST(test_once),      TOP_TEST(test_colours),
        TOP_TEST(test_cpu),       TOP_TEST(test_no_daemon),
        TOP_TEST(test_many_jobs), TOP_TEST(test_selection_follows_its_job),
        TOP_TEST(test_detail),    TOP_TEST(test_detail_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
