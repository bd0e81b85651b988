/* terminal: the whole screen of a terminal, and its keys, without a library: the alternate screen
 * and a hidden cursor (ECMA-48 and xterm's private modes 1049 and 25), which terminals since the
 * nineties have.
 *
 *     TRY(terminal_open(err));
 *     terminal_draw(frame);                lines with newlines, as many as terminal_size() says
 *     int key = terminal_key(1000);
 *     terminal_close();
 *
 * Whatever ends the program, a signal too, gives the terminal back as it was; stopped (Ctrl-Z) it
 * lends it to the shell. There is one terminal: these functions keep their state in themselves. */
#pragma once
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TERMINAL_NONE = 0,     /* no key within the time */
    TERMINAL_ENTER = '\n', /* printing characters are themselves */
    TERMINAL_ESCAPE = 0x1b,
    TERMINAL_UP = 0x100,
    TERMINAL_DOWN,
    TERMINAL_RESIZED, /* draw again */
    TERMINAL_GONE     /* nobody is there any more */
};

int terminal_open(struct err *err);
void terminal_close(void); /* also when it is not open */
/* Of stdout; false where it is no terminal. */
bool terminal_size(size_t *ret_columns, size_t *ret_rows);
void terminal_draw(const char *frame);
int terminal_key(int wait_ms);
