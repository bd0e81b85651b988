/* cmd_top: the loop of `ithaca top`: ask once a second, draw, wait for a key. A daemon that goes
 * away leaves the last picture with a line that says so; its address is looked up anew each time,
 * since the next one may have another. */
#include "clients/cli/cli.h"
#include "clients/cli/terminal.h"
#include "clients/cli/top.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOP_EVERY_MS = 1000,
    TOP_ANSWER_MS = 3000, /* a daemon that says nothing for so long is away */
    TOP_ACTION_MS = 1000  /* pausing takes as long as a checkpoint: it is not waited for */
};

static void top_done(struct top *top)
{
    json_decref(top->data);
}

/* Says how the job is that something was asked of; it is looked at until it is so, or has ended. */
static void top_say(struct top *top, const json_t *job)
{
    const char *state = cli_text(json_object_get(job, "ithaca"), "state");
    (void)snprintf(top->said, sizeof top->said, "%s is %s", top->asked_id, state);
    if (strcmp(state, top->asked_state) == 0 ||
        json_is_integer(json_object_get(job, "finished_at")))
        top->asked_id[0] = '\0';
}

static int top_look(struct client *client, struct top *top, struct err *err)
{
    CLEANUP(json_unref) json_t *job = NULL;
    if (top->asked_id[0] == '\0')
        return 0;
    int rc = client_job(client, NULL, top->asked_id, "", NULL, &job, err);
    if (rc == 0)
        top_say(top, job);
    else if (rc == -ERR_NOT_FOUND)
        top->asked_id[0] = top->said[0] = '\0'; /* it was deleted */
    return rc == -ERR_NOT_FOUND ? 0 : rc;
}

static int top_ask(struct cli *cli, struct top *top, struct err *err)
{
    struct client *client = NULL;
    json_t *data = NULL;
    TRY(cli_client(cli, &client, err));
    client_set_limit(client, TOP_ANSWER_MS);
    TRY(top_fetch(client, top->detail ? top->selected_id : "", top->data, &data, err));
    top_take(top, data);
    TRY(top_look(client, top, err));
    top->url = client_url(client);
    top->now_s = clock_wall_ms() / 1000;
    return 0;
}

static void top_refresh(struct cli *cli, struct top *top)
{
    struct err err;
    top->now_s = clock_wall_ms() / 1000;
    if (top_ask(cli, top, &err) == 0) {
        top->gone[0] = '\0';
        return;
    }
    utf8_line(err.text, top->gone, sizeof top->gone);
    top->url = "";
    client_free(cli->client); /* it may come back elsewhere */
    cli->client = NULL;
}

/* tail: "/cancel" or "/pause"; state: what the job is to be then. */
static void top_act(struct cli *cli, struct top *top, const char *tail, const char *state)
{
    struct err err;
    struct client *client = NULL;
    CLEANUP(json_unref) json_t *job = NULL;
    (void)snprintf(top->asked_id, sizeof top->asked_id, "%s", top->selected_id);
    top->asked_state = state;
    int rc = cli_client(cli, &client, &err);
    if (rc == 0) {
        client_set_limit(client, TOP_ACTION_MS);
        rc = client_job(client, "POST", top->asked_id, tail, NULL, &job, &err);
    }
    if (rc == 0) {
        top_say(top, job);
    } else if (rc == -ERR_UNAVAILABLE) {
        (void)snprintf(top->said, sizeof top->said, "asked to %s %s; it is not done yet", tail + 1,
                       top->asked_id);
    } else {
        utf8_line(err.text, top->said, sizeof top->said);
        top->asked_id[0] = '\0';
    }
}

/* Returns false when it is to end. *ret_ask: what is shown is to be asked for at once. */
static bool top_on_key(struct cli *cli, struct top *top, int key, bool *ret_ask)
{
    const bool has_job = top_has_job(top);
    if (key == TERMINAL_RESIZED)
        return true;
    if (key == TERMINAL_GONE || (key == 'q' && !top->detail && !top->asking))
        return false;
    if (top->asking) {
        top->asking = false;
        if (key == 'y')
            top_act(cli, top, "/cancel", "cancelled");
        *ret_ask = key == 'y';
        return true;
    }
    top->said[0] = top->asked_id[0] = '\0';
    if (top->detail) {
        top->detail = key != 'q' && key != TERMINAL_ESCAPE && key != TERMINAL_ENTER;
        *ret_ask = !top->detail;
    } else if (key == TERMINAL_UP || key == 'k' || key == TERMINAL_DOWN || key == 'j') {
        top_move(top, key == TERMINAL_UP || key == 'k' ? -1 : 1);
    } else if (key == TERMINAL_ENTER && has_job) {
        *ret_ask = top->detail = true;
    }
    if (key == 'c' && has_job)
        top->asking = true;
    if (key == 'p' && has_job) {
        top_act(cli, top, "/pause", "paused");
        *ret_ask = true;
    }
    return true;
}

static int top_show(struct top *top, struct err *err)
{
    CLEANUP(buf_done) struct buf frame;
    buf_init(&frame, TOP_FRAME_BYTES);
    if (!terminal_size(&top->columns, &top->rows))
        return err_set(err, ERR_IO, "the terminal is gone");
    top_frame(top, &frame);
    TRY(buf_error(&frame, err));
    terminal_draw(buf_str(&frame));
    return 0;
}

static int top_loop(struct cli *cli, struct top *top, struct err *err)
{
    int64_t next_ms = clock_monotonic_ms() + TOP_EVERY_MS;
    for (;;) {
        TRY(top_show(top, err));
        int64_t left_ms = next_ms - clock_monotonic_ms();
        int key = left_ms > 0 ? terminal_key((int)left_ms) : TERMINAL_NONE;
        bool ask = false;
        if (key != TERMINAL_NONE && !top_on_key(cli, top, key, &ask))
            return 0;
        if (ask || clock_monotonic_ms() >= next_ms) {
            top_refresh(cli, top);
            next_ms = clock_monotonic_ms() + TOP_EVERY_MS;
        }
    }
}

static int top_once(const struct cli *cli, struct top *top, struct err *err)
{
    size_t rows;
    if (cli->json)
        return cli_print_json(top->data, err);
    const char *columns = cli_environment("COLUMNS");
    if (columns != NULL)
        top->columns = strtoul(columns, NULL, 10); /* no number: as wide as it is */
    else if (!terminal_size(&top->columns, &rows))
        top->columns = 0;
    top->colour = false;
    CLEANUP(buf_done) struct buf frame;
    buf_init(&frame, TOP_FRAME_BYTES);
    top_frame(top, &frame);
    return cli_print_text(&frame, err);
}

int cmd_top(struct cli *cli, struct err *err)
{
    CLEANUP(top_done) struct top top = {.url = ""};
    const bool once = cli_take_flag(cli, "--once") || cli->json;
    const char *kind = cli_environment("TERM");
    TRY(cli_finish_arguments(cli, err));
    TRY(top_ask(cli, &top, err)); /* a wrong address is said at once, not waited for */
    if (once)
        return top_once(cli, &top, err);
    top.colour = cli_environment("NO_COLOR") == NULL && (kind == NULL || strcmp(kind, "dumb") != 0);
    TRY(terminal_open(err));
    int rc = top_loop(cli, &top, err);
    terminal_close();
    return rc;
}
