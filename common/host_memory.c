/* host_memory: see host_memory.h. Read from
 *   /proc/meminfo       MemTotal, MemAvailable (kB)
 *   /proc/self/cgroup   the group's path: "0::PATH" (version 2), "N:...,memory,...:PATH" (1)
 *   version 2           /sys/fs/cgroup/PATH/memory.max ("max": none), memory.current, memory.stat
 *   version 1           /sys/fs/cgroup/memory/PATH/memory.limit_in_bytes, ...
 * (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the kernel). A group's
 * parents limit it, too. Inside a container PATH may be the host's, of which only the group itself
 * is mounted, as the root: the walk upwards ends there. */
#include "common/host_memory.h"

#include "common/kernel_file.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct host_groups {
    const char *mount, *limit, *usage, *caches[2];
};
static const struct host_groups host_groups_v2 = {.mount = "/sys/fs/cgroup",
                                                  .limit = "memory.max",
                                                  .usage = "memory.current",
                                                  .caches = {"inactive_file", "active_file"}};
static const struct host_groups host_groups_v1 = {
    .mount = "/sys/fs/cgroup/memory",
    .limit = "memory.limit_in_bytes",
    .usage = "memory.usage_in_bytes",
    .caches = {"total_inactive_file", "total_active_file"}};

/* A group's limit upon what was found so far. */
static void host_limit(const struct host_groups *groups, const char *path,
                       struct host_memory *memory)
{
    char text[KERNEL_FILE_BYTES], folder[PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s%s", groups->mount, path); /* too long: no such file */
    kernel_file_read(folder, groups->limit, text);
    int64_t limit = kernel_file_number(text);
    if (limit < 0)
        return;
    memory->total = limit < memory->total ? limit : memory->total;
    kernel_file_read(folder, groups->usage, text);
    int64_t used = kernel_file_number(text);
    kernel_file_read(folder, "memory.stat", text);
    for (int i = 0; i < 2 && used > 0; i++) {
        int64_t cached = kernel_file_field(text, groups->caches[i]);
        used -= cached > 0 ? cached : 0;
    }
    int64_t left = limit - (used > 0 ? used : 0);
    left = left > 0 ? left : 0;
    memory->available = left < memory->available ? left : memory->available;
}

/* The group's path, of a line "N:controllers:path"; false when it is not the memory group's. */
static bool host_path(const char *line, const char *end, const struct host_groups **ret_groups,
                      char ret_path[PATH_MAX])
{
    const char *names = memchr(line, ':', (size_t)(end - line));
    const char *path = names == NULL ? NULL : memchr(names + 1, ':', (size_t)(end - names - 1));
    if (path == NULL || end - path - 1 >= PATH_MAX)
        return false;
    char controllers[256]; /* between commas */
    int wide =
        snprintf(controllers, sizeof controllers, ",%.*s,", (int)(path - names - 1), names + 1);
    bool v2 = path == names + 1;
    if (!v2 && (wide >= (int)sizeof controllers || strstr(controllers, ",memory,") == NULL))
        return false;
    *ret_groups = v2 ? &host_groups_v2 : &host_groups_v1;
    (void)snprintf(ret_path, PATH_MAX, "%.*s", (int)(end - path - 1), path + 1);
    return true;
}

struct host_memory host_memory_read(void)
{
    char text[KERNEL_FILE_BYTES], path[PATH_MAX];
    const struct host_groups *groups = NULL;
    kernel_file_read("/proc", "meminfo", text);
    int64_t total = kernel_file_field(text, "MemTotal"),
            available = kernel_file_field(text, "MemAvailable");
    struct host_memory memory = {.total = total < 0 ? INT64_MAX : total * 1024};
    memory.available = available < 0 ? memory.total : available * 1024;
    kernel_file_read("/proc/self", "cgroup", text);
    for (const char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        if (!host_path(line, end, &groups, path))
            continue;
        char *slash;
        do {
            host_limit(groups, path, &memory);
            slash = strrchr(path, '/');
            if (slash != NULL)
                *slash = '\0';
        } while (slash != NULL);
    }
    return memory;
}

int host_memory_check(int64_t bytes, struct err *err)
{
    struct host_memory host = host_memory_read();
    if (bytes <= host.available)
        return 0;
    return err_set(err, ERR_NOMEM,
                   "out of host memory: %lld bytes asked for, %lld available of %lld",
                   (long long)bytes, (long long)host.available, (long long)host.total);
}
