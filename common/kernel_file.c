/* kernel_file: see kernel_file.h. The kernel makes these texts as they are read, so a file has no
 * size beforehand and may come in pieces. */
#include "common/kernel_file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *kernel_root = "";

void kernel_file_root(const char *root)
{
    kernel_root = root;
}

void kernel_file_path(const char *folder, const char *name, char ret_path[PATH_MAX])
{
    int wide = snprintf(ret_path, PATH_MAX, "%s%s/%s", kernel_root, folder, name);
    if (wide < 0 || wide >= PATH_MAX)
        ret_path[0] = '\0';
}

void kernel_file_read(const char *folder, const char *name, char ret_text[KERNEL_FILE_BYTES])
{
    char path[PATH_MAX];
    size_t length = 0;
    ret_text[0] = '\0';
    kernel_file_path(folder, name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t got = 1;
    while (got > 0 && length < KERNEL_FILE_BYTES - 1) {
        got = read(fd, ret_text + length, KERNEL_FILE_BYTES - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    (void)close(fd); /* read only */
    ret_text[length] = '\0';
}

int64_t kernel_file_number(const char *text)
{
    char *end = NULL;
    int64_t number = strtoll(text, &end, 10);
    return end == text || number < 0 ? -1 : number;
}

int64_t kernel_file_field(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        bool found = strncmp(line, key, length) == 0;
        if (found && (line[length] == ':' || line[length] == ' '))
            return kernel_file_number(line + length + 1);
    }
    return -1;
}
