/* csv: see csv.h. */
#include "common/csv.h"

#include <stdbool.h>
#include <string.h>

void csv_put(const char *text, struct buf *out)
{
    const bool formula = text[0] != '\0' && strchr("=+-@\t\r\n", text[0]) != NULL;
    const char *before = formula ? "'" : "";
    if (strpbrk(text, ",\"\r\n") == NULL) {
        buf_printf(out, "%s%s", before, text);
        return;
    }
    buf_printf(out, "\"%s", before);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            buf_char(out, '"');
        buf_char(out, *text);
    }
    buf_char(out, '"');
}
