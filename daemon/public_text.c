/* public_text: see public_text.h. Of the folders that match at a place the longest counts, so that
 * the model roots below the data folder are known. */
#include "daemon/public_text.h"

#include "daemon/settings.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static bool public_text_is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* Bytes to leave out where `at` names something in a folder, or the folder; 0: it does not. */
static size_t public_text_match(const char *at, const char *folder, size_t length)
{
    while (length > 0 && folder[length - 1] == '/')
        length--;
    if (length == 0 || strncmp(at, folder, length) != 0 || public_text_is_name(at[length]))
        return 0;
    if (at[length] == '/')
        return length + 1;
    while (folder[length - 1] != '/')
        length--;
    return length;
}

/* The same for the data folder, where jobs have folders of their own. */
static size_t public_text_match_data(const char *at, const char *data_dir)
{
    static const char jobs[] = "jobs/";
    size_t length = public_text_match(at, data_dir, strlen(data_dir));
    if (length == 0 || strncmp(at + length, jobs, strlen(jobs)) != 0)
        return length;
    size_t id = strcspn(at + length + strlen(jobs), "/ :");
    return at[length + strlen(jobs) + id] == '/' ? length + strlen(jobs) + id + 1 : length;
}

static size_t public_text_hidden(const struct settings *settings, const char *at)
{
    const char *program = strrchr(settings->worker, '/');
    size_t hidden = public_text_match_data(at, settings->data_dir);
    for (size_t i = 0; i < settings->model_roots.count; i++) {
        const char *root = settings->model_roots.items[i].value;
        size_t length = public_text_match(at, root, strlen(root));
        hidden = length > hidden ? length : hidden;
    }
    if (hidden == 0 && program != NULL)
        hidden = public_text_match(at, settings->worker, (size_t)(program - settings->worker));
    return hidden;
}

void public_text(const struct settings *settings, char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0';) {
        bool starts =
            *at == '/' &&
            (at == text || (!public_text_is_name(at[-1]) && strchr("./", at[-1]) == NULL));
        size_t hidden = starts ? public_text_hidden(settings, at) : 0;
        at += hidden;
        if (hidden == 0)
            *to++ = *at++;
    }
    *to = '\0';
}
