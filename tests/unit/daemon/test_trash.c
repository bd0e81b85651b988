/* trash: what is put there leaves its place, and goes by one child a thing; one that cannot be
 * removed is in nobody's way and is tried again later. */
#include "daemon/trash.h"

#include "tests/lib/http_world.h"

static void put(struct http_world *h, const char *name)
{
    CLEANUP(mem_free_ptr) char *folder = io_join(h->w->dir, name);
    http_world_put(h, folder, "a", "bytes");
    OK(h->w, trash_put(h->w->dir, folder, &h->w->err));
    assert_false(io_exists(folder));
}

/* The child that removes things ends; it did what it should where status is 0. */
static void end_child(struct http_world *h, const char *name, int status)
{
    struct host_process *child = NULL;
    for (int i = 0; i < 200 && child == NULL; i++) {
        OK(h->w, loop_turn(h->w->loop, 5, &h->w->err));
        child = fake_host_find(&h->w->fake, "-rf");
    }
    assert_non_null(child); /* its arguments: -rf -- PATH */
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/trash/%s", h->w->dir, name);
    assert_true(io_exists(path));
    if (status == 0)
        OK(h->w, io_remove_tree(path, &h->w->err));
    fake_host_end(child, status, 0);
}

static void expect_quiet(struct http_world *h)
{
    for (int i = 0; i < 20; i++)
        OK(h->w, loop_turn(h->w->loop, 5, &h->w->err));
    assert_null(fake_host_find(&h->w->fake, "-rf"));
}

static void test_one_that_stays_is_passed(void **state)
{
    struct http_world *h = *state;
    put(h, "b");
    put(h, "a");
    put(h, "c");
    housekeeping_wake(h->api.housekeeping);
    end_child(h, "a", 1);
    end_child(h, "b", 0);
    end_child(h, "c", 0);
    expect_quiet(h); /* a is not tried again and again */
    put(h, "d");
    housekeeping_wake(h->api.housekeeping); /* something new: all that is there */
    end_child(h, "a", 1);
    end_child(h, "d", 0);
    expect_quiet(h);
}

static void test_order_and_the_way_back(void **state)
{
    struct http_world *h = *state;
    CLEANUP(mem_free_ptr) char *folder = io_join(h->w->dir, "b");
    static const char *const order[] = {"a", "b", "c"};
    char *name = NULL;
    OK(h->w, trash_next(h->w->dir, "", &name, &h->w->err)); /* there is no trash yet */
    assert_null(name);
    put(h, "c");
    put(h, "a");
    put(h, "b");
    const char *after = "";
    for (size_t i = 0; i < 3; i++) {
        OK(h->w, trash_next(h->w->dir, after, &name, &h->w->err));
        assert_string_equal(name, order[i]);
        mem_free(name);
        after = order[i];
    }
    OK(h->w, trash_next(h->w->dir, after, &name, &h->w->err));
    assert_null(name);
    OK(h->w, trash_take_back(h->w->dir, folder, &h->w->err));
    assert_true(io_exists(folder));
    OK(h->w, trash_next(h->w->dir, "a", &name, &h->w->err));
    assert_string_equal(name, "c");
    mem_free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_one_that_stays_is_passed),
                                       HTTP_TEST(test_order_and_the_way_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
