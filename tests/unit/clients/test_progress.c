/* progress: plain lines in a pipe: few of them, and the last state always; on a terminal one bar
 * that redraws itself. */
#include "clients/cli/progress.h"
#include "tests/lib/cmocka.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_pipe_prints_first_and_last(void **state)
{
    char text[4096] = "";
    FILE *out = tmpfile();
    assert_non_null(out);
    struct progress progress;
    progress_init(&progress, out);
    assert_false(progress.terminal);
    progress.steps_total = 200;
    for (int64_t step = 1; step <= 200; step++) {
        progress_step(&progress, step, 2.0 / (double)step, 5000, 0.5);
        progress_show(&progress);
    }
    progress_say(&progress, "a sentence");
    progress_finish(&progress);
    rewind(out);
    size_t length = fread(text, 1, sizeof text - 1, out);
    (void)fclose(out);
    assert_true(length > 0 && length < 600); /* 200 steps, not 200 lines */
    assert_non_null(strstr(text, "1/200  loss 2.0000  5.0k tok/s  eta 1:40\n"));
    assert_non_null(strstr(text, "[########################]  200/200  loss 0.0100"));
    assert_non_null(strstr(text, "\na sentence\n"));
    assert_null(strchr(text, '\r'));
}

static void test_unknown_values_are_left_out(void **state)
{
    char text[256] = "";
    FILE *out = tmpfile();
    assert_non_null(out);
    struct progress progress;
    progress_init(&progress, out);
    progress_step(&progress, 1, NAN, NAN, NAN);
    progress_show(&progress);
    rewind(out);
    assert_non_null(fgets(text, sizeof text, out));
    (void)fclose(out);
    assert_string_equal(text, "step 1\n");
}

/* ---- on a terminal ---- */

struct screen {
    int fd; /* what the terminal shows comes out here */
    struct progress progress;
    char text[4096];
};

static void screen_open(struct screen *screen)
{
    screen->fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (screen->fd < 0)
        skip(); /* a machine without terminals */
    assert_int_equal(grantpt(screen->fd), 0);
    assert_int_equal(unlockpt(screen->fd), 0);
    FILE *out = fopen(ptsname(screen->fd), "we");
    assert_non_null(out);
    progress_init(&screen->progress, out);
    assert_true(screen->progress.terminal);
}

/* What was shown since the last call is this; it comes as the kernel passes it on. */
static void screen_shows(struct screen *screen, const char *want)
{
    enum { WAIT_MS = 5000 };
    struct pollfd shown = {.fd = screen->fd, .events = POLLIN};
    size_t length = 0;
    while (length < strlen(want) && poll(&shown, 1, WAIT_MS) == 1) {
        ssize_t got = read(screen->fd, screen->text + length, sizeof screen->text - 1 - length);
        assert_true(got > 0);
        length += (size_t)got;
    }
    screen->text[length] = '\0';
    assert_string_equal(screen->text, want);
}

#define REDRAW "\r\033[K"

static void test_terminal(void **state)
{
    struct screen screen;
    screen_open(&screen);
    struct progress *progress = &screen.progress;
    progress_check(progress, 0.5, "checking");
    screen_shows(&screen, REDRAW "[############------------]  checking");
    progress_checked(progress);
    progress->steps_total = 8;
    progress_step(progress, 2, 1.5, 2000, 10);
    progress_show(progress);
    screen_shows(&screen, REDRAW REDRAW
                 "[######------------------]  2/8  loss 1.5000  2.0k tok/s  eta 1:00");
    progress_step(progress, 3, NAN, NAN, 20); /* the newest step counts a tenth */
    progress->valid_loss = 0.25;
    progress_show(progress);
    screen_shows(&screen, REDRAW "[#########---------------]  3/8  loss 1.5000  valid 0.2500  2.0k "
                                 "tok/s  eta 0:55");
    progress_say(progress, "a sentence"); /* its own line; the bar again below it */
    screen_shows(&screen,
                 REDRAW "a sentence\r\n[#########---------------]  3/8  loss 1.5000  valid "
                        "0.2500  2.0k tok/s  eta 0:55");
    progress_step(progress, 9, NAN, NAN, NAN); /* more than were announced */
    progress_show(progress);
    screen_shows(&screen, REDRAW "[########################]  9/8  loss 1.5000 "
                                 " valid 0.2500  2.0k tok/s");
    progress_finish(progress);
    screen_shows(&screen, "\r\n");
    progress_say(progress, "after the end"); /* no bar is open */
    screen_shows(&screen, "after the end\r\n");
    progress_finish(progress); /* nothing to end */
    progress_say(progress, "x");
    screen_shows(&screen, "x\r\n");
    (void)fclose(progress->out);
    (void)close(screen.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipe_prints_first_and_last),
        cmocka_unit_test(test_unknown_values_are_left_out),
        cmocka_unit_test(test_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
