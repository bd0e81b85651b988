/* cmd_plan: what a job would take of memory and time. */
#include "clients/cli/plan_command.h"
#include "common/mem.h"
#include "common/mem_report.h"
#include "common/time_report.h"

static int plan_print_json(const struct plan_command *command, const struct mem_estimate *estimate,
                           struct err *err)
{
    CLEANUP(json_unref) json_t *json = mem_report_json(estimate, command->buffers);
    if (json_object_set_new(json, "time", time_report_json(estimate)) != 0)
        return mem_fail(err, 0, "the plan");
    return cli_print_json(json, err);
}

static int plan_print_text(const struct plan_command *command, const struct mem_estimate *estimate,
                           struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, PLAN_TEXT_BYTES);
    mem_report_text(estimate, &text);
    time_report_text(estimate, &text);
    TRY(plan_command_print(&text, err));
    return mem_estimate_check(&command->ask, estimate, err);
}

static int plan_run(struct cli *cli, struct plan_command *command, struct err *err)
{
    CLEANUP(mem_estimate_done) struct mem_estimate estimate = {.fits = false};
    TRY(plan_command_read(cli, command, err));
    if (command->longest) {
        TRY(mem_estimate_longest(&command->ask, &command->spec.seq_len, err));
        if (command->spec.seq_len == 0)
            return err_set(err, ERR_DOES_NOT_FIT, "no length fits");
    }
    TRY(mem_estimate_make(&command->ask, &estimate, err));
    return cli->json ? plan_print_json(command, &estimate, err)
                     : plan_print_text(command, &estimate, err);
}

int cmd_plan(struct cli *cli, struct err *err)
{
    CLEANUP(plan_command_done) struct plan_command command = {0};
    return plan_run(cli, &command, err);
}
