/* cmd_doctor: what this machine offers to training (worker/doctor.h). The worker looks, as ranks
 * would: this program becomes it. */
#include "clients/cli/address.h"
#include "clients/cli/cli.h"
#include "common/io.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/worker_program.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

int cmd_doctor(struct cli *cli, struct err *err)
{
    CLEANUP(mem_free_ptr) char *worker = NULL;
    TRY(cli_finish_arguments(cli, err));
    TRY(worker_program_find(cli_environment("ITHACA_WORKER"), &worker, err));
    CLEANUP(mem_free_ptr) char *data_dir = address_data_dir(cli->data_dir);
    if (data_dir == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    TRY(io_make_dirs(data_dir, 0700, err));
    (void)fflush(stdout);
    (void)execl(worker, "ithaca-worker", "--doctor", data_dir, cli->json ? "--json" : NULL, NULL);
    return err_set_errno(err, errno, "%s", worker);
}
