/* store_guests: other processes at our databases, such as a shell of sqlite3. None may hold up the
 * daemon's one thread, nor fill its disk.
 *
 * A writer. The first write that meets its lock waits STORE_PATIENCE_MS, others not at all until a
 * write succeeds: whatever is not stored is tried again by whoever wanted it stored.
 *
 * A reader. SQLite cannot give back the log (-wal) from the reader's first page on while it reads.
 * Points, which are most of what is written, are refused from STORE_LOG_PAGES on, and so wait in
 * memory and at their ranks; states of jobs are always taken. A log that was that long is cut when
 * it begins anew.
 *
 * A remover. A database whose file, or whose log, was moved, deleted or replaced can still be
 * written by the descriptors that the daemon has, and all of it would be gone with the daemon. So
 * nothing is written until the files are back.
 *
 * SQLite calls a hook after each commit, in place of its own checkpoints: there is one of ours. */
#include "common/clock.h"
#include "daemon/store_sql.h"

#include <errno.h>
#include <sys/stat.h>

enum {
    STORE_PATIENCE_MS = 50,        /* a turn of the loop may be that late, once */
    STORE_CHECKPOINT_PAGES = 1000, /* SQLite's own default */
    STORE_LOG_PAGES = 65536, /* 256 MiB: a minute of the heaviest load, hours of a usual one */
    STORE_LOOK_NS = 1000 * 1000000, /* between looks whether the reader has gone */
};

static int store_on_busy(void *context, int calls)
{
    struct store_guest *guest = context;
    int64_t now_ns = clock_monotonic_ns();
    if (calls == 0)
        guest->busy_ns = now_ns;
    guest->writes = guest->writes || now_ns - guest->busy_ns >= STORE_PATIENCE_MS * 1000000LL;
    if (guest->writes)
        return 0;
    (void)sqlite3_sleep(1);
    return 1;
}

static void store_checkpoint(struct store_guest *guest, sqlite3 *database)
{
    int pages = 0, copied = 0;
    /* Passive: waits for nobody. What it could not do the next one does. */
    int code =
        sqlite3_wal_checkpoint_v2(database, "main", SQLITE_CHECKPOINT_PASSIVE, &pages, &copied);
    guest->checkpoint_ns = clock_monotonic_ns();
    guest->reads = code == SQLITE_OK && copied < pages && pages >= guest->log_pages_max;
}

static int store_on_commit(void *context, sqlite3 *database, const char *name, int pages)
{
    (void)name;
    struct store_guest *guest = context;
    guest->writes = false;
    if (pages >= STORE_CHECKPOINT_PAGES)
        store_checkpoint(guest, database);
    return SQLITE_OK;
}

static const char *store_file_path(struct store *store, enum store_database which, int file)
{
    const char *path = sqlite3_db_filename(store->databases[which], "main");
    return file == 0 ? path : sqlite3_filename_wal(path);
}

static int store_remember_files(struct store *store, enum store_database which, struct err *err)
{
    struct store_guest *guest = &store->guests[which];
    for (int file = 0; file < 2; file++) {
        struct stat info;
        const char *path = store_file_path(store, which, file);
        if (stat(path, &info) != 0)
            return err_set_errno(err, errno, "%s", path);
        guest->files[file].device = info.st_dev;
        guest->files[file].number = info.st_ino;
    }
    return 0;
}

int store_guests_find_files(struct store *store, enum store_database which, struct err *err)
{
    const struct store_guest *guest = &store->guests[which];
    for (int file = 0; file < 2 && guest->files[file].number != 0; file++) {
        struct stat info;
        const char *path = store_file_path(store, which, file);
        bool is_there = stat(path, &info) == 0;
        if (!is_there || info.st_ino != guest->files[file].number ||
            info.st_dev != guest->files[file].device)
            return err_set(err, ERR_UNAVAILABLE,
                           "%s was %s while the daemon has it open, and nothing can be stored: put "
                           "back the file that was there, or stop ithacad and put back a backup",
                           path, is_there ? "replaced" : "moved or deleted");
    }
    return 0;
}

int store_guests_watch(struct store *store, struct err *err)
{
    for (int i = 0; i < STORE_DATABASE_COUNT; i++) {
        struct store_guest *guest = &store->guests[i];
        *guest = (struct store_guest){.log_pages_max = STORE_LOG_PAGES};
        TRY(store_remember_files(store, (enum store_database)i, err));
        SQL_TRY(store->databases[i],
                sqlite3_exec(store->databases[i], "PRAGMA journal_size_limit = 16777216", NULL,
                             NULL, NULL));
        SQL_TRY(store->databases[i],
                sqlite3_busy_handler(store->databases[i], store_on_busy, guest));
        (void)sqlite3_wal_hook(store->databases[i], store_on_commit, guest); /* the one before */
    }
    return 0;
}

int store_guests_admit(struct store *store, enum store_database which, struct err *err)
{
    struct store_guest *guest = &store->guests[which];
    sqlite3 *database = store->databases[which];
    if (guest->reads && clock_monotonic_ns() - guest->checkpoint_ns >= STORE_LOOK_NS)
        store_checkpoint(guest, database);
    if (!guest->reads)
        return 0;
    return err_set(
        err, ERR_UNAVAILABLE,
        "%s-wal has grown to %d MiB and cannot be emptied, because another process reads "
        "the database: end it",
        sqlite3_db_filename(database, "main"), guest->log_pages_max / 256);
}
