/* cmd_plan: what a job would take of memory and time. */
#include "clients/cli/local_measure.h"
#include "clients/cli/plan_command.h"
#include "common/job_field.h"
#include "common/mem.h"
#include "common/mem_report.h"
#include "common/mem_timeline.h"
#include "common/plan_search.h"
#include "common/time_report.h"

#include <limits.h>

enum { PLAN_VALUE_BYTES = 64 };

static int plan_print_json(const struct plan_command *command, const struct mem_estimate *estimate,
                           const struct mem_measured *measured, struct err *err)
{
    CLEANUP(json_unref)
    json_t *json = mem_report_json(estimate, command->buffers || command->timeline);
    if (command->timeline &&
        json_object_set_new(json, "timeline", mem_timeline_peak_json(&estimate->plan, INT_MAX)) !=
            0)
        return mem_fail(err, 0, "the plan");
    if (json_object_set_new(json, "time", time_report_json(estimate)) != 0 ||
        json_object_set_new(json, "ithaca", job_spec_ithaca_json(&estimate->spec)) != 0)
        return mem_fail(err, 0, "the plan");
    if (command->run && json_object_set_new(json, "measured", mem_measured_json(measured)) != 0)
        return mem_fail(err, 0, "the plan");
    if (measured->run && estimate->spec.rehearse &&
        json_object_set_new(json, "rehearsal", mem_measured_report_json(estimate, measured)) != 0)
        return mem_fail(err, 0, "the plan");
    return cli_print_json(json, err);
}

/* Every field whose value is not the one that was asked for, as an option for --set. */
static void plan_settings_text(const struct job_spec *asked, const struct job_spec *chosen,
                               struct buf *out)
{
    for (size_t i = 0; i < job_field_count; i++) {
        const struct job_field *field = &job_fields[i];
        char text[PLAN_VALUE_BYTES];
        CLEANUP(json_unref) json_t *before = job_field_json(field, asked);
        CLEANUP(json_unref) json_t *value = job_field_json(field, chosen);
        if (json_equal(before, value))
            continue;
        json_brief(value, text, sizeof text);
        buf_printf(out, "--set %s=%s\n", field->path, text);
    }
}

static int plan_print_text(const struct plan_command *command, const struct mem_estimate *estimate,
                           const struct mem_measured *measured, struct err *err)
{
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, PLAN_TEXT_BYTES);
    if (command->automatic)
        plan_settings_text(&command->spec, &estimate->spec, &text);
    mem_report_text(estimate, &text);
    if (command->timeline)
        mem_timeline_text(&estimate->plan, &text);
    time_report_text(estimate, &text);
    if (!estimate->fits && !command->automatic)
        buf_text(&text, "--auto looks for settings that fit among those left open\n");
    if (measured->run)
        mem_measured_text(estimate, measured, &text);
    else if (command->run)
        buf_printf(&text, "not measured: %s\n", measured->why);
    TRY(cli_print_text(&text, err));
    return mem_estimate_check(&command->ask, estimate, err);
}

static int plan_run(struct cli *cli, struct plan_command *command, struct err *err)
{
    CLEANUP(mem_estimate_done) struct mem_estimate estimate = {.fits = false};
    command->longest = cli_take_flag(cli, "--max-seq-len");
    command->buffers = cli_take_flag(cli, "--buffers");
    command->timeline = cli_take_flag(cli, "--timeline");
    command->automatic = cli_take_flag(cli, "--auto");
    TRY(plan_command_read(cli, command, err));
    if (command->longest) {
        TRY(mem_estimate_longest(&command->ask, &command->spec.seq_len, err));
        if (command->spec.seq_len == 0)
            return err_set(err, ERR_DOES_NOT_FIT, "no length fits");
    }
    if (command->automatic)
        TRY(plan_search(&command->ask, &estimate, err));
    else
        TRY(mem_estimate_make(&command->ask, &estimate, err));
    struct mem_measured measured = {.run = false};
    if (command->run)
        TRY(local_measure(&command->ask, &estimate, command->steps, &measured, err));
    return cli->json ? plan_print_json(command, &estimate, &measured, err)
                     : plan_print_text(command, &estimate, &measured, err);
}

int cmd_plan(struct cli *cli, struct err *err)
{
    CLEANUP(plan_command_done) struct plan_command command = {0};
    return plan_run(cli, &command, err);
}
