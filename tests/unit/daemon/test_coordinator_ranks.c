/* coordinator_ranks: sentences and checkpoints of ranks become events of the job, once. */
#include "daemon/checkpoints.h"
#include "tests/lib/coordinator_world.h"

struct found {
    const char *message; /* wanted */
    int count;
    char level[16], data[256];
};

static int find_event(void *context, const struct store_event *event, struct err *err)
{
    struct found *found = context;
    if (strstr(event->message, found->message) == NULL)
        return 0;
    found->count++;
    (void)snprintf(found->level, sizeof found->level, "%s", event->level);
    (void)snprintf(found->data, sizeof found->data, "%s", event->data_json);
    return 0;
}

static struct found find(struct world *w, const struct world_job *job, const char *message)
{
    struct found found = {.message = message};
    OK(w, store_events_after(w->store, job->id, 0, 1000, find_event, &found, &w->err));
    return found;
}

static void test_checkpoint(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    char id[LIMIT_ID_BYTES + 1], message[160], data[160];
    struct world_job job = world_running(w, &a, "");
    world_send(&a, 0,
               (struct wire_frame){.type = WIRE_CHECKPOINTED,
                                   .checkpointed = {.step = 7, .bytes = 1234567890123}});
    world_run(w);
    checkpoints_id(job.id, 7, id);
    (void)snprintf(message, sizeof message, "Step 7 is saved: %s, 1234567890123 bytes.", id);
    (void)snprintf(data, sizeof data, "{\"checkpoint\":\"%s\",\"step\":7}", id);
    struct found found = find(w, &job, message);
    assert_int_equal(found.count, 1);
    assert_string_equal(found.level, "info");
    assert_string_equal(found.data, data);
    assert_true(w->event_note > 0); /* streams are told */
    world_attempt_close(&a);
}

static void say(struct world_attempt *a, uint32_t rank, uint8_t level, const char *text)
{
    struct wire_frame frame = {.type = WIRE_EVENT, .event = {.level = level}};
    (void)snprintf(frame.event.text, sizeof frame.event.text, "%s", text);
    world_send(a, rank, frame);
}

static void test_sentences(void **state)
{
    struct world *w = *state;
    struct world_attempt a;
    struct world_job job = world_running(w, &a, "");
    say(&a, 0, 0, "all is well");
    say(&a, 0, 0, "all is well"); /* said twice: told twice */
    say(&a, 1, 1, "the loss is odd");
    say(&a, 1, 2, "it is worse");
    world_run(w);
    assert_int_equal(find(w, &job, "all is well").count, 2);
    assert_string_equal(find(w, &job, "all is well").level, "info");
    assert_string_equal(find(w, &job, "the loss is odd").level, "warn");
    assert_string_equal(find(w, &job, "it is worse").level, "error");
    uint32_t seen = 0;
    assert_true(world_receive(&a, 1, WIRE_SEEN, &seen));
    assert_int_equal(seen, a.next_seq[1]);
    world_hang_up(&a); /* rank 1 comes back and sends again what it knows no SEEN for */
    world_run(w);
    world_connect(&a, 1);
    a.next_seq[1]--;
    say(&a, 1, 2, "it is worse");
    world_run(w);
    assert_int_equal(find(w, &job, "it is worse").count, 1);
    world_attempt_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_checkpoint),
        WORLD_TEST(test_sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
