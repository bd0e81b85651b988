/* exit_report: JSON as drawn in exit_report.h. An exit status of -1 and a signal of 0 are null in
 * the file, and so are empty last words. Unknown keys are refused: keeper and daemon are one build,
 * and a file that says more than we understand is not ours. */
#include "common/exit_report.h"

#include "common/json.h"
#include "common/mem.h"
#include "common/utf8.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

/* The largest report: every rank with last words of control characters, six bytes each. */
enum {
    EXIT_REPORT_BYTES = LIMIT_RANKS * (6 * LIMIT_LAST_WORDS_BYTES + 256) + 6 * EXIT_COLLECTIVE_BYTES
};

static json_t *exit_text_json(const char *text)
{
    char clean[LIMIT_LAST_WORDS_BYTES];
    (void)snprintf(clean, sizeof clean, "%s", text);
    utf8_scrub(clean);
    return clean[0] != '\0' ? json_string(clean) : json_null();
}

static json_t *exit_integer_json(int64_t value, int64_t none)
{
    return value != none ? json_integer(value) : json_null();
}

static json_t *exit_rank_json(uint32_t rank, const struct exit_rank *exit)
{
    const char *phase = exit->has_place ? wire_phase_name((enum wire_phase)exit->phase) : NULL;
    json_t *step = exit->has_place ? json_integer((json_int_t)exit->step) : NULL;
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o*, s:s*}", "rank", (json_int_t)rank, "pid",
                     (json_int_t)exit->pid, "exit", exit_integer_json(exit->exit_status, -1),
                     "signal", exit_integer_json(exit->signal, 0), "last_words",
                     exit_text_json(exit->last_words), "step", step, "phase", phase);
}

int exit_report_write(const char *path, const struct exit_report *report, struct err *err)
{
    CLEANUP(json_unref) json_t *ranks = json_array();
    for (uint32_t rank = 0; rank < report->world; rank++)
        if (json_array_append_new(ranks, exit_rank_json(rank, &report->ranks[rank])) != 0)
            return mem_fail(err, sizeof *report, "the exit report");
    CLEANUP(json_unref)
    json_t *root = json_pack("{s:O, s:o, s:o, s:o}", "ranks", ranks, "first_failed",
                             exit_integer_json(report->first_failed, -1), "stopped_by",
                             exit_text_json(report->stopped_by), "collective",
                             exit_text_json(report->collective));
    if (root == NULL)
        return mem_fail(err, sizeof *report, "the exit report");
    return json_write_file(path, root, 0600, err);
}

static int exit_key_known(const json_t *object, const char *const keys[], struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        size_t i = 0;
        while (keys[i] != NULL && strcmp(keys[i], key) != 0)
            i++;
        if (keys[i] == NULL)
            return err_set(err, ERR_CORRUPT, "an unknown key");
    }
    return 0;
}

/* An integer from min to max, or null for `none`. */
static int exit_take_integer(const json_t *object, const char *key, int64_t none, int64_t min,
                             int64_t max, int32_t *ret, struct err *err)
{
    int64_t value = none;
    if (!json_is_null(json_object_get(object, key))) {
        TRY(json_get_i64(object, key, ERR_CORRUPT, &value, err));
        if (value < min || value > max)
            return err_set(err, ERR_CORRUPT, "\"%s\" is out of range", key);
    }
    *ret = (int32_t)value;
    return 0;
}

/* A string that fits `size` bytes, or null for "". */
static int exit_take_text(const json_t *object, const char *key, char *ret, size_t size,
                          struct err *err)
{
    const char *text = "";
    if (!json_is_null(json_object_get(object, key)))
        TRY(json_get_string(object, key, ERR_CORRUPT, &text, err));
    if (strlen(text) >= size)
        return err_set(err, ERR_CORRUPT, "\"%s\" is too long", key);
    memcpy(ret, text, strlen(text) + 1);
    return 0;
}

/* "step" and "phase": both or neither. */
static int exit_take_place(const json_t *object, struct exit_rank *ret, struct err *err)
{
    int64_t step = 0;
    const char *name = "";
    ret->has_place = json_object_get(object, "step") != NULL;
    if (!ret->has_place && json_object_get(object, "phase") == NULL)
        return 0;
    TRY(json_get_i64(object, "step", ERR_CORRUPT, &step, err));
    TRY(json_get_string(object, "phase", ERR_CORRUPT, &name, err));
    while (ret->phase < WIRE_PHASE_COUNT &&
           strcmp(wire_phase_name((enum wire_phase)ret->phase), name) != 0)
        ret->phase++;
    if (step < 0 || ret->phase == WIRE_PHASE_COUNT)
        return err_set(err, ERR_CORRUPT, "\"step\" and \"phase\" are none there can be");
    ret->step = (uint64_t)step;
    return 0;
}

static int exit_rank_parse(const json_t *object, uint32_t rank, struct exit_rank *ret,
                           struct err *err)
{
    static const char *const keys[] = {"rank",       "pid",  "exit",  "signal",
                                       "last_words", "step", "phase", NULL};
    int32_t number = -1;
    TRY(exit_key_known(object, keys, err));
    TRY(exit_take_integer(object, "rank", -1, 0, LIMIT_RANKS - 1, &number, err));
    if (number != (int32_t)rank)
        return err_set(err, ERR_CORRUPT, "\"rank\" is out of order");
    TRY(exit_take_integer(object, "pid", 0, 0, INT32_MAX, &ret->pid, err));
    TRY(exit_take_integer(object, "exit", -1, 0, 255, &ret->exit_status, err));
    TRY(exit_take_integer(object, "signal", 0, 1, 127, &ret->signal, err));
    TRY(exit_take_place(object, ret, err));
    return exit_take_text(object, "last_words", ret->last_words, sizeof ret->last_words, err);
}

static int exit_report_parse(const json_t *root, struct exit_report *ret, struct err *err)
{
    static const char *const keys[] = {"ranks", "first_failed", "stopped_by", "collective", NULL};
    const json_t *ranks = json_object_get(root, "ranks");
    size_t world = json_array_size(ranks);
    if (world < 1 || world > LIMIT_RANKS)
        return err_set(err, ERR_CORRUPT, "\"ranks\" must be an array of 1 to %d", LIMIT_RANKS);
    TRY(exit_key_known(root, keys, err));
    ret->world = (uint32_t)world;
    for (uint32_t rank = 0; rank < ret->world; rank++) {
        int rc = exit_rank_parse(json_array_get(ranks, rank), rank, &ret->ranks[rank], err);
        if (rc != 0)
            return err_wrap(err, rc, "rank %u: ", rank);
    }
    TRY(exit_take_integer(root, "first_failed", -1, 0, (int64_t)world - 1, &ret->first_failed,
                          err));
    if (json_object_get(root, "collective") != NULL)
        TRY(exit_take_text(root, "collective", ret->collective, sizeof ret->collective, err));
    return exit_take_text(root, "stopped_by", ret->stopped_by, sizeof ret->stopped_by, err);
}

int exit_report_read(const char *path, struct exit_report *ret_report, struct err *err)
{
    CLEANUP(json_unref) json_t *root = NULL;
    TRY(json_parse_file(path, EXIT_REPORT_BYTES, &root, err));
    CLEANUP(mem_free_ptr) struct exit_report *report = mem_new(1, sizeof *report);
    if (report == NULL)
        return mem_fail(err, sizeof *report, "the exit report");
    int rc = exit_report_parse(root, report, err);
    if (rc != 0)
        return err_wrap(err, rc, "%s: ", path);
    *ret_report = *report;
    return 0;
}
