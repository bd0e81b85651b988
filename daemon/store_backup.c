/* store_backup: a copy of a database before a migration changes it, and where a database may lie.
 *
 * The copy is made by VACUUM INTO, which reads one consistent state and writes a file without gaps
 * or log (https://sqlite.org/lang_vacuum.html); it is synced and appears by rename, so
 * <database>.v<version> is whole if it is there. To go back: stop the daemon, move it over the
 * database, remove <database>-wal, start the older ithacad. */
#include "common/io.h"
#include "common/mem.h"
#include "daemon/store_sql.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/vfs.h>
#include <unistd.h>

static int store_backup_into(sqlite3 *database, const char *path, struct err *err)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(database, "VACUUM INTO ?", -1, &statement, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_bind_text(statement, 1, path, -1, SQLITE_STATIC);
    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    int rc = code == SQLITE_DONE ? 0 : store_fail(database, code, "VACUUM INTO", err);
    (void)sqlite3_finalize(statement); /* repeats an error told by step */
    return rc;
}

/* The copy, under the name `temp`, whose descriptor is fd: an empty file, as VACUUM INTO takes it;
 * SQLite would make one that others may read. */
static int store_backup_write(sqlite3 *database, const char *temp, int fd, const char *path,
                              struct err *err)
{
    TRY(store_backup_into(database, temp, err));
    if (fsync(fd) != 0 || rename(temp, path) != 0)
        return err_set_errno(err, errno, "%s", path);
    return 0;
}

int store_backup(sqlite3 *database, const char *path, int64_t version, struct err *err)
{
    CLEANUP(mem_free_ptr) char *copy = mem_printf("%s.v%lld", path, (long long)version);
    CLEANUP(mem_free_ptr) char *temp = mem_printf("%s.v%lld.new", path, (long long)version);
    if (copy == NULL || temp == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    (void)unlink(temp); /* of a daemon that was killed here */
    int fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc = fd < 0 ? err_set_errno(err, errno, "%s", temp)
                    : store_backup_write(database, temp, fd, copy, err);
    if (fd >= 0)
        (void)close(fd); /* synced, or failed already */
    if (rc == 0)
        return 0;
    (void)unlink(temp); /* the copy's failure counts */
    return err_wrap(err, rc, "no copy of %s can be made before it is brought up to date: ", path);
}

const char *store_network_name(int64_t magic)
{
    /* Numbers from statfs(2) and linux/magic.h. FUSE and 9p are no sign: many local disks of
     * containers and virtual machines come by them. */
    static const struct {
        int64_t magic;
        const char *name;
    } rows[] = {
        {.magic = 0x6969, .name = "NFS"},        {.magic = 0xff534d42, .name = "CIFS"},
        {.magic = 0xfe534d42, .name = "SMB"},    {.magic = 0x517b, .name = "SMB"},
        {.magic = 0x00c36400, .name = "Ceph"},   {.magic = 0x0bd00bd0, .name = "Lustre"},
        {.magic = 0x47504653, .name = "GPFS"},   {.magic = 0x5346414f, .name = "AFS"},
        {.magic = 0x19830326, .name = "BeeGFS"}, {.magic = 0x013111a8, .name = "IBRIX"},
        {.magic = 0x7461636f, .name = "OCFS2"},  {.magic = 0x01161970, .name = "GFS2"},
        {.magic = 0xaad7aaea, .name = "PanFS"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].magic == magic)
            return rows[i].name;
    return NULL;
}

int store_check_place(const char *data_dir, struct err *err)
{
    struct statfs info;
    if (statfs(data_dir, &info) != 0)
        return err_set_errno(err, errno, "%s", data_dir);
    const char *name = store_network_name((int64_t)(uint32_t)info.f_type);
    if (name == NULL)
        return 0;
    return err_set_field(err, ERR_SETTING, "data_dir",
                         "data_dir: %s is on %s, a network filesystem, where SQLite's locks and "
                         "shared memory do not hold and the database can be torn: name a folder of "
                         "a local disk by --data-dir",
                         data_dir, name);
}
