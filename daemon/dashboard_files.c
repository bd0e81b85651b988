/* dashboard_files: the files of clients/dashboard inside the program, put there by the assembler
 * (.incbin), so that an installed daemon needs no folder beside it and cannot be out of step with
 * its pages. The rows are dashboard_files.def; CMake rebuilds this when one of the files changes.
 */
#include "daemon/dashboard.h"

#include <string.h>

#define JS "text/javascript; charset=utf-8"
#define CSS "text/css; charset=utf-8"
#define HTML "text/html; charset=utf-8"
#define SVG "image/svg+xml"
#define JSON "application/json"

#define X(id, name, type, path)                                                \
    extern const char dashboard_##id##_begin[], dashboard_##id##_end[];        \
    __asm__(".section .rodata\n"                                               \
            "dashboard_" #id "_begin: .incbin \"" DASHBOARD_SOURCE path "\"\n" \
            "dashboard_" #id "_end: .byte 0\n"                                 \
            ".previous\n");
#include "daemon/dashboard_files.def"
#undef X

bool dashboard_file_find(const char *name, struct dashboard_file *ret_file)
{
#define X(id, text, kind, path)                                                 \
    if (strcmp(name, text) == 0) {                                              \
        *ret_file = (struct dashboard_file){                                    \
            .type = (kind),                                                     \
            .bytes = dashboard_##id##_begin,                                    \
            .length = (size_t)(dashboard_##id##_end - dashboard_##id##_begin)}; \
        return true;                                                            \
    }
#include "daemon/dashboard_files.def"
#undef X
    return false;
}
