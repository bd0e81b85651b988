/* kernel_name: see kernel_name.h. A mangled identifier is its length and itself. */
#include "worker/kernel_name.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Takes one identifier off *at; its length, 0 where there is none. */
static size_t name_take(const char **at, const char **ret)
{
    size_t length = 0;
    const char *digit = *at;
    for (; *digit >= '0' && *digit <= '9' && length < 4096; digit++)
        length = 10 * length + (size_t)(*digit - '0');
    if (length == 0 || strnlen(digit, length) < length)
        return 0;
    *ret = digit;
    *at = digit + length;
    return length;
}

static bool name_is_shown(const char *part, size_t length)
{
    return length < 8 || (memcmp(part, "_GLOBAL_", 8) != 0 && memcmp(part, "_INTERNA", 8) != 0);
}

void kernel_name(const char *symbol, char *ret_name, size_t size)
{
    const char *at = symbol + 2, *part = NULL;
    size_t used = 0, length = 0;
    bool mangled = strncmp(symbol, "_Z", 2) == 0, nested = mangled && *at == 'N';
    if (nested)
        at++;
    ret_name[0] = '\0';
    while (mangled && used < size && (length = name_take(&at, &part)) > 0) {
        if (name_is_shown(part, length))
            used += (size_t)snprintf(ret_name + used, size - used, "%s%.*s", used > 0 ? "::" : "",
                                     (int)length, part);
        if (!nested)
            break;
    }
    if (used == 0)
        (void)snprintf(ret_name, size, "%s", symbol);
}
