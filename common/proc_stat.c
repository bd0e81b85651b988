/* proc_stat: proc(5). The second field is the program's name in parentheses and may hold anything,
 * so fields are counted from the last ')'. Children are found by looking at every process: the list
 * in /proc/<pid>/task/<tid>/children is not on every kernel. */
#include "common/proc_stat.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int proc_stat_read(pid_t pid, struct proc_stat *ret)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t length = read(fd, text, sizeof text - 1);
    (void)close(fd); /* read only */
    if (length <= 0)
        return -1;
    text[length] = '\0';
    const char *fields = strrchr(text, ')');
    int parent, session;
    unsigned long long start;
    struct proc_stat stat;
    if (fields == NULL ||
        sscanf(fields + 1,
               " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &stat.state, &parent, &session, &start) != 4)
        return -1;
    stat.parent = parent;
    stat.session = session;
    stat.start_time = start;
    *ret = stat;
    return 0;
}

int proc_stat_signal_children(pid_t parent, int signal_number)
{
    DIR *folder = opendir("/proc");
    if (folder == NULL)
        return 0;
    int found = 0;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        struct proc_stat stat;
        if (pid <= 0 || proc_stat_read(pid, &stat) != 0 || stat.parent != parent ||
            stat.state == 'Z')
            continue;
        (void)kill(pid, signal_number); /* it may end by itself meanwhile */
        found++;
    }
    (void)closedir(folder); /* read only */
    return found;
}
