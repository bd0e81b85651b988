/* cmd_man: prints a manual page; `cmake --install` puts all of them where man(1) looks. */
#include "clients/cli/cli.h"
#include "clients/cli/man.h"
#include "common/mem.h"

#include <string.h>

int cmd_man(struct cli *cli, struct err *err)
{
    const char *name = "ithaca";
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, MAN_PAGE_BYTES);
    if (cli->argc > 0)
        TRY(cli_take_verb(cli, &name, err));
    TRY(cli_finish_arguments(cli, err));
    for (size_t i = 0; i < man_page_count; i++)
        if (strcmp(man_pages[i].name, name) == 0)
            man_print(&man_pages[i], &text);
    return cli_print_text(&text, err);
}
