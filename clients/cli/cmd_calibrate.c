/* cmd_calibrate: how fast this machine is, measured by ranks of its own (worker/calibrate.h), for
 * one rank, two, four ... up to all there are, into the data folder, where daemon and `plan` find
 * it. */
#include "clients/cli/address.h"
#include "clients/cli/local_run.h"
#include "clients/cli/plan_command.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/number.h"
#include "common/time_rates.h"

#include <math.h>
#include <stdio.h>

enum { CALIBRATE_SECONDS = 40, CALIBRATE_SECONDS_MAX = 3600, CALIBRATE_CPU_RANKS = 2 };

/* Of ranks, and the seconds that it may take. */
static int calibrate_spec(int64_t ranks, int64_t seconds, struct job_spec *ret, struct err *err)
{
    CLEANUP(json_unref)
    json_t *body =
        json_pack("{s:s, s:s, s:{s:I, s:I}}", "model", "none", "training_file", "none", "ithaca",
                  "gpus", (json_int_t)ranks, "time_limit_s", (json_int_t)seconds);
    return body == NULL ? mem_fail(err, 0, "a job") : job_spec_parse(body, ret, err);
}

static int calibrate_take(const struct local_run *run, struct time_rates *ret, struct err *err)
{
    CLEANUP(json_unref) json_t *json = NULL;
    CLEANUP(mem_free_ptr) char *path = io_join(run->plan.job_dir, "rates.json");
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(json_parse_own_file(path, TIME_FILE_BYTES, &json, err));
    return time_rates_parse(json, ret, err);
}

static int calibrate_set(enum mem_backend backend, int64_t ranks, int64_t seconds,
                         struct time_rates *ret, struct err *err)
{
    struct job_spec spec;
    CLEANUP(local_run_done) struct local_run run = {.worker = NULL};
    TRY(calibrate_spec(ranks, seconds, &spec, err));
    TRY(local_run_open(&run, LAUNCH_CALIBRATE, backend, &spec, err));
    TRY(local_run_start(&run, err));
    TRY(calibrate_take(&run, ret, err));
    local_run_device_name(backend, ret->device);
    return 0;
}

static void calibrate_tell(const struct cli *cli, const struct time_rates *rates)
{
    double product = 0, attention = 0;
    for (int32_t i = 0; i < rates->counts[TIME_GEMM_Y]; i++)
        product = fmax(product, rates->points[TIME_GEMM_Y][i].rate);
    for (int32_t i = 0; i < rates->counts[TIME_ATTENTION]; i++)
        attention = fmax(attention, rates->points[TIME_ATTENTION][i].rate);
    if (!cli->json)
        (void)printf("%lld ranks: products up to %s GFLOP/s a rank, attention %s\n",
                     (long long)rates->ranks, number_plain(product * 1e-9, 4).text,
                     number_plain(attention * 1e-9, 4).text);
    (void)fflush(stdout); /* main looks at stdout's state */
}

struct calibrate_command {
    enum mem_backend backend;
    int64_t ranks;   /* 0: one, two, four ... */
    int64_t seconds; /* for all of them */
    int64_t most;    /* ranks there are */
    char *data_dir;
};

static int calibrate_read(struct cli *cli, struct calibrate_command *command, struct err *err)
{
    command->backend = local_run_backend();
    command->seconds = CALIBRATE_SECONDS;
    plan_command_backend(cli, &command->backend);
    TRY(plan_command_number(cli, "--ranks", &command->ranks, err));
    TRY(plan_command_number(cli, "--seconds", &command->seconds, err));
    if (command->seconds > CALIBRATE_SECONDS_MAX || command->ranks > LIMIT_RANKS)
        return err_set(err, ERR_USAGE, "at most %d seconds and %d ranks", CALIBRATE_SECONDS_MAX,
                       LIMIT_RANKS);
    TRY(cli_finish_arguments(cli, err));
    command->most = local_run_devices(command->backend);
    if (command->backend == MEM_BACKEND_CPU && command->most < CALIBRATE_CPU_RANKS)
        command->most = CALIBRATE_CPU_RANKS; /* as many as the daemon has slots at least */
    command->most = command->most < LIMIT_RANKS ? command->most : LIMIT_RANKS;
    if (command->most < 1)
        return err_set(err, ERR_DEVICE, "this machine has no GPU; give --backend cpu");
    command->data_dir = address_data_dir(cli->data_dir);
    if (command->data_dir == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    return io_make_dirs(command->data_dir, 0700, err);
}

static int calibrate_do(struct cli *cli, const struct calibrate_command *command, struct err *err)
{
    int64_t first = command->ranks > 0 ? command->ranks : 1, sets = 1;
    int64_t last = command->ranks > 0 ? command->ranks : command->most;
    for (int64_t ranks = first; ranks * 2 <= last; ranks *= 2)
        sets++;
    int64_t seconds = command->seconds / sets > 0 ? command->seconds / sets : 1;
    for (int64_t ranks = first; ranks <= last; ranks *= 2) {
        struct time_rates rates;
        TRY(calibrate_set(command->backend, ranks, seconds, &rates, err));
        TRY(time_rates_store(command->data_dir, &rates, err));
        calibrate_tell(cli, &rates);
    }
    return 0;
}

static int calibrate_print(const struct cli *cli, const char *data_dir, struct err *err)
{
    CLEANUP(json_unref) json_t *json = NULL;
    CLEANUP(mem_free_ptr) char *path = io_join(data_dir, "calibration.json");
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (!cli->json) {
        (void)printf("%s\n", path);
        return 0;
    }
    TRY(json_parse_own_file(path, TIME_FILE_BYTES, &json, err));
    return cli_print_json(json, err);
}

int cmd_calibrate(struct cli *cli, struct err *err)
{
    struct calibrate_command command = {.data_dir = NULL};
    int rc = calibrate_read(cli, &command, err);
    if (rc == 0)
        rc = calibrate_do(cli, &command, err);
    if (rc == 0)
        rc = calibrate_print(cli, command.data_dir, err);
    mem_free(command.data_dir);
    return rc;
}
