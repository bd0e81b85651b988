/* csv: see csv.h. */
#include "common/csv.h"

#include <string.h>

void csv_put(const char *text, struct buf *out)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        buf_text(out, text);
        return;
    }
    buf_char(out, '"');
    for (; *text != '\0'; text++) {
        if (*text == '"')
            buf_char(out, '"');
        buf_char(out, *text);
    }
    buf_char(out, '"');
}
