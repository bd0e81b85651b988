/* worker_program: see worker_program.h. Installed: <prefix>/bin/PROGRAM and
 * <prefix>/libexec/ithaca/ithaca-worker (or as the build was told). Build tree: FOLDER/PROGRAM and
 * worker/ithaca-worker. */
#include "common/worker_program.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int worker_program_find(const char *named, char **ret, struct err *err)
{
    static const char *const places[] = {ITHACA_LIBEXEC "/ithaca-worker", "worker/ithaca-worker"};
    char self[LIMIT_PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return err_set_errno(err, errno, "/proc/self/exe");
    self[length] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(self, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    char *path = named != NULL ? mem_strdup(named) : NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && path == NULL; i++) {
        char *place = io_join(self, places[i]);
        if (place != NULL && access(place, X_OK) == 0)
            path = place;
        else
            mem_free(place);
    }
    if (path == NULL)
        path = mem_strdup(ITHACA_PREFIX "/" ITHACA_LIBEXEC "/ithaca-worker");
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    *ret = path;
    return 0;
}
