/* main: ithaca-worker: one program, several roles. It parses the command line, runs the role, and
 * prints what went wrong; the exit status is the error's row in api/errors.def.
 *
 *   --rank R --plan FILE            a rank of a job; started by the keeper
 *   --prepare REQUEST               a data file to token shards; started by the daemon
 *   --init-model NAME DIR [--seed N]  a built-in model with random weights
 *   --sample MODEL_DIR              one greedy answer: request on stdin, answer on stdout
 *   --version */
#include "common/json.h"
#include "common/launch_plan.h"
#include "common/limits.h"
#include "common/mem.h"
#include "worker/last_words.h"
#include "worker/model_init.h"
#include "worker/prepare.h"
#include "worker/rank.h"
#include "worker/sample.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_number(const char *option, const char *text, uint64_t max, uint64_t *ret,
                        struct err *err)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || value > max)
        return err_set(err, ERR_USAGE, "%s takes a number from 0 to %llu, not \"%s\"", option,
                       (unsigned long long)max, text);
    *ret = value;
    return 0;
}

/* The last line a rank leaves, wherever it stopped: file, frame, log. */
static void rank_fail(struct rank *rank, const struct err *err)
{
    rank_abort(rank);
    last_words_say(err->text);
    if (rank->report == NULL)
        return;
    report_failed(rank->report, err);
    report_flush(rank->report);
}

static int main_rank(const char *number_text, const char *plan_path, struct err *err)
{
    CLEANUP(json_unref) json_t *json = NULL;
    CLEANUP(launch_plan_done) struct launch_plan plan = {0};
    uint64_t number = 0;
    TRY(parse_number("--rank", number_text, LIMIT_RANKS - 1, &number, err));
    TRY(json_parse_file(plan_path, LIMIT_FRAME_BYTES, &json, err));
    TRY(launch_plan_parse(json, &plan, err));
    if (number >= plan.world)
        return err_set(err, ERR_USAGE, "--rank %llu: the plan has %u ranks",
                       (unsigned long long)number, plan.world);
    CLEANUP(mem_free_ptr) char *attempt_dir = launch_plan_attempt_dir(&plan);
    if (attempt_dir == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    last_words_install(attempt_dir, (uint32_t)number);
    struct rank rank;
    int rc = rank_open(&rank, &plan, (int)number, err);
    if (rc == 0)
        rc = rank_run(&rank, err);
    if (rc != 0)
        rank_fail(&rank, err);
    rank_close(&rank);
    return rc;
}

static int main_init_model(int count, char **arguments, struct err *err)
{
    uint64_t seed = 0;
    bool seeded = count == 4 && strcmp(arguments[2], "--seed") == 0;
    if (count != 2 && !seeded)
        return err_set(err, ERR_USAGE, "usage: ithaca-worker --init-model NAME DIR [--seed N]");
    if (seeded)
        TRY(parse_number("--seed", arguments[3], INT64_MAX, &seed, err));
    return model_init_builtin(arguments[0], arguments[1], seed, err);
}

static int main_run(int count, char **arguments, struct err *err)
{
    const char *role = count > 0 ? arguments[0] : "";
    if (strcmp(role, "--rank") == 0 && count == 4 && strcmp(arguments[2], "--plan") == 0)
        return main_rank(arguments[1], arguments[3], err);
    if (strcmp(role, "--prepare") == 0 && count == 2) /* NEEDSWORK: until dataset_prepare is here */
        return err_set(err, ERR_UNSUPPORTED, "--prepare is not served yet");
    if (strcmp(role, "--init-model") == 0)
        return main_init_model(count - 1, arguments + 1, err);
    if (strcmp(role, "--sample") == 0 && count == 2)
        return sample_main(arguments[1], stdin, stdout, err);
    if (strcmp(role, "--version") == 0 && count == 1) {
        printf("ithaca-worker %s\n", ITHACA_VERSION);
        return 0;
    }
    return err_set(err, ERR_USAGE,
                   "usage: ithaca-worker --rank R --plan FILE | --prepare REQUEST | --init-model "
                   "NAME DIR [--seed N] | --sample MODEL_DIR | --version");
}

int main(int argc, char **argv)
{
    struct err err = {0};
    int rc = main_run(argc - 1, argv + 1, &err);
    if (rc == 0)
        return 0;
    (void)fprintf(stderr, "ithaca-worker: %s\n", err.text);
    return err_code_exit(err.code);
}
