/* terminal: signals that end the program are taken only to give the terminal back; then they do
 * what they do. write and tcsetattr may be called there (signal-safety(7)). */
#include "clients/cli/terminal.h"

#include "common/buf.h"
#include "common/mem.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { TERMINAL_FRAME_BYTES = 1 << 21, TERMINAL_SEQUENCE_MS = 50 };

static const char terminal_enter[] = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J";
static const char terminal_leave[] = "\x1b[0m\x1b[?25h\x1b[?1049l";

static struct {
    struct termios before, raw;
    volatile sig_atomic_t open;
    volatile sig_atomic_t resized;
    char bytes[64]; /* read and not yet taken */
    size_t count;
} terminal;

/* A terminal that is gone takes nothing: there is nobody to tell. */
static void terminal_say(const char *text, size_t length)
{
    while (length > 0) {
        ssize_t sent = write(STDOUT_FILENO, text, length);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return;
        text += sent;
        length -= (size_t)sent;
    }
}

static void terminal_take(void)
{
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal.raw);
    terminal_say(terminal_enter, sizeof terminal_enter - 1);
}

static void terminal_give(void)
{
    terminal_say(terminal_leave, sizeof terminal_leave - 1);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal.before);
}

static void terminal_on_end(int number)
{
    terminal_close();
    (void)raise(number); /* SA_RESETHAND: now it ends us */
}

static void terminal_on_stop(int number)
{
    const int kept = errno;
    (void)number;
    terminal_give();
    (void)raise(SIGSTOP); /* until SIGCONT */
    terminal_take();
    terminal.resized = 1;
    errno = kept;
}

static void terminal_on_resize(int number)
{
    (void)number;
    terminal.resized = 1;
}

static void terminal_handle(int number, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL); /* cannot fail for these */
}

int terminal_open(struct err *err)
{
    static const int ends[] = {SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGPIPE,
                               SIGABRT, SIGSEGV, SIGBUS, SIGFPE,  SIGILL};
    if (isatty(STDOUT_FILENO) != 1 || tcgetattr(STDIN_FILENO, &terminal.before) != 0)
        return err_set(err, ERR_USAGE, "there is no terminal; --once prints what it would show");
    terminal.raw = terminal.before;
    terminal.raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    terminal.raw.c_cc[VMIN] = 1;
    terminal.raw.c_cc[VTIME] = 0;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        terminal_handle(ends[i], terminal_on_end, (int)SA_RESETHAND);
    terminal_handle(SIGTSTP, terminal_on_stop, 0);
    terminal_handle(SIGWINCH, terminal_on_resize, 0);
    terminal.open = 1;
    terminal_take();
    return 0;
}

void terminal_close(void)
{
    if (!terminal.open)
        return;
    terminal.open = 0;
    terminal_give();
}

bool terminal_size(size_t *ret_columns, size_t *ret_rows)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return false;
    *ret_columns = size.ws_col > 0 ? size.ws_col : 80; /* a serial line does not know */
    *ret_rows = size.ws_row > 0 ? size.ws_row : 24;
    return true;
}

void terminal_draw(const char *frame)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, TERMINAL_FRAME_BYTES);
    buf_text(&text, "\x1b[H");
    for (const char *line = frame; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        buf_append(&text, line, length);
        line += length + (line[length] == '\n');
        buf_text(&text, *line != '\0' ? "\x1b[K\r\n" : "\x1b[K"); /* the last line: no scrolling */
    }
    buf_text(&text, "\x1b[J");
    terminal_say(buf_str(&text), text.length);
}

/* More bytes, or what happened instead: NONE, RESIZED, GONE; 0 bytes more: NONE. */
static int terminal_read(int wait_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    int ready = poll(&input, 1, wait_ms);
    if (terminal.resized) {
        terminal.resized = 0;
        return TERMINAL_RESIZED;
    }
    if (ready <= 0)
        return TERMINAL_NONE;
    ssize_t got =
        read(STDIN_FILENO, terminal.bytes + terminal.count, sizeof terminal.bytes - terminal.count);
    if (got == 0 || (got < 0 && errno != EINTR))
        return TERMINAL_GONE;
    terminal.count += got > 0 ? (size_t)got : 0;
    return TERMINAL_NONE;
}

static int terminal_drop(size_t count, int key)
{
    terminal.count -= count;
    memmove(terminal.bytes, terminal.bytes + count, terminal.count);
    return key;
}

/* An escape sequence, or the key of that name. Of those that are not known all is dropped. */
static int terminal_sequence(void)
{
    if (terminal.count == 1)
        (void)terminal_read(TERMINAL_SEQUENCE_MS); /* its bytes may come one by one */
    if (terminal.count < 3 || (terminal.bytes[1] != '[' && terminal.bytes[1] != 'O'))
        return terminal_drop(1, TERMINAL_ESCAPE);
    size_t end = 2; /* a final byte ends it: ECMA-48, 5.4 */
    while (end + 1 < terminal.count && (terminal.bytes[end] < 0x40 || terminal.bytes[end] > 0x7e))
        end++;
    const char final = terminal.bytes[end];
    return terminal_drop(end + 1, final == 'A'   ? TERMINAL_UP
                                  : final == 'B' ? TERMINAL_DOWN
                                                 : TERMINAL_NONE);
}

int terminal_key(int wait_ms)
{
    if (terminal.count == 0) {
        int happened = terminal_read(wait_ms);
        if (happened != TERMINAL_NONE || terminal.count == 0)
            return happened;
    }
    const char first = terminal.bytes[0];
    if (first == TERMINAL_ESCAPE)
        return terminal_sequence();
    return terminal_drop(1, first == '\r' ? TERMINAL_ENTER : (unsigned char)first);
}
