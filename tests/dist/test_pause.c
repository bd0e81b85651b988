/* train: what the daemon asks for between steps. A pause that only one rank hears stops all of them
 * at one step, with a checkpoint from which training goes on exactly; a checkpoint on demand; a
 * daemon that stays away. The daemon is played here, over the real socket. */
#include "tests/dist/train_scene.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { WORLD = 2, DEADLINE_MS = 120000, STEPS = 200 };

static const char spec_text[] =
    "\"seq_len\":64,\"max_steps\":%d,\"batch\":{\"sequences\":4},\"save\":{"
    "\"every_steps\":1000000,\"keep\":1000},\"optimizer\":{\"schedule\":"
    "\"constant\",\"learning_rate\":0.001}";

struct link {
    int fd;
    uint32_t rank;
    struct buf in;
};

/* What was heard of all ranks. */
struct heard {
    uint64_t step; /* of rank 0's metrics */
    uint64_t checkpointed;
    uint64_t paused[WORLD];
    uint32_t failed; /* code */
    int done;
};

static int daemon_listen(struct train_scene *scene)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(scene->plan.socket, sizeof scene->plan.socket, "%s/s", scene->folder);
    memcpy(address.sun_path, scene->plan.socket, sizeof scene->plan.socket);
    (void)unlink(address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, WORLD), 0);
    return fd;
}

static void link_send(struct link *link, const struct wire_frame *frame)
{
    struct err err = {0};
    struct buf out;
    buf_init(&out, 1 << 20);
    MUST_WORK(wire_encode(frame, &out, &err), &err);
    (void)!send(link->fd, out.data, out.length, MSG_NOSIGNAL); /* it may be gone: fine */
    buf_done(&out);
}

static void link_send_plan(struct link *link, const struct train_scene *scene)
{
    struct err err = {0};
    struct buf text;
    CLEANUP(json_unref) json_t *json = launch_plan_json(&scene->plan);
    buf_init(&text, 1 << 16);
    MUST_WORK(json_print(json, &text, &err), &err);
    link_send(link, &(struct wire_frame){.type = WIRE_PLAN,
                                         .plan = {.json = text.data, .length = text.length}});
    buf_done(&text);
}

static void link_take(struct link *link, const struct wire_frame *frame,
                      const struct train_scene *scene, struct heard *heard)
{
    if (frame->type == WIRE_HELLO) {
        link->rank = frame->hello.rank;
        assert_true(link->rank < WORLD);
        link_send_plan(link, scene);
    } else if (frame->type == WIRE_METRICS && link->rank == 0) {
        heard->step = frame->metrics.step;
    } else if (frame->type == WIRE_CHECKPOINTED) {
        assert_int_equal(link->rank, 0);
        assert_true(frame->checkpointed.bytes > 1000);
        heard->checkpointed = frame->checkpointed.step;
    } else if (frame->type == WIRE_PAUSED) {
        heard->paused[link->rank] = frame->paused.step;
        assert_true(frame->paused.trained_tokens > 0);
    } else if (frame->type == WIRE_FAILED && heard->failed == 0) {
        heard->failed = frame->failed.code;
    } else if (frame->type == WIRE_DONE) {
        heard->done++;
    }
    if (frame->seq > 0)
        link_send(link, &(struct wire_frame){.type = WIRE_SEEN, .number = frame->seq});
}

static void link_read(struct link *link, const struct train_scene *scene, struct heard *heard)
{
    char bytes[65536];
    ssize_t got = recv(link->fd, bytes, sizeof bytes, 0);
    if (got <= 0) {
        (void)close(link->fd);
        link->fd = -1;
        return;
    }
    buf_append(&link->in, bytes, (size_t)got);
    for (size_t taken = 1; taken > 0;) {
        struct err err = {0};
        struct wire_frame frame;
        MUST_WORK(wire_decode(&link->in, &frame, &taken, &err), &err);
        if (taken == 0)
            break;
        link_take(link, &frame, scene, heard);
        buf_drop_front(&link->in, taken);
    }
}

/* Serves all ranks until they are gone; sends `command` to rank 1 alone, once step 2 is over. */
static struct heard daemon_serve(const struct train_scene *scene, int listen_fd,
                                 enum wire_type command)
{
    struct heard heard = {0};
    struct link links[WORLD];
    bool sent = false;
    int open = 0;
    for (int i = 0; i < WORLD; i++) {
        links[i] = (struct link){.fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC)};
        assert_true(links[i].fd >= 0);
        buf_init(&links[i].in, 1 << 22);
        open++;
    }
    int64_t end = clock_monotonic_ms() + DEADLINE_MS;
    while (open > 0) {
        struct pollfd fds[WORLD];
        for (int i = 0; i < WORLD; i++)
            fds[i] = (struct pollfd){.fd = links[i].fd, .events = POLLIN};
        assert_true(clock_monotonic_ms() < end);
        (void)poll(fds, WORLD, 100);
        open = 0;
        for (int i = 0; i < WORLD; i++) {
            if (links[i].fd >= 0 && fds[i].revents != 0)
                link_read(&links[i], scene, &heard);
            open += links[i].fd >= 0;
        }
        for (int i = 0; i < WORLD && heard.step >= 2 && !sent; i++)
            if (links[i].rank == 1 && links[i].fd >= 0)
                link_send(&links[i], &(struct wire_frame){.type = command});
        sent = sent || heard.step >= 2;
    }
    for (int i = 0; i < WORLD; i++)
        buf_done(&links[i].in);
    return heard;
}

static int play_run(struct rank *rank, void *context, struct err *err)
{
    if (context != NULL && rank->number == 1)
        io_fault_after(2); /* in its first save */
    return rank_run(rank, err);
}

static void open_scene(struct train_scene *scene, int steps)
{
    char text[512];
    train_scene_open(scene, "");
    (void)snprintf(text, sizeof text, spec_text, steps);
    train_scene_spec(scene, text);
}

/* The ranks' exit status, all alike, and what was heard of them. */
static int run_served(struct train_scene *scene, enum wire_type command, void *context,
                      struct heard *ret_heard)
{
    pid_t pids[SCENE_WORLD_MAX];
    int listen_fd = daemon_listen(scene), all = -1;
    int fd = train_scene_start(scene, WORLD, play_run, context, pids);
    *ret_heard = daemon_serve(scene, listen_fd, command);
    for (int r = 0; r < WORLD; r++) {
        int status = 0;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_true(WIFEXITED(status) && (r == 0 || WEXITSTATUS(status) == all));
        all = WEXITSTATUS(status);
    }
    (void)close(listen_fd);
    (void)close(fd);
    scene->plan.socket[0] = '\0';
    return all;
}

static void test_pause(void **state)
{
    struct train_scene scene;
    struct heard heard;
    open_scene(&scene, 100000);
    assert_int_equal(run_served(&scene, WIRE_PAUSE, NULL, &heard), 0);
    assert_true(heard.checkpointed >= 2 && heard.done == 0);
    assert_int_equal(heard.paused[0], heard.checkpointed);
    assert_int_equal(heard.paused[1], heard.checkpointed);
    int64_t step = (int64_t)heard.checkpointed;
    assert_int_equal(train_scene_newest(&scene), step);
    scene.plan.spec.max_steps = step + 3;
    train_scene_resume(&scene, step);
    mem_free(train_scene_run(&scene, WORLD, play_to_end, NULL));
    char *end = checkpoint_dir(scene.plan.job_dir, step + 3);
    char *kept = mem_printf("%s/step-%lld", scene.folder, (long long)step + 3);
    assert_int_equal(rename(end, kept), 0);
    train_scene_resume(&scene, -1); /* the same without a pause */
    mem_free(train_scene_run(&scene, WORLD, play_to_end, NULL));
    train_scene_compare(&scene, end, kept, 0);
    mem_free(kept);
    mem_free(end);
    train_scene_close(&scene);
}

static void test_checkpoint_on_demand(void **state)
{
    struct train_scene scene;
    struct heard heard;
    open_scene(&scene, STEPS);
    assert_int_equal(run_served(&scene, WIRE_CHECKPOINT, NULL, &heard), 0);
    assert_true(heard.checkpointed >= 2 && heard.checkpointed < STEPS);
    assert_int_equal(heard.done, WORLD);
    assert_int_equal(heard.step, STEPS);
    assert_int_equal(train_scene_newest(&scene), (int64_t)heard.checkpointed);
    train_scene_close(&scene);
}

/* A pause without its checkpoint is a failure that says why. */
static void test_pause_on_a_full_disk(void **state)
{
    struct train_scene scene;
    struct heard heard;
    open_scene(&scene, 100000);
    int status = run_served(&scene, WIRE_PAUSE, &scene, &heard);
    assert_int_equal(status, err_code_exit(ERR_NO_SPACE));
    assert_int_equal(heard.failed, ERR_NO_SPACE);
    assert_int_equal(heard.paused[0] + heard.paused[1], 0);
    assert_int_equal(train_scene_newest(&scene), -1);
    assert_false(train_scene_has_temp(&scene));
    train_scene_close(&scene);
}

static void test_orphaned(void **state)
{
    struct train_scene scene;
    open_scene(&scene, 100000000);
    (void)snprintf(scene.plan.socket, sizeof scene.plan.socket, "%s/nobody", scene.folder);
    scene.plan.orphan_limit_ms = 300;
    char *out = train_scene_run(&scene, WORLD, play_run, NULL);
    assert_non_null(strstr(out, "no daemon came back"));
    mem_free(out);
    assert_true(train_scene_newest(&scene) >= 0); /* opening may have taken that long */
    train_scene_close(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_pause, testing_free),
        cmocka_unit_test_teardown(test_checkpoint_on_demand, testing_free),
        cmocka_unit_test_teardown(test_pause_on_a_full_disk, testing_free),
        cmocka_unit_test_teardown(test_orphaned, testing_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
