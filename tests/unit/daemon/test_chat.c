/* chat: what a request may ask, what the child is given, every way in which it may end, how many
 * run and wait, and clients that leave. */
#include "daemon/chat.h"

#include "tests/lib/http_world.h"

#define CHAT "/v1/chat/completions"
#define HELLO "{\"model\":\"tiny-llama\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

/* A question that waits for its answer. */
static void chat_open(struct http_world *h, struct http_client *client, const char *body)
{
    ask_open(h, client, "POST", CHAT, "", body, strlen(body));
}

/* Until so many children run. */
static void chat_await(struct http_world *h, struct http_client *client, int started)
{
    int64_t end_ms = clock_monotonic_ms() + HTTP_WORLD_PATIENCE_MS;
    while (h->w->fake.count < started && clock_monotonic_ms() < end_ms)
        client_turn(h, client);
    assert_int_equal(h->w->fake.count, started);
}

/* The newest child ends; the answer is taken. */
static void chat_end(struct http_world *h, struct http_client *client, const char *output,
                     const char *errors, int status)
{
    struct host_process *child = fake_host_find(&h->w->fake, "--sample");
    assert_non_null(child);
    OK(h->w, io_write_file(child->output, output, strlen(output), 0600, &h->w->err));
    OK(h->w, io_write_file(child->errors, errors, strlen(errors), 0600, &h->w->err));
    fake_host_end(child, status, 0);
    ask_end(h, client);
    assert_false(io_exists(child->output)); /* nothing stays */
    assert_false(io_exists(child->input));
    assert_true(chat_is_idle(h->api.chat));
}

static void test_answer(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    CLEANUP(buf_done) struct buf input;
    CLEANUP(mem_free_ptr) char *dir = io_join(h->models, "tiny-llama");
    buf_init(&input, 10000);
    chat_open(h, &client, HELLO ",\"max_tokens\":7,\"temperature\":0,\"stream\":null}");
    chat_await(h, &client, 1);
    struct host_process *child = fake_host_find(&h->w->fake, "--sample");
    assert_string_equal(child->argument, dir);
    OK(h->w, io_read_file(child->input, 10000, &input, &h->w->err));
    assert_non_null(strstr(buf_str(&input), "\"max_tokens\": 7"));
    assert_non_null(strstr(buf_str(&input), "\"hi\""));
    assert_false(chat_is_idle(h->api.chat));
    chat_end(h, &client,
             "{\"text\":\"hello\",\"finish_reason\":\"stop\",\"prompt_tokens\":5,"
             "\"completion_tokens\":2}",
             "", 0);
    expect(h, 200, "object", "chat.completion");
    expect(h, 200, "model", "tiny-llama");
    expect(h, 200, "choices.0.message.content", "hello");
    expect(h, 200, "choices.0.message.role", "assistant");
    expect(h, 200, "choices.0.finish_reason", "stop");
    assert_int_equal(answer_int(h, "usage.total_tokens"), 7);
    assert_memory_equal(json_string_value(answer(h, "id")), "chatcmpl-", 9);
}

static void test_bad_ends(void **state)
{
    struct http_world *h = *state;
    static const struct {
        const char *output, *errors;
        int exit, status;
        const char *code, *says;
    } ends[] = {
        {"", "ithaca-worker: the prompt has 9 tokens\n", 65, 400, "invalid_value",
         "tiny-llama: the prompt has 9 tokens"},
        {"", "noise\nithaca-worker: last line\n\n", 70, 500, "internal", "tiny-llama: last line"},
        {"", "", 70, 500, "internal", "status 70"},
        {"", "\n", 70, 500, "internal", "status 70"},
        {"", "oneword", 71, 500, "internal", "status 71"},
        {"no JSON", "", 0, 500, "internal", "gave no answer"}, /* not the client's fault */
        {"{\"text\":\"x\"}", "", 0, 500, "internal", "finish_reason"},
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct http_client client;
        chat_open(h, &client, HELLO "}");
        chat_await(h, &client, (int)i + 1);
        chat_end(h, &client, ends[i].output, ends[i].errors, ends[i].exit);
        expect(h, ends[i].status, "error.code", ends[i].code);
        if (strstr(json_string_value(answer(h, "error.message")), ends[i].says) == NULL)
            fail_msg("end %zu: %s", i, h->body);
    }
}

static void test_requests(void **state)
{
    struct http_world *h = *state;
    static const struct {
        const char *body, *code, *field;
    } bad[] = {
        {"{}", "missing_required_parameter", NULL},
        {"[]", "invalid_json", NULL},
        {"{\"model\":7,\"messages\":[]}", "invalid_value", NULL},
        {"{\"model\":\"tiny-llama\"}", NULL, "messages"},
        {"{\"model\":\"tiny-llama\",\"messages\":[]}", NULL, "messages"},
        {"{\"model\":\"tiny-llama\",\"messages\":[\"a\"]}", "invalid_value", "messages.0"},
        {"{\"model\":\"tiny-llama\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
         "{\"role\":\"user\"}]}",
         "invalid_value", "messages.1"},
        {HELLO ",\"max_tokens\":0}", "invalid_value", "max_tokens"},
        {HELLO ",\"max_tokens\":4097}", "invalid_value", "max_tokens"},
        {HELLO ",\"max_tokens\":1.5}", "invalid_value", "max_tokens"},
        {HELLO ",\"max_completion_tokens\":\"9\"}", "invalid_value", "max_completion_tokens"},
        {HELLO ",\"temperature\":0.7}", "unsupported_value", "temperature"},
        {HELLO ",\"temperature\":\"0\"}", "unsupported_value", "temperature"},
        {HELLO ",\"top_p\":0.5}", "unsupported_value", "top_p"},
        {HELLO ",\"n\":2}", "unsupported_value", "n"},
        {HELLO ",\"stream\":true}", "unsupported_value", "stream"},
        {HELLO ",\"tools\":[]}", "unknown_parameter", "tools"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ask(h, "POST", CHAT, bad[i].body);
        if (h->status != 400)
            fail_msg("%s: %d %s", bad[i].body, h->status, h->body);
        if (bad[i].code != NULL)
            expect(h, 400, "error.code", bad[i].code);
        if (bad[i].field != NULL)
            expect(h, 400, "error.param", bad[i].field);
    }
    ask(h, "POST", CHAT,
        "{\"model\":\"none\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}");
    expect(h, 404, "error.param", "model");
    assert_int_equal(h->w->fake.count, 0);
    h->w->fake.spawn_fails = true;
    ask(h, "POST", CHAT, HELLO "}");
    expect(h, 500, "error.code", "io");
    assert_true(chat_is_idle(h->api.chat));
}

static void test_limits(void **state)
{
    struct http_world *h = *state;
    enum { ALL = CHAT_RUNNING + CHAT_WAITING };
    struct http_client clients[ALL];
    for (int i = 0; i < ALL; i++) {
        chat_open(h, &clients[i], HELLO "}");
        for (int turn = 0; turn < 20; turn++)
            client_turn(h, &clients[i]);
    }
    assert_int_equal(h->w->fake.count, CHAT_RUNNING);
    ask(h, "POST", CHAT, HELLO "}");
    expect(h, 429, "error.code", "too_many_requests");
    client_close(&clients[ALL - 1]); /* one that waits leaves: its place is free */
    struct host_process *first = &h->w->fake.processes[0];
    client_close(&clients[0]); /* one that runs leaves: its child is killed */
    int64_t end_ms = clock_monotonic_ms() + HTTP_WORLD_PATIENCE_MS;
    while (first->last_signal == 0 && clock_monotonic_ms() < end_ms)
        OK(h->w, loop_turn(h->w->loop, 1, &h->w->err));
    assert_int_equal(first->last_signal, SIGKILL);
    assert_int_equal(h->w->fake.count, CHAT_RUNNING); /* until it has ended */
    fake_host_end(first, 0, SIGKILL);
    assert_int_equal(h->w->fake.count, CHAT_RUNNING + 1); /* the oldest that waits begins */
    for (int i = 1; i < ALL - 1; i++) {                   /* children end in the order they came */
        struct host_process *child = &h->w->fake.processes[i];
        static const char text[] = "{\"text\":\"x\",\"finish_reason\":\"stop\",\"prompt_tokens\":1,"
                                   "\"completion_tokens\":1}";
        OK(h->w, io_write_file(child->output, text, strlen(text), 0600, &h->w->err));
        fake_host_end(child, 0, 0);
        client_await(h, &clients[i], NULL);
        client_take(h, &clients[i]);
        expect(h, 200, "choices.0.message.content", "x");
        client_close(&clients[i]);
    }
    assert_true(chat_is_idle(h->api.chat));
    assert_int_equal(h->w->fake.count, ALL - 1); /* the one that left never ran */
}

/* The daemon stops while a question waits: it is refused, its child is not left. */
static void test_stop(void **state)
{
    struct http_world *h = *state;
    struct http_client client;
    chat_open(h, &client, HELLO "}");
    chat_await(h, &client, 1);
    http_stop(h->http);
    client_await(h, &client, NULL);
    client_take(h, &client);
    expect(h, 503, "error.code", "unavailable");
    client_close(&client);
    assert_int_equal(h->w->fake.processes[0].last_signal, SIGKILL);
    assert_false(chat_is_idle(h->api.chat));
}

static void test_folder_is_emptied(void **state)
{
    struct http_world *h = *state;
    CLEANUP(mem_free_ptr) char *folder = io_join(h->w->dir, "chat");
    CLEANUP(mem_free_ptr) char *old = io_join(folder, "chatcmpl-old.in");
    struct chat *chat = NULL;
    http_world_put(h, folder, "chatcmpl-old.in", "a question");
    for (int64_t n = 1;; n++) {
        mem_fault_after(n);
        int rc = chat_new(&h->api, &chat, &h->w->err);
        assert_int_equal(mem_fault_after(0), rc != 0);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ERR_NOMEM);
    }
    assert_false(io_exists(old));
    chat_free(chat);
    chat_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_TEST(test_answer), HTTP_TEST(test_bad_ends), HTTP_TEST(test_requests),
        HTTP_TEST(test_limits), HTTP_TEST(test_stop),     HTTP_TEST(test_folder_is_emptied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
