/* cgroup: see cgroup.h. Where this process is says /proc/self/cgroup ("0::PATH"), where that is to
 * be found /proc/self/mountinfo: in a container PATH may begin above what is mounted. A group's
 * files are written whole by one write(), and an error tells that the kernel refused. */
#include "common/cgroup.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/kernel_file.h"
#include "common/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CGROUP_NAME_BYTES = LIMIT_ID_BYTES + 40, CGROUP_END_POLL_MS = 10 };

static const char cgroup_leaf[] = "ithacad"; /* systemd's DelegateSubgroup= may name it, too */
static const char cgroup_prefix[] = "ithaca-";

/* ---- files of a group ---- */

/* mode: as access() takes it. */
static bool cgroup_may(const char *group, const char *name, int mode)
{
    char path[PATH_MAX];
    kernel_file_path(group, name, path);
    return access(path, mode) == 0;
}

/* 0 or an errno. */
static int cgroup_write(const char *group, const char *name, const char *text)
{
    char path[PATH_MAX];
    kernel_file_path(group, name, path);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int errnum = write(fd, text, strlen(text)) < 0 ? errno : 0;
    (void)close(fd); /* it was written or refused at once */
    return errnum;
}

static int64_t cgroup_number(const char *group, const char *name)
{
    char text[KERNEL_FILE_BYTES];
    kernel_file_read(group, name, text);
    return kernel_file_number(text);
}

static int64_t cgroup_field(const char *group, const char *name, const char *key)
{
    char text[KERNEL_FILE_BYTES];
    kernel_file_read(group, name, text);
    return kernel_file_field(text, key);
}

/* Whether a list of words in a file, such as "cpu memory pids", has one of them. */
static bool cgroup_lists(const char *group, const char *name, const char *word)
{
    char text[KERNEL_FILE_BYTES];
    size_t length = strlen(word);
    kernel_file_read(group, name, text);
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += length)
        if ((at == text || at[-1] == ' ') && strchr(" \n", at[length]) != NULL)
            return true;
    return false;
}

/* ---- where groups can be made ---- */

/* The path behind "0::"; false where there is none. */
static bool cgroup_own(char ret_path[CGROUP_PATH_BYTES])
{
    char text[KERNEL_FILE_BYTES];
    kernel_file_read("/proc/self", "cgroup", text);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t length = strcspn(line, "\n");
        if (strncmp(line, "0::/", 4) != 0 || length - 3 >= CGROUP_PATH_BYTES)
            continue;
        (void)snprintf(ret_path, CGROUP_PATH_BYTES, "%.*s", (int)(length - 3), line + 3);
        return true;
    }
    return false;
}

/* The folder of the group `own`, by the line of a mount of version 2:
 * "30 23 0:26 ROOT MOUNT_POINT options - cgroup2 cgroup2 options". */
static bool cgroup_folder(const char *line, const char *own, char ret_path[CGROUP_PATH_BYTES])
{
    char root[CGROUP_PATH_BYTES], mount[CGROUP_PATH_BYTES];
    _Static_assert(CGROUP_PATH_BYTES == 512, "the widths below");
    if (sscanf(line, "%*s %*s %*s %511s %511s ", root, mount) != 2)
        return false;
    size_t skipped = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(own, root, skipped) != 0 || strchr("/", own[skipped]) == NULL)
        return false; /* what is mounted is another part of the hierarchy */
    const char *below = strcmp(own + skipped, "/") == 0 ? "" : own + skipped;
    int wide = snprintf(ret_path, CGROUP_PATH_BYTES, "%s%s", mount, below);
    return wide > 0 && wide < CGROUP_PATH_BYTES && strstr(ret_path, "/..") == NULL;
}

static bool cgroup_locate(char ret_path[CGROUP_PATH_BYTES])
{
    char line[KERNEL_FILE_BYTES], path[PATH_MAX], own[CGROUP_PATH_BYTES];
    bool found = false;
    kernel_file_path("/proc/self", "mountinfo", path); /* of any length: read by lines */
    FILE *file = cgroup_own(own) ? fopen(path, "re") : NULL;
    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = strstr(line, " - cgroup2 ") != NULL && cgroup_folder(line, own, ret_path);
    (void)fclose(file); /* read only */
    return found;
}

static void cgroup_refuse(struct cgroup_home *home, const char *why)
{
    home->path[0] = '\0';
    (void)snprintf(home->why, sizeof home->why, "%s", why);
}

void cgroup_find(struct cgroup_home *ret_home)
{
    struct cgroup_home *home = ret_home;
    *home = (struct cgroup_home){.memory = false};
    if (!cgroup_locate(home->path)) {
        cgroup_refuse(home, "control groups of version 2 are not mounted here");
        return;
    }
    char *name = strrchr(home->path, '/');
    if (strcmp(name + 1, cgroup_leaf) == 0) {
        home->settled = true;
        *name = '\0';
    }
    if (cgroup_field(home->path, "cgroup.events", "populated") < 0) /* the root has no such file */
        cgroup_refuse(home, "this process is in the machine's root group");
    else if (!cgroup_may(home->path, ".", W_OK) || !cgroup_may(home->path, "cgroup.procs", W_OK) ||
             !cgroup_may(home->path, "cgroup.subtree_control", W_OK))
        cgroup_refuse(home, "the control group of this process is not delegated to it");
    else if (!cgroup_may(home->path, "cgroup.kill", F_OK)) /* this one stays root's */
        cgroup_refuse(home, "the kernel is older than 5.14");
}

/* Whether this process is alone in the group. */
static bool cgroup_is_alone(const char *group)
{
    char text[KERNEL_FILE_BYTES];
    kernel_file_read(group, "cgroup.procs", text);
    char *end = NULL;
    long pid = strtol(text, &end, 10);
    return end != text && pid == (long)getpid() && strcmp(end, "\n") == 0;
}

/* Whether systemd started this very process as a unit's. It puts that process, when it starts it
 * again, into the unit's own group, which the kernel refuses (EBUSY) while memory is counted for
 * children that live: seen with systemd 252, status 219/CGROUP. DelegateSubgroup= names a group
 * below it instead. */
static bool cgroup_is_unit(void)
{
    const char *pid = getenv("SYSTEMD_EXEC_PID");
    return pid != NULL && kernel_file_number(pid) == getpid();
}

/* The path of a group in home. */
static int cgroup_below(const struct cgroup_home *home, const char *name,
                        char ret_path[CGROUP_PATH_BYTES], struct err *err)
{
    int wide = snprintf(ret_path, CGROUP_PATH_BYTES, "%s/%s", home->path, name);
    if (wide >= CGROUP_PATH_BYTES)
        return err_set(err, ERR_IO, "%s: the path is too long", home->path);
    return 0;
}

static int cgroup_move_to_leaf(struct cgroup_home *home, struct err *err)
{
    char leaf[CGROUP_PATH_BYTES], path[PATH_MAX];
    TRY(cgroup_below(home, cgroup_leaf, leaf, err));
    kernel_file_path(leaf, "", path);
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return err_set_errno(err, errno, "%s", leaf);
    TRY(cgroup_join(leaf, err));
    home->settled = true;
    return 0;
}

void cgroup_settle(struct cgroup_home *home)
{
    static const char *const controllers[] = {"memory", "pids"};
    struct err err;
    if (home->path[0] == '\0')
        return;
    if (!cgroup_lists(home->path, "cgroup.controllers", "memory"))
        (void)snprintf(home->why, sizeof home->why, "memory is not delegated with the group");
    else if (!home->settled && cgroup_is_unit())
        (void)snprintf(home->why, sizeof home->why,
                       "say DelegateSubgroup=%s in the unit (systemd 254 or newer)", cgroup_leaf);
    else if (!home->settled && !cgroup_is_alone(home->path))
        (void)snprintf(home->why, sizeof home->why, "other processes are in the group");
    else if (!home->settled && cgroup_move_to_leaf(home, &err) != 0)
        (void)snprintf(home->why, sizeof home->why, "%.200s", err.text);
    if (home->why[0] != '\0')
        return;
    for (size_t i = 0; i < sizeof controllers / sizeof controllers[0]; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "+%s", controllers[i]);
        int errnum = cgroup_write(home->path, "cgroup.subtree_control", text);
        if (errnum != 0)
            (void)snprintf(home->why, sizeof home->why, "%s: %s", controllers[i], strerror(errnum));
    }
    home->memory = cgroup_lists(home->path, "cgroup.subtree_control", "memory");
}

void cgroup_tell(const struct cgroup_home *home, char *ret_text, size_t bytes)
{
    if (home->path[0] == '\0')
        (void)snprintf(ret_text, bytes, "jobs are process groups: %s", home->why);
    else if (!home->memory && home->why[0] != '\0')
        (void)snprintf(ret_text, bytes,
                       "each job is a control group in %s; its memory is not counted: %s",
                       home->path, home->why);
    else
        (void)snprintf(ret_text, bytes, "each job is a control group in %s", home->path);
}

/* ---- groups of attempts ---- */

/* "ithaca-JOB-N" */
static void cgroup_name(const char *job_id, int64_t attempt, char ret_name[CGROUP_NAME_BYTES])
{
    (void)snprintf(ret_name, CGROUP_NAME_BYTES, "%s%s-%lld", cgroup_prefix, job_id,
                   (long long)attempt);
}

bool cgroup_is_of(const char *path, const char *job_id, int64_t attempt)
{
    char name[CGROUP_NAME_BYTES];
    const char *last = strrchr(path, '/');
    cgroup_name(job_id, attempt, name);
    return path[0] == '/' && strlen(path) < CGROUP_PATH_BYTES && strstr(path, "/..") == NULL &&
           strcmp(last + 1, name) == 0;
}

int cgroup_make(const struct cgroup_home *home, const char *job_id, int64_t attempt,
                int64_t memory_max, char ret_path[CGROUP_PATH_BYTES], struct err *err)
{
    char group[CGROUP_PATH_BYTES], name[CGROUP_NAME_BYTES], path[PATH_MAX], limit[32];
    cgroup_name(job_id, attempt, name);
    TRY(cgroup_below(home, name, group, err));
    kernel_file_path(group, "", path);
    if (mkdir(path, 0755) != 0)
        return err_set_errno(err, errno, "%s", group);
    (void)snprintf(limit, sizeof limit, "%lld", (long long)memory_max);
    int errnum = memory_max > 0 ? cgroup_write(group, "memory.max", limit) : 0;
    if (errnum != 0) {
        (void)rmdir(path); /* nobody is in it */
        return err_set_errno(err, errnum, "%s/memory.max", group);
    }
    memcpy(ret_path, group, sizeof group);
    return 0;
}

int cgroup_join(const char *path, struct err *err)
{
    int errnum = cgroup_write(path, "cgroup.procs", "0"); /* 0: the writer */
    return errnum == 0 ? 0 : err_set_errno(err, errnum, "%s/cgroup.procs", path);
}

void cgroup_kill(const char *path)
{
    (void)cgroup_write(path, "cgroup.kill", "1"); /* refused: the group is gone */
}

bool cgroup_is_populated(const char *path)
{
    return cgroup_field(path, "cgroup.events", "populated") == 1;
}

int32_t cgroup_first(const char *path)
{
    int64_t pid = cgroup_number(path, "cgroup.procs");
    return pid > 0 && pid <= INT32_MAX ? (int32_t)pid : 0;
}

void cgroup_memory(const char *path, struct cgroup_memory *ret_memory)
{
    int64_t full = cgroup_field(path, "memory.events", "oom");
    int64_t kills = cgroup_field(path, "memory.events", "oom_kill");
    *ret_memory = (struct cgroup_memory){.limit = cgroup_number(path, "memory.max"),
                                         .peak = cgroup_number(path, "memory.peak"),
                                         .full = full > 0 ? full : 0,
                                         .kills = kills > 0 ? kills : 0};
}

int cgroup_remove(const char *path, struct err *err)
{
    char folder[PATH_MAX];
    kernel_file_path(path, "", folder);
    if (rmdir(folder) != 0 && errno != ENOENT)
        return err_set_errno(err, errno, "%s", path);
    return 0;
}

int cgroup_end(const char *path, int64_t wait_ms, struct err *err)
{
    int64_t until_ms = clock_monotonic_ms() + wait_ms;
    cgroup_kill(path);
    while (cgroup_is_populated(path)) {
        if (clock_monotonic_ms() > until_ms)
            return err_set(err, ERR_IO, "%s: process %d does not end after SIGKILL", path,
                           cgroup_first(path));
        clock_sleep_ms(CGROUP_END_POLL_MS);
    }
    return cgroup_remove(path, err);
}

/* Of an attempt's group, what it is of. */
static bool cgroup_parse_name(const char *name, char ret_job_id[LIMIT_ID_BYTES + 1],
                              int64_t *ret_attempt)
{
    const char *dash = strrchr(name, '-');
    size_t skipped = strlen(cgroup_prefix);
    if (strncmp(name, cgroup_prefix, skipped) != 0 || dash <= name + skipped ||
        (size_t)(dash - name) - skipped > LIMIT_ID_BYTES)
        return false;
    (void)snprintf(ret_job_id, LIMIT_ID_BYTES + 1, "%.*s", (int)((size_t)(dash - name) - skipped),
                   name + skipped);
    *ret_attempt = kernel_file_number(dash + 1);
    return *ret_attempt > 0;
}

void cgroup_each(const struct cgroup_home *home, cgroup_fn *each, void *context)
{
    char path[PATH_MAX], group[CGROUP_PATH_BYTES], job_id[LIMIT_ID_BYTES + 1];
    int64_t attempt = 0;
    struct err too_long; /* cgroup_make() has not made it */
    kernel_file_path(home->path, "", path);
    DIR *folder = home->path[0] != '\0' ? opendir(path) : NULL;
    if (folder == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (cgroup_parse_name(entry->d_name, job_id, &attempt) &&
            cgroup_below(home, entry->d_name, group, &too_long) == 0)
            each(context, job_id, attempt, group);
    }
    (void)closedir(folder); /* read only */
}
