/* kernel_world: a folder that plays "/" for kernel_file.h, made and removed around each test. Each
 * test program includes it once. */
#pragma once
#include "common/io.h"
#include "common/kernel_file.h"
#include "common/mem.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[64];

static int setup(void **state)
{
    (void)snprintf(root, sizeof root, "/tmp/ithaca-kernel-XXXXXX");
    kernel_file_root(root);
    return mkdtemp(root) == NULL;
}

static int teardown(void **state)
{
    struct err err = {0};
    kernel_file_root("");
    return io_remove_tree(root, &err);
}

/* A file of the kernel's, and the folders above it. */
static void put(const char *folder, const char *name, const char *text)
{
    struct err err = {0};
    CLEANUP(mem_free_ptr) char *whole = mem_printf("%s%s", root, folder);
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/%s", whole, name);
    assert_int_equal(io_make_dirs(whole, 0700, &err), 0);
    assert_int_equal(io_write_file(path, text, strlen(text), 0600, &err), 0);
}
