/* coordinator_world: a whole coordinator on a fake host: real store, loop and job socket in a
 * folder in memory, processes played by the test. Ranks are sockets that speak frames. */
#pragma once
#include "common/checkpoint_manifest.h"
#include "common/exit_report.h"
#include "common/io.h"
#include "common/json.h"
#include "common/launch_plan.h"
#include "common/mem.h"
#include "common/prepare_request.h"
#include "common/wire.h"
#include "daemon/coordinator.h"
#include "daemon/job_fsm.h"
#include "daemon/loop.h"
#include "tests/lib/fake_host.h"

#include <math.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct world {
    char dir[64];
    struct fake_host fake;
    struct loop *loop;
    struct store *store;
    struct bus bus;
    struct coordinator_config config;
    const char *model_dir; /* of jobs; not there unless a test makes one */
    struct coordinator *coordinator;
    struct bus_listener listener;
    int64_t event_note, point_note; /* newest rows the bus told */
    struct err err;
};

static inline void world_note(void *context, const struct bus_note *note)
{
    struct world *w = context;
    if (note->event_row > w->event_note)
        w->event_note = note->event_row;
    if (note->point_row > w->point_note)
        w->point_note = note->point_row;
}

static inline void world_open(struct world *w)
{
    OK(w, loop_new(&w->loop, &w->err));
    OK(w, store_open(w->dir, &w->store, &w->err));
    OK(w, coordinator_new(&w->config, &w->fake.host, w->store, &w->bus, w->loop, &w->coordinator,
                          &w->err));
}

/* As a daemon that is killed: nothing is told to anyone. */
static inline void world_close(struct world *w)
{
    coordinator_free(w->coordinator);
    store_close(w->store);
    loop_free(w->loop);
    w->coordinator = NULL;
}

static inline void world_reopen(struct world *w)
{
    world_close(w);
    world_open(w);
}

static inline int world_setup(void **state)
{
    struct world *w = mem_new(1, sizeof *w);
    (void)snprintf(w->dir, sizeof w->dir, "/dev/shm/ithaca-world-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    fake_host_init(&w->fake);
    coordinator_config_defaults(&w->config);
    w->config.data_dir = w->dir;
    w->config.worker_program = "/nonexistent/ithaca-worker";
    w->config.cpu_slots = 2;
    w->model_dir = "/models/tiny";
    w->listener = (struct bus_listener){.called = world_note, .context = w};
    bus_listen(&w->bus, &w->listener);
    world_open(w);
    *state = w;
    return 0;
}

static inline int world_teardown(void **state)
{
    struct world *w = *state;
    world_close(w);
    OK(w, io_remove_tree(w->dir, &w->err));
    mem_free(w);
    assert_int_equal(mem_live(), 0);
    return 0;
}

#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

/* A few ticks, with what the sockets bring in between. */
static inline void world_run(struct world *w)
{
    for (int i = 0; i < 4; i++) {
        for (int turn = 0; turn < 20; turn++)
            OK(w, loop_turn(w->loop, 0, &w->err));
        coordinator_tick(w->coordinator);
    }
}

static inline void world_pass(struct world *w, int64_t ms)
{
    w->fake.now_ms += ms;
    world_run(w);
}

struct world_job {
    char id[LIMIT_ID_BYTES + 1];
};

/* options: more members of `ithaca`, with a comma in front; "" for none. A fault ends the job
 * unless they say "max_restarts". */
static inline struct world_job world_submit_as(struct world *w, const char *owner, int ranks,
                                               const char *options)
{
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "{\"model\":\"tiny-llama\",\"training_file\":\"file-a\",\"suffix\":\"sail\","
                   "\"ithaca\":{\"gpus\":%d,\"seq_len\":64%s%s}}",
                   ranks, options,
                   strstr(options, "max_restarts") == NULL ? ",\"max_restarts\":0" : "");
    CLEANUP(json_unref) json_t *json = NULL;
    OK(w, json_parse(text, strlen(text), "test", &json, &w->err));
    struct job_spec spec;
    OK(w, job_spec_parse(json, &spec, &w->err));
    const struct job_facts facts = {
        .ranks_max = 64, .heads = 8, .kv_heads = 8, .layers = 2, .context_max = 4096};
    OK(w, job_spec_resolve(&spec, &facts, &w->err));
    struct world_job job;
    OK(w, coordinator_submit(w->coordinator, &spec, 0, w->model_dir, owner, job.id, &w->err));
    job_spec_done(&spec);
    return job;
}

static inline struct world_job world_submit(struct world *w, int ranks, const char *options)
{
    return world_submit_as(w, "admin", ranks, options);
}

/* What the store says of a job. */
struct world_row {
    enum job_state state;
    char reason[64], text[ERR_TEXT_MAX], result[LIMIT_NAME_BYTES + 1];
    int64_t attempt, steps_done, steps_total, trained_tokens, started_ms, finished_ms;
    int64_t restarts, ran_ms, resumed_step;
};

static inline int world_copy_row(void *context, const struct store_job *job, struct err *err)
{
    struct world_row *row = context;
    row->state = job->state;
    (void)snprintf(row->reason, sizeof row->reason, "%s", job->reason);
    (void)snprintf(row->text, sizeof row->text, "%s", job->reason_text);
    (void)snprintf(row->result, sizeof row->result, "%s", job->fine_tuned_model);
    row->attempt = job->attempt;
    row->steps_done = job->steps_done;
    row->steps_total = job->steps_total;
    row->trained_tokens = job->trained_tokens;
    row->started_ms = job->started_ms;
    row->finished_ms = job->finished_ms;
    row->restarts = job->restarts;
    row->ran_ms = job->ran_ms;
    row->resumed_step = job->resumed_step;
    return 0;
}

static inline struct world_row world_row(struct world *w, const struct world_job *job)
{
    struct world_row row;
    OK(w, store_job_get(w->store, job->id, world_copy_row, &row, &w->err));
    return row;
}

static inline void world_expect(struct world *w, const struct world_job *job, enum job_state state)
{
    struct world_row row = world_row(w, job);
    if (row.state != state)
        fail_msg("job is %s (%s), not %s", job_state_name(row.state), row.text,
                 job_state_name(state));
}

/* It failed: reason, and what its sentence holds. */
static inline void world_expect_failed(struct world *w, const struct world_job *job,
                                       const char *reason, const char *text)
{
    struct world_row row = world_row(w, job);
    world_expect(w, job, JOB_STATE_FAILED);
    assert_string_equal(row.reason, reason);
    if (strstr(row.text, text) == NULL)
        fail_msg("\"%s\" is not in: %s", text, row.text);
    assert_true(row.finished_ms > 0);
}

/* The newest prepare child writes this report for the training file and ends well. */
static inline void world_prepare(struct world *w, const char *report)
{
    struct host_process *child = fake_host_find(&w->fake, "--prepare");
    assert_non_null(child);
    struct prepare_request request;
    OK(w, prepare_request_read(child->argument, &request, &w->err));
    OK(w, io_write_file(request.files[0].report_path, report, strlen(report), 0600, &w->err));
    prepare_request_done(&request);
    fake_host_end(child, 0, 0);
    world_run(w);
}

#define WORLD_GOOD_REPORT                                                                          \
    "{\"lines\":12,\"kept\":10,\"dropped\":2,\"bad\":0,\"tokens\":500,"                            \
    "\"trained_tokens\":300,\"overlength\":3,\"tokens_cut\":20,\"longest\":60,\"codes\":{\"blank_" \
    "line\":2},"                                                                                   \
    "\"faults\":[],\"histogram\":[]}"

/* A job of two ranks in the queue, its files checked. */
static inline struct world_job world_queued_as(struct world *w, const char *owner,
                                               const char *options)
{
    struct world_job job = world_submit_as(w, owner, 2, options);
    world_run(w);
    world_prepare(w, WORLD_GOOD_REPORT);
    return job;
}

static inline struct world_job world_queued(struct world *w, const char *options)
{
    return world_queued_as(w, "admin", options);
}

/* ---- ranks --------------------------------------------------------------------------------- */

struct world_attempt {
    struct world *w;
    struct host_process *keeper;
    struct launch_plan plan;
    int fds[LIMIT_RANKS];
    struct buf in[LIMIT_RANKS];
    uint32_t next_seq[LIMIT_RANKS];
};

static inline void world_send(struct world_attempt *a, uint32_t rank, struct wire_frame frame)
{
    struct buf out;
    buf_init(&out, LIMIT_FRAME_BYTES * 2);
    if (frame.type != WIRE_HELLO && frame.type != WIRE_HEARTBEAT)
        frame.seq = ++a->next_seq[rank];
    OK(a->w, wire_encode(&frame, &out, &a->w->err));
    assert_int_equal(write(a->fds[rank], out.data, out.length), out.length);
    buf_done(&out);
}

static inline void world_connect(struct world_attempt *a, uint32_t rank)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", a->plan.socket);
    a->fds[rank] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(a->fds[rank], (struct sockaddr *)&address, sizeof address), 0);
    struct wire_frame hello = {.type = WIRE_HELLO, .hello = {.attempt = a->plan.attempt}};
    memcpy(hello.hello.job_id, a->plan.job_id, sizeof hello.hello.job_id);
    memcpy(hello.hello.secret, a->plan.secret, sizeof hello.hello.secret);
    hello.hello.rank = rank;
    hello.hello.pid = rank; /* of rank 1: 1 */
    world_send(a, rank, hello);
}

/* Whether a frame of a type came to a rank, looking at all that came so far. */
static inline bool world_receive(struct world_attempt *a, uint32_t rank, enum wire_type type,
                                 uint32_t *ret_number)
{
    char bytes[65536];
    ssize_t got = 0;
    while ((got = recv(a->fds[rank], bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        buf_append(&a->in[rank], bytes, (size_t)got);
    bool found = false;
    struct wire_frame frame;
    size_t taken = 0;
    while (wire_decode(&a->in[rank], &frame, &taken, &a->w->err) == 0 && taken > 0) {
        if (frame.type == type) {
            found = true;
            *ret_number = frame.number;
        }
        buf_drop_front(&a->in[rank], taken);
    }
    return found;
}

/* The newest keeper starts its ranks, which all say HELLO. */
static inline void world_attempt_open(struct world *w, struct world_attempt *a)
{
    *a = (struct world_attempt){.w = w, .keeper = fake_host_find(&w->fake, "--keep")};
    assert_non_null(a->keeper);
    CLEANUP(mem_free_ptr) char *path = io_join(a->keeper->argument, "plan.json");
    CLEANUP(json_unref) json_t *json = NULL;
    OK(w, json_parse_file(path, LIMIT_FRAME_BYTES, &json, &w->err));
    OK(w, launch_plan_parse(json, &a->plan, &w->err));
    for (uint32_t i = 0; i < a->plan.world; i++) {
        buf_init(&a->in[i], (size_t)1 << 20);
        world_connect(a, i);
    }
    world_run(w);
}

static inline void world_all(struct world_attempt *a, struct wire_frame frame)
{
    for (uint32_t i = 0; i < a->plan.world; i++)
        world_send(a, i, frame);
    world_run(a->w);
}

static inline void world_ready(struct world_attempt *a)
{
    world_all(a, (struct wire_frame){.type = WIRE_READY, .ready = {.steps_total = 5}});
}

/* The ranks' sockets close, as when they have died. */
static inline void world_hang_up(struct world_attempt *a)
{
    for (uint32_t i = 0; i < a->plan.world; i++) {
        if (a->fds[i] > 0)
            (void)close(a->fds[i]);
        a->fds[i] = 0;
    }
}

/* A complete checkpoint of the job, as its ranks write it. */
static inline void world_checkpoint(struct world_attempt *a, int64_t step)
{
    struct checkpoint_manifest manifest = {.attempt = a->plan.attempt,
                                           .world = a->plan.world,
                                           .created_ms = 1000 + step,
                                           .progress = {.step = step, .loss = 2.5},
                                           .file_count = 1,
                                           .files = {{.bytes = 4}}};
    manifest.progress.valid_loss = manifest.progress.best_valid_loss = (double)NAN;
    (void)snprintf(manifest.job_id, sizeof manifest.job_id, "%s", a->plan.job_id);
    io_hash("x", 1, manifest.model_digest);
    io_hash("x", 1, manifest.data_digest);
    io_hash("rank", 4, manifest.files[0].hash);
    CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(a->plan.job_dir, step);
    CLEANUP(mem_free_ptr) char *file = checkpoint_file_path(dir, 0);
    OK(a->w, io_make_dirs(dir, 0700, &a->w->err));
    OK(a->w, io_write_file(file, "rank", 4, 0600, &a->w->err));
    OK(a->w, checkpoint_manifest_write(dir, &manifest, &a->w->err));
}

static inline void world_exit_report(struct world_attempt *a, const struct exit_report *report)
{
    CLEANUP(mem_free_ptr) char *path = io_join(a->keeper->argument, "exit.json");
    OK(a->w, exit_report_write(path, report, &a->w->err));
}

static inline struct exit_report world_clean_exit(const struct world_attempt *a)
{
    struct exit_report report = {.world = a->plan.world, .first_failed = -1};
    for (uint32_t i = 0; i < a->plan.world; i++)
        report.ranks[i].pid = (int32_t)(2000 + i);
    return report;
}

static inline void world_attempt_close(struct world_attempt *a)
{
    world_hang_up(a);
    for (uint32_t i = 0; i < a->plan.world; i++)
        buf_done(&a->in[i]);
    launch_plan_done(&a->plan);
}

/* The ranks have ended, and the keeper: with a report (or NULL: none), or by a signal (0: none). */
static inline void world_end(struct world_attempt *a, const struct exit_report *report,
                             int signal_number)
{
    if (report != NULL)
        world_exit_report(a, report);
    fake_host_end(a->keeper, 0, signal_number);
    world_hang_up(a);
    world_run(a->w);
}

/* The ranks have written a checkpoint, said PAUSED and ended. */
static inline void world_end_paused(struct world_attempt *a, int64_t step)
{
    const struct exit_report report = world_clean_exit(a);
    world_checkpoint(a, step);
    world_all(a, (struct wire_frame){.type = WIRE_PAUSED, .paused = {.step = (uint64_t)step}});
    world_end(a, &report, 0);
}

/* The ranks are done: the model is there. */
static inline void world_end_done(struct world_attempt *a)
{
    CLEANUP(mem_free_ptr) char *model = io_join(a->plan.job_dir, "model");
    OK(a->w, io_make_dirs(model, 0700, &a->w->err));
    const struct exit_report report = world_clean_exit(a);
    world_all(a,
              (struct wire_frame){.type = WIRE_DONE, .done = {.steps = 5, .trained_tokens = 1234}});
    world_end(a, &report, 0);
}

/* A rank is killed and the keeper leaves its report. */
static inline void world_end_killed(struct world_attempt *a, uint32_t rank)
{
    struct exit_report report = world_clean_exit(a);
    report.first_failed = (int32_t)rank;
    report.ranks[rank].exit_status = -1;
    report.ranks[rank].signal = SIGKILL;
    world_end(a, &report, 0);
}

/* A job of two ranks that has got to RUNNING. */
static inline struct world_job world_running(struct world *w, struct world_attempt *a,
                                             const char *options)
{
    struct world_job job = world_queued(w, options);
    world_attempt_open(w, a);
    world_ready(a);
    world_expect(w, &job, JOB_STATE_RUNNING);
    return job;
}
