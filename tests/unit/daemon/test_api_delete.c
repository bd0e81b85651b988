/* api_delete: what a job's folder takes of the disk is told, however many files it has; a job goes
 * once, whoever asks at once. */
#include "tests/lib/http_world.h"

enum { FILES = 350 }; /* several turns of the loop count them */

static void fill(struct http_world *h, const struct world_job *job)
{
    CLEANUP(mem_free_ptr) char *folder = mem_printf("%s/jobs/%s/logs", h->w->dir, job->id);
    char name[32];
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(name, sizeof name, "%d", i);
        http_world_put(h, folder, name, "a page of the disk");
    }
}

static void test_asked_twice_at_once(void **state)
{
    struct http_world *h = *state;
    struct http_client clients[2];
    char request[400];
    int statuses[2];
    int64_t freed = 0;
    struct world_job job = http_world_succeeded(h);
    CLEANUP(mem_free_ptr) char *folder = mem_printf("%s/jobs/%s", h->w->dir, job.id);
    fill(h, &job);
    (void)snprintf(request, sizeof request,
                   "DELETE /v1/fine_tuning/jobs/%s HTTP/1.1\r\nHost: localhost\r\n"
                   "Connection: close\r\nAuthorization: Bearer %s\r\n\r\n",
                   job.id, h->token);
    for (int i = 0; i < 2; i++) { /* both are there before the loop turns */
        client_open(h, &clients[i]);
        assert_int_equal(send(clients[i].fd, request, strlen(request), MSG_NOSIGNAL),
                         strlen(request));
    }
    for (int i = 0; i < 2; i++) {
        ask_end(h, &clients[i]);
        statuses[i] = h->status;
        if (h->status == 200)
            freed = answer_int(h, "ithaca.freed_bytes");
    }
    assert_int_equal(statuses[0] + statuses[1], 200 + 404);
    assert_true(freed >= FILES * 4096);
    assert_false(io_exists(folder)); /* the second has put nothing back */
}

/* What was asked for is done, though nobody waits for the answer. */
static void test_client_leaves(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    struct world_job job = http_world_succeeded(h);
    CLEANUP(mem_free_ptr) char *folder = mem_printf("%s/jobs/%s", h->w->dir, job.id);
    const struct http_target target = http_target(JOBS "/%s", job.id);
    fill(h, &job);
    ask_open(h, &client, "DELETE", target.text, "", NULL, 0);
    while (http_is_idle(h->http)) /* until it is read */
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    assert_true(io_exists(folder)); /* it counts */
    client_close(&client);
    for (int i = 0; i < 100 && !http_is_idle(h->http); i++)
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    assert_true(http_is_idle(h->http));
    assert_false(io_exists(folder));
    ask(h, "GET", target.text, NULL);
    assert_int_equal(h->status, 404);
}

/* A job whose folder somebody has removed by hand goes all the same. */
static void test_without_a_folder(void **state)
{
    struct http_world *h = *state;
    struct world_job job = http_world_succeeded(h);
    CLEANUP(mem_free_ptr) char *folder = mem_printf("%s/jobs/%s", h->w->dir, job.id);
    const struct http_target target = http_target(JOBS "/%s", job.id);
    OK(h->w, io_remove_tree(folder, &h->w->err));
    ask(h, "DELETE", target.text, NULL);
    assert_int_equal(h->status, 200);
    assert_true(answer_int(h, "ithaca.freed_bytes") < FILES * 4096);
    ask(h, "GET", target.text, NULL);
    assert_int_equal(h->status, 404);
}

int main(void)
{
    const struct CMUnitTest tests[] = {HTTP_TEST(test_asked_twice_at_once),
                                       HTTP_TEST(test_client_leaves),
                                       HTTP_TEST(test_without_a_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
