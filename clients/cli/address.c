/* address: the places in their order; the first that knows the URL or the token gives it. */
#include "clients/cli/address.h"

#include "clients/cli/cli.h"
#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

void address_done(struct address *address)
{
    mem_free(address->url);
    mem_free(address->token);
    *address = (struct address){0};
}

static void address_trim_slashes(char *url)
{
    size_t length = strlen(url);
    while (length > 0 && url[length - 1] == '/')
        url[--length] = '\0';
}

/* Without slashes at the end, and without the "/v1" that OpenAI's SDKs have in theirs. */
static void address_trim(char *url)
{
    address_trim_slashes(url);
    const char *scheme = strstr(url, "://"), *slash = strrchr(url, '/');
    if (scheme == NULL || slash <= scheme + 2 || strcmp(slash, "/v1") != 0)
        return;
    url[slash - url] = '\0';
    address_trim_slashes(url);
}

/* First line of <folder>/<name>; NULL when it cannot be read or is empty. */
static char *address_read_line(const char *folder, const char *name)
{
    struct err ignored;
    CLEANUP(mem_free_ptr) char *path = io_join(folder, name);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, LIMIT_PATH_BYTES);
    if (path == NULL || io_read_file(path, LIMIT_PATH_BYTES, &text, &ignored) != 0)
        return NULL;
    size_t length = strcspn(buf_str(&text), "\r\n");
    return length > 0 ? mem_strndup(buf_str(&text), length) : NULL;
}

/* What follows the host in a URL of this machine (":8620", ""); NULL for other hosts. */
static const char *address_after_local(const char *url)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *scheme = strstr(url, "://");
    const char *host = scheme != NULL ? scheme + 3 : url;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *rest = host + strlen(names[i]);
        if (strncasecmp(host, names[i], strlen(names[i])) == 0 && strchr(":/", rest[0]) != NULL)
            return rest; /* strchr finds the NUL too */
    }
    return NULL;
}

const char *address_unix_path(const char *url)
{
    static const char scheme[] = "unix:";
    return strncmp(url, scheme, sizeof scheme - 1) == 0 ? url + sizeof scheme - 1 : NULL;
}

static bool address_is_same(const char *url, const char *other)
{
    const char *rest = address_after_local(url);
    const char *other_rest = address_after_local(other);
    return rest != NULL && other_rest != NULL ? strcmp(rest, other_rest) == 0
                                              : strcmp(url, other) == 0;
}

static void address_find_in(struct address *address, const char *folder, bool named)
{
    CLEANUP(mem_free_ptr) char *url = address_read_line(folder, "url");
    if (url != NULL)
        address_trim(url);
    bool own = url != NULL && (address->url == NULL || address_is_same(address->url, url));
    if (address->url == NULL && url != NULL)
        address->url = mem_strdup(url);
    if (address->token == NULL && (named || own))
        address->token = address_read_line(folder, "admin.token");
}

static const char address_system_wide[] = "/var/lib/ithaca";

/* That of a daemon which this user started. */
static char *address_own_dir(void)
{
    const char *xdg = getenv("XDG_DATA_HOME");
    const char *home = cli_environment("HOME");
    return xdg != NULL && xdg[0] == '/'
               ? mem_printf("%s/ithaca", xdg)
               : mem_printf("%s/.local/share/ithaca", home != NULL ? home : "");
}

char *address_data_dir(const char *named)
{
    if (named != NULL)
        return mem_strdup(named);
    return geteuid() == 0 ? mem_strdup(address_system_wide) : address_own_dir();
}

/* The data directories that a daemon of this user or of the system has by default. */
static int address_find_default(struct address *address, struct err *err)
{
    CLEANUP(mem_free_ptr) char *own = address_own_dir();
    if (own == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    bool root = geteuid() == 0;
    address_find_in(address, root ? address_system_wide : own, false);
    if (address->url == NULL && access(ADDRESS_SOCKET, W_OK) == 0)
        address->url = mem_strdup("unix:" ADDRESS_SOCKET);
    address_find_in(address, root ? own : address_system_wide, false);
    return 0;
}

int address_find(const char *url, const char *data_dir, struct address *ret, struct err *err)
{
    CLEANUP(address_done) struct address address = {0};
    const char *token = cli_environment("ITHACA_TOKEN");
    if ((url != NULL && (address.url = mem_strdup(url)) == NULL) ||
        (token != NULL && (address.token = mem_strdup(token)) == NULL))
        return mem_fail(err, LIMIT_PATH_BYTES, "the address");
    if (address.url != NULL)
        address_trim(address.url);
    if (data_dir != NULL)
        address_find_in(&address, data_dir, true);
    else
        TRY(address_find_default(&address, err));
    if (address.url == NULL)
        return err_set(err, ERR_UNAVAILABLE,
                       "no daemon found: start ithacad, or set ITHACA_URL (and ITHACA_TOKEN), or "
                       "ITHACA_DATA_DIR to its data directory");
    address.local =
        address_after_local(address.url) != NULL || address_unix_path(address.url) != NULL;
    *ret = address;
    address = (struct address){0};
    return 0;
}
