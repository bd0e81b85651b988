/* dashboard: a linear search over some twenty names. The chart library is a package of the system,
 * not of this program, so that the system's updates reach it; without it the pages show tables. */
#include "daemon/dashboard.h"

#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "daemon/http.h"
#include "daemon/settings.h"

#include <string.h>

enum { DASHBOARD_LIBRARY_BYTES = 4 << 20 }; /* of a file of dygraphs: 0.13 MB in 2.2 */

/* A file of dygraphs, by the name that it has in its package. */
static int dashboard_library(const struct api *api, struct http_request *request, const char *name,
                             const char *type, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, DASHBOARD_LIBRARY_BYTES);
    CLEANUP(mem_free_ptr) char *path = io_join(api->settings->dygraphs_dir, name);
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    struct err reason = {0};
    if (io_read_file(path, DASHBOARD_LIBRARY_BYTES, &text, &reason) != 0)
        return err_set(err, ERR_NOT_FOUND,
                       "charts need the library dygraphs: install the package libjs-dygraphs, or "
                       "let the setting dygraphs_dir name the folder with its %s",
                       name);
    http_answer_page(request, type, buf_str(&text), text.length);
    return 0;
}

static int dashboard_own(struct http_request *request, const char *name, struct err *err)
{
    struct dashboard_file file;
    if (!dashboard_file_find(name, &file))
        return err_set(err, ERR_NOT_FOUND, "the dashboard has no file %s", name);
    http_answer_page(request, file.type, file.bytes, file.length);
    return 0;
}

int dashboard_index(struct api *api, struct http_request *request, struct err *err)
{
    (void)api;
    return dashboard_own(request, "index.html", err);
}

int dashboard_get(struct api *api, struct http_request *request, struct err *err)
{
    static const struct {
        const char *name, *type;
    } library[] = {
        {.name = "dygraph.min.js", .type = "text/javascript; charset=utf-8"},
        {.name = "dygraph.min.css", .type = "text/css; charset=utf-8"},
    };
    const char *name = http_request_route(request)->name;
    for (size_t i = 0; i < sizeof library / sizeof library[0]; i++)
        if (strcmp(name, library[i].name) == 0)
            return dashboard_library(api, request, name, library[i].type, err);
    return dashboard_own(request, name, err);
}
