/* cmd_ladder: what each technique saves of a job's memory, and costs of its time. */
#include "clients/cli/plan_command.h"
#include "common/mem.h"
#include "common/mem_ladder.h"

static int ladder_run(struct cli *cli, struct plan_command *command, struct err *err)
{
    CLEANUP(mem_ladder_done) struct mem_ladder ladder = {0};
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, PLAN_TEXT_BYTES);
    TRY(plan_command_read(cli, command, err));
    TRY(mem_ladder_make(&command->ask, &ladder, err));
    if (cli->json) {
        CLEANUP(json_unref) json_t *json = mem_ladder_json(&ladder);
        return json == NULL ? mem_fail(err, 0, "the ladder") : cli_print_json(json, err);
    }
    mem_ladder_text(&ladder, &text);
    return plan_command_print(&text, err);
}

int cmd_ladder(struct cli *cli, struct err *err)
{
    CLEANUP(plan_command_done) struct plan_command command = {0};
    return ladder_run(cli, &command, err);
}
