/* proc_stat: what /proc/<pid>/stat says of a process, and the children of one. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

struct proc_stat {
    char state;          /* 'R', 'S', 'D', 'Z', ... */
    pid_t parent;        /* 1 or a subreaper once its own parent has ended */
    pid_t session;       /* pid of the session's leader */
    uint64_t start_time; /* field 22: clock ticks since boot; with the boot id it names a process */
};

int proc_stat_read(pid_t pid, struct proc_stat *ret); /* -1: there is no such process */

/* Sends a signal (0: none) to every child of `parent`, zombies not counted; returns how many. */
int proc_stat_signal_children(pid_t parent, int signal_number);
