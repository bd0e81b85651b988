/* host_spawn: a program as a child, for host_posix.c. The daemon does not wait until the child has
 * become the program: posix_spawn() does, and on a machine whose processors are all taken a child
 * gets one after half a second or more, in which the loop would serve nobody. Until then the child
 * has all descriptors of the daemon, and keeps the data folder's lock should the daemon be killed:
 * the next one waits for that (store.c). */
#pragma once
#include "daemon/host.h"

#include <sys/types.h>

/* The child has its own session, default signals and an empty mask, and no descriptors but 0, 1 and
 * 2: the files of `spawn`. A program that is missing and files that cannot be opened are errors
 * here; where the program cannot be run for another reason, the child's output says so and its exit
 * status is HOST_SPAWN_STATUS, as of a shell's. */
enum { HOST_SPAWN_STATUS = 127 };
int host_spawn_child(const struct host_spawn *spawn, pid_t *ret_pid, struct err *err);
