/* profile_file: see profile_file.h. A reader believes nothing: the size is checked before memory is
 * taken, every event before it is given out. */
#include "worker/profile_file.h"

#include "common/io.h"
#include "common/mem.h"
#include "common/must.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PROFILE_MAGIC 0x31464f5250414849u /* "IHAPROF1" */
_Static_assert(sizeof(struct profile_head) == 128 && sizeof(struct profile_event) == 32,
               "as the header draws them");

const char *profile_kind_name(enum profile_kind kind)
{
    static const char *const names[PROFILE_KIND_COUNT] = {
#define X(id, name) [PROFILE_##id] = name,
        PROFILE_KINDS(X)
#undef X
    };
    must((unsigned)kind < PROFILE_KIND_COUNT);
    return names[kind];
}

char *profile_file_path(const char *job_dir, uint32_t rank)
{
    return mem_printf("%s/profile/rank-%u", job_dir, rank);
}

char *profile_ready_path(const char *job_dir)
{
    return mem_printf("%s/profile/ready.json", job_dir);
}

int profile_file_write(const char *path, const struct profile_file *file, struct err *err)
{
    struct profile_head head = file->head;
    struct io_file out;
    head.magic = PROFILE_MAGIC;
    TRY(io_file_create(&out, path, 0600, err));
    int rc = io_write_full(out.fd, &head, sizeof head, err);
    if (rc == 0)
        rc = io_write_full(out.fd, file->names, head.name_count * sizeof *file->names, err);
    if (rc == 0)
        rc = io_write_full(out.fd, file->events, (size_t)head.count * sizeof *file->events, err);
    if (rc == 0)
        rc = io_file_commit(&out, err);
    io_file_abort(&out);
    return rc;
}

static int file_bad(const char *path, const char *what, struct err *err)
{
    return err_set(err, ERR_CORRUPT, "%s: %s", path, what);
}

static int file_check_head(const char *path, const struct profile_head *head, int64_t bytes,
                           struct err *err)
{
    if (head->magic != PROFILE_MAGIC)
        return file_bad(path, "not a profile of this version", err);
    if (head->world < 1 || head->world > LIMIT_RANKS || head->rank >= head->world ||
        head->name_count > PROFILE_NAMES_MAX || head->count < 0 ||
        head->count > LIMIT_PROFILE_EVENTS || head->first_step < 1 ||
        head->last_step < head->first_step || head->dropped < 0 ||
        memchr(head->device, '\0', sizeof head->device) == NULL ||
        memchr(head->untraced, '\0', sizeof head->untraced) == NULL)
        return file_bad(path, "a number of its head is out of range", err);
    int64_t wanted = (int64_t)sizeof *head + (int64_t)head->name_count * PROFILE_NAME_BYTES +
                     head->count * (int64_t)sizeof(struct profile_event);
    return bytes == wanted ? 0 : file_bad(path, "it has another size than its head says", err);
}

static int file_check(const char *path, const struct profile_file *file, struct err *err)
{
    for (uint32_t i = 0; i < file->head.name_count; i++)
        if (memchr(file->names[i], '\0', PROFILE_NAME_BYTES) == NULL)
            return file_bad(path, "a name has no end", err);
    for (int64_t i = 0; i < file->head.count; i++) {
        const struct profile_event *event = &file->events[i];
        if (event->kind >= PROFILE_KIND_COUNT || event->name >= file->head.name_count)
            return file_bad(path, "an event of no known kind or name", err);
        if (event->begin_ns < 0 || event->end_ns < event->begin_ns)
            return file_bad(path, "an event ends before it begins", err);
    }
    return 0;
}

static int file_read(int fd, const char *path, struct profile_file *file, struct err *err)
{
    int64_t bytes = 0;
    TRY(io_file_size(path, &bytes, err));
    if (bytes < (int64_t)sizeof file->head)
        return file_bad(path, "shorter than its head", err);
    TRY(io_read_full(fd, &file->head, sizeof file->head, err));
    TRY(file_check_head(path, &file->head, bytes, err));
    file->names = mem_new(file->head.name_count + 1, sizeof *file->names);
    file->events = mem_new((size_t)file->head.count + 1, sizeof *file->events);
    if (file->names == NULL || file->events == NULL)
        return mem_fail(err, (size_t)bytes, "a profile");
    TRY(io_read_full(fd, file->names, file->head.name_count * sizeof *file->names, err));
    TRY(io_read_full(fd, file->events, (size_t)file->head.count * sizeof *file->events, err));
    return file_check(path, file, err);
}

int profile_file_read(const char *path, struct profile_file *ret, struct err *err)
{
    struct profile_file file = {.names = NULL};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, errno, "%s", path);
    int rc = file_read(fd, path, &file, err);
    (void)close(fd); /* read only */
    if (rc == 0)
        *ret = file;
    else
        profile_file_done(&file);
    return rc;
}

void profile_file_done(struct profile_file *file)
{
    mem_free(file->names);
    mem_free(file->events);
    *file = (struct profile_file){.names = NULL};
}
