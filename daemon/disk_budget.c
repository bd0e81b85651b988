/* disk_budget: see disk_budget.h. */
#include "daemon/disk_budget.h"

#include "common/mem_estimate.h"

#include <errno.h>
#include <stdio.h>
#include <sys/statvfs.h>

enum { DISK_CHECKPOINTS = 2 };

int disk_budget_check(const char *data_dir, const struct model_shape *shape,
                      const struct job_spec *spec, int64_t kept_bytes, struct err *err)
{
    struct statvfs disk;
    if (statvfs(data_dir, &disk) != 0)
        return err_set_errno(err, errno, "%s", data_dir);
    double kept = (double)kept_bytes;
    double needed = (double)mem_disk_bytes(shape, spec, DISK_CHECKPOINTS) + kept;
    double available = (double)disk.f_bavail * (double)disk.f_frsize;
    if (needed <= available)
        return 0;
    char files[64] = "";
    if (kept_bytes > 0)
        (void)snprintf(files, sizeof files, ", and %.1f MiB for offload file", kept / 0x1p20);
    return err_set(err, ERR_NO_SPACE,
                   "the job needs %.1f MiB of disk (two checkpoints and the model%s), the data "
                   "folder has %.1f MiB free; free some, or give the daemon a larger data_dir",
                   needed / 0x1p20, files, available / 0x1p20);
}

int64_t disk_budget_free(const char *data_dir)
{
    struct statvfs disk;
    return statvfs(data_dir, &disk) == 0 ? (int64_t)disk.f_bavail * (int64_t)disk.f_frsize : 0;
}
