/* folder_walk: everything once, folders before what is in them; links are not followed, depth ends.
 */
#include "common/io.h"
#include "common/mem.h"
#include "daemon/folder_walk.h"
#include "tests/lib/cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tree {
    char dir[64];
    struct err err;
};

static int setup(void **state)
{
    struct tree *tree = mem_new(1, sizeof *tree);
    (void)snprintf(tree->dir, sizeof tree->dir, "/dev/shm/ithaca-walk-XXXXXX");
    *state = tree;
    return mkdtemp(tree->dir) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    struct tree *tree = *state;
    int rc = io_remove_tree(tree->dir, &tree->err);
    mem_free(tree);
    return rc != 0 || mem_live() != 0 ? -1 : 0;
}

static void put(struct tree *tree, const char *folder, const char *name)
{
    CLEANUP(mem_free_ptr) char *dir = io_join(tree->dir, folder);
    CLEANUP(mem_free_ptr) char *path = io_join(dir, name);
    assert_int_equal(io_make_dirs(dir, 0700, &tree->err), 0);
    assert_int_equal(io_write_file(path, "x", 1, 0600, &tree->err), 0);
}

static void test_all_is_seen_once(void **state)
{
    struct tree *tree = *state;
    static const char *const wanted[] = {"",    "a",      "a/b",      "a/b/deep", "a/file",
                                         "top", "a/link", "a/folder", "empty"};
    enum { WANTED = sizeof wanted / sizeof wanted[0] };
    bool seen[WANTED] = {false};
    put(tree, "a/b", "deep");
    put(tree, "a", "file");
    put(tree, ".", "top");
    char path[128];
    (void)snprintf(path, sizeof path, "%s/empty", tree->dir);
    assert_int_equal(io_make_dirs(path, 0700, &tree->err), 0);
    (void)snprintf(path, sizeof path, "%s/a/link", tree->dir);
    assert_int_equal(symlink("file", path), 0);
    (void)snprintf(path, sizeof path, "%s/a/folder", tree->dir);
    assert_int_equal(symlink("..", path), 0); /* would go round for ever */
    struct folder_walk *walk = NULL;
    struct folder_walk_entry entry;
    assert_int_equal(folder_walk_new(tree->dir, &walk, &tree->err), 0);
    while (folder_walk_next(walk, &entry)) {
        size_t i = 0;
        while (i < WANTED && strcmp(entry.relative, wanted[i]) != 0)
            i++;
        if (i == WANTED || seen[i])
            fail_msg("\"%s\" was not to come", entry.relative);
        seen[i] = true;
        assert_true(strncmp(entry.path, tree->dir, strlen(tree->dir)) == 0);
        assert_int_equal(S_ISLNK(entry.info->st_mode), i == 6 || i == 7);
        if (strcmp(entry.relative, "a/b/deep") == 0)
            assert_true(seen[1] && seen[2]); /* its folders came before */
    }
    for (size_t i = 0; i < WANTED; i++)
        assert_true(seen[i]);
    assert_false(folder_walk_next(walk, &entry));
    folder_walk_free(walk);
}

static void test_left_half_way(void **state)
{
    struct tree *tree = *state;
    struct folder_walk *walk = NULL;
    struct folder_walk_entry entry;
    int count = 0;
    put(tree, "a/b/c", "deep");
    assert_int_equal(folder_walk_new(tree->dir, &walk, &tree->err), 0);
    assert_true(folder_walk_next(walk, &entry) && folder_walk_next(walk, &entry));
    CLEANUP(mem_free_ptr) char *gone = io_join(tree->dir, "a");
    assert_int_equal(io_remove_tree(gone, &tree->err), 0);
    while (folder_walk_next(walk, &entry)) /* what has vanished does not come */
        count++;
    assert_int_equal(count, 0);
    folder_walk_free(walk);
    put(tree, "a/b/c", "deep");
    assert_int_equal(folder_walk_new(tree->dir, &walk, &tree->err), 0);
    assert_true(folder_walk_next(walk, &entry) && folder_walk_next(walk, &entry));
    folder_walk_free(walk); /* with folders open */
    folder_walk_free(NULL);
    assert_int_equal(folder_walk_new("/nonexistent/x", &walk, &tree->err), -ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_is_seen_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_left_half_way, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
