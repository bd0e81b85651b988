/* main: ithaca-worker: one program, several roles. It parses the command line, runs the role, and
 * prints what went wrong; the exit status is the error's row in api/errors.def.
 *
 *   --rank R --attempt-dir DIR      a rank of the plan in DIR; started by the keeper
 *   --keep DIR                      the keeper of the plan in DIR; started by the daemon
 *   --prepare REQUEST               a data file to token shards; started by the daemon
 *   --init-model NAME DIR [--seed N]  a built-in model with random weights
 *   --export CHECKPOINT_DIR MODEL_DIR OUT_DIR  a checkpoint of MODEL_DIR's tuning as a model folder
 *   --profile JOB_DIR DEVICE_BYTES OUT_DIR  a job's profile: summary.json and trace.json.gz
 *   --sample MODEL_DIR              one greedy answer: request on stdin, answer on stdout
 *   --doctor DATA_DIR [--json]      what this machine offers, on one page
 *   --version */
#include "common/io.h"
#include "common/launch_plan.h"
#include "common/limits.h"
#include "common/mem.h"
#include "worker/calibrate.h"
#include "worker/doctor.h"
#include "worker/export.h"
#include "worker/keeper.h"
#include "worker/last_words.h"
#include "worker/measure.h"
#include "worker/model_init.h"
#include "worker/prepare.h"
#include "worker/preview.h"
#include "worker/profile_job.h"
#include "worker/rank.h"
#include "worker/sample.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

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

static int main_train(const struct launch_plan *plan, int number, struct err *err)
{
    struct rank rank;
    int rc = rank_open(&rank, plan, number, err);
    if (rc == 0)
        rc = plan->purpose == LAUNCH_MEASURE ? measure_run(&rank, err) : rank_run(&rank, err);
    if (rc != 0)
        rank_fail(&rank, err);
    rank_close(&rank);
    return rc;
}

static int main_load_plan(const char *attempt_dir, uint64_t number, struct launch_plan *plan,
                          struct err *err)
{
    TRY(launch_plan_read(attempt_dir, plan, err));
    if (number >= plan->world)
        return err_set(err, ERR_USAGE, "--rank %llu: the plan has %u ranks",
                       (unsigned long long)number, plan->world);
    return 0;
}

static int main_rank(const char *number_text, const char *attempt_dir, struct err *err)
{
    CLEANUP(launch_plan_done) struct launch_plan plan = {0};
    uint64_t number = 0;
    TRY(parse_number("--rank", number_text, LIMIT_RANKS - 1, &number, err));
    last_words_install(attempt_dir, (uint32_t)number);
    int rc = main_load_plan(attempt_dir, number, &plan, err);
    if (rc == 0)
        rc = plan.purpose == LAUNCH_CALIBRATE ? calibrate_rank(&plan, (int)number, err)
                                              : main_train(&plan, (int)number, err);
    if (rc != 0)
        last_words_say(err->text);
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

/* The daemon's helpers end with it, unlike ranks and their keeper: nobody would wait for them. */
static bool main_is_helper(const char *role)
{
    return strcmp(role, "--prepare") == 0 || strcmp(role, "--export") == 0 ||
           strcmp(role, "--sample") == 0 || strcmp(role, "--preview") == 0 ||
           strcmp(role, "--profile") == 0;
}

static int main_profile(char **arguments, struct err *err)
{
    uint64_t device_bytes = 0;
    TRY(parse_number("--profile", arguments[1], INT64_MAX, &device_bytes, err));
    return profile_job_make(arguments[0], (int64_t)device_bytes, arguments[2], err);
}

static int main_run(int count, char **arguments, struct err *err)
{
    const char *role = count > 0 ? arguments[0] : "";
    if (main_is_helper(role) && prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return err_set_errno(err, errno, "end with the parent");
    if (strcmp(role, "--rank") == 0 && count == 4 && strcmp(arguments[2], "--attempt-dir") == 0)
        return main_rank(arguments[1], arguments[3], err);
    if (strcmp(role, "--keep") == 0 && count == 2)
        return keeper_main(arguments[1], err);
    if (strcmp(role, "--prepare") == 0 && count == 2)
        return prepare_main(arguments[1], err);
    if (strcmp(role, "--init-model") == 0)
        return main_init_model(count - 1, arguments + 1, err);
    if (strcmp(role, "--export") == 0 && count == 4)
        return export_checkpoint(arguments[1], arguments[2], arguments[3], err);
    if (strcmp(role, "--profile") == 0 && count == 4)
        return main_profile(arguments + 1, err);
    if (strcmp(role, "--sample") == 0 && count == 2)
        return sample_main(arguments[1], stdin, stdout, err);
    if (strcmp(role, "--preview") == 0 && count == 2)
        return preview_main(arguments[1], stdin, stdout, err);
    bool json = count == 3 && strcmp(arguments[2], "--json") == 0;
    if (strcmp(role, "--doctor") == 0 && (count == 2 || json))
        return doctor_run(arguments[1], json, err);
    if (strcmp(role, "--version") == 0 && count == 1) {
        printf("ithaca-worker %s\n", ITHACA_VERSION);
        return 0;
    }
    return err_set(err, ERR_USAGE,
                   "usage: ithaca-worker --rank R --attempt-dir DIR | --keep DIR | --prepare "
                   "REQUEST | --init-model "
                   "NAME DIR [--seed N] | --export CHECKPOINT_DIR MODEL_DIR OUT_DIR | --sample "
                   "MODEL_DIR | --preview MODEL_DIR | --profile JOB_DIR DEVICE_BYTES OUT_DIR | "
                   "--doctor DATA_DIR [--json] | --version");
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
