/* gpu_count: how many GPUs a test can use, at most `most`; 0 after printing why. They are looked
 * for in a process of its own: CUDA does not live through fork(). After cmocka.h. */
#pragma once
#include "worker/device_cuda.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static inline int gpu_count(int most)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int count = 0;
        struct err err = {0};
        struct device *device = NULL;
        while (count < most && device_cuda_open(count, &device, &err) == 0)
            count++;
        if (count == 0)
            printf("skipped: %s\n", err.text);
        (void)fflush(NULL);
        _exit(count);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}
