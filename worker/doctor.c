/* doctor: see doctor.h. One function a check; each says one line or more. */
#include "worker/doctor.h"

#include "common/buf.h"
#include "common/cgroup.h"
#include "common/clock.h"
#include "common/cores.h"
#include "common/host_memory.h"
#include "common/io.h"
#include "common/json.h"
#include "common/limits.h"
#include "common/mem.h"
#include "common/mem_buffer.h"
#include "worker/device_cuda.h"
#include "worker/offload_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DOCTOR_MIB (1024.0 * 1024.0)
#define DOCTOR_GIB (1024.0 * DOCTOR_MIB)

enum {
    DOCTOR_TEXT_BYTES = 512,
    DOCTOR_PAGE_BYTES = 1 << 20,
    DOCTOR_DISK_PIECE = 4 << 20,
    DOCTOR_DISK_PIECES = 64,
    DOCTOR_SHM_MIB = 64,     /* of eight ranks, with their groups */
    DOCTOR_SHM_MIN_MIB = 16, /* of two */
    DOCTOR_DESCRIPTORS = 1024
};

enum doctor_level { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_BAD };
static const char *const doctor_levels[] = {"ok", "note", "bad"};

struct doctor {
    json_t *said; /* NULL: text */
    int bad;      /* findings */
};

__attribute__((format(printf, 4, 5))) static void doctor_say(struct doctor *doctor,
                                                             enum doctor_level level,
                                                             const char *what, const char *format,
                                                             ...)
{
    char text[DOCTOR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    doctor->bad += level == DOCTOR_BAD;
    if (doctor->said == NULL)
        printf("%-5s %-14s %s\n", doctor_levels[level], what, text);
    else
        (void)json_array_append_new(doctor->said,
                                    json_pack("{s:s, s:s, s:s}", "level", doctor_levels[level],
                                              "what", what, "finding", text));
}

/* The first line of a file; "" where it cannot be read. */
static void doctor_line(const char *path, char *ret, size_t bytes)
{
    FILE *file = fopen(path, "re");
    ret[0] = '\0';
    if (file != NULL && fgets(ret, (int)bytes, file) != NULL)
        ret[strcspn(ret, "\n")] = '\0';
    if (file != NULL)
        (void)fclose(file); /* read only */
}

static void doctor_machine(struct doctor *doctor)
{
    int cores = cores_allowed();
    struct host_memory host = host_memory_read();
    doctor_say(doctor, cores > 1 ? DOCTOR_OK : DOCTOR_NOTE, "processor", "%d core%s", cores,
               cores == 1 ? ": two ranks will share it, slowly" : "s");
    doctor_say(doctor, DOCTOR_OK, "memory", "%.1f GiB available of %.1f GiB",
               (double)host.available / DOCTOR_GIB, (double)host.total / DOCTOR_GIB);
}

/* ---- GPUs ---- */

static void doctor_gpu(struct doctor *doctor, int ordinal, const struct device_cuda_gpu *gpu)
{
    enum { HOPPER = 9 };
    char what[16];
    (void)snprintf(what, sizeof what, "GPU %d", ordinal);
    if (gpu->trouble[0] != '\0')
        doctor_say(doctor, DOCTOR_BAD, what, "%s: %s; `nvidia-smi -q` tells more", gpu->name,
                   gpu->trouble);
    else if (gpu->major != HOPPER)
        doctor_say(doctor, DOCTOR_NOTE, what,
                   "%s, compute capability %d.%d: not used, this build is for 9.0 (Hopper)",
                   gpu->name, gpu->major, gpu->minor);
    else if (gpu->free_bytes < gpu->bytes / 10 * 9)
        doctor_say(doctor, DOCTOR_NOTE, what,
                   "%s, %.1f GiB free of %.1f: others use it, jobs that need all will not start",
                   gpu->name, (double)gpu->free_bytes / DOCTOR_GIB,
                   (double)gpu->bytes / DOCTOR_GIB);
    else
        doctor_say(doctor, DOCTOR_OK, what, "%s, %.1f GiB free of %.1f", gpu->name,
                   (double)gpu->free_bytes / DOCTOR_GIB, (double)gpu->bytes / DOCTOR_GIB);
}

static void doctor_libraries(struct doctor *doctor, const struct device_cuda_facts *facts)
{
    if (facts->cudnn < facts->cudnn_needed)
        doctor_say(doctor, DOCTOR_BAD, "cuDNN", "%zu.%zu.%zu, needed %zu.%zu.%zu: update it",
                   facts->cudnn / 10000, facts->cudnn / 100 % 100, facts->cudnn % 100,
                   facts->cudnn_needed / 10000, facts->cudnn_needed / 100 % 100,
                   facts->cudnn_needed % 100);
    else
        doctor_say(doctor, DOCTOR_OK, "cuDNN", "%zu.%zu.%zu", facts->cudnn / 10000,
                   facts->cudnn / 100 % 100, facts->cudnn % 100);
    if (facts->nvrtc)
        doctor_say(doctor, DOCTOR_OK, "NVRTC", "there: cuDNN compiles attention with it");
    else
        doctor_say(doctor, DOCTOR_NOTE, "NVRTC",
                   "libnvrtc.so.%d is not on the library path: unless cuDNN finds it elsewhere it "
                   "cannot make attention's kernels; install it or name its folder in "
                   "LD_LIBRARY_PATH",
                   facts->runtime / 1000);
    doctor_say(doctor, DOCTOR_OK, "cuBLASLt", "%zu.%zu.%zu", facts->blas / 10000,
               facts->blas / 100 % 100, facts->blas % 100);
    doctor_say(doctor, DOCTOR_OK, "NCCL", "%d.%d.%d", facts->nccl / 10000, facts->nccl / 100 % 100,
               facts->nccl % 100);
}

static void doctor_gpus(struct doctor *doctor)
{
    struct device_cuda_facts facts;
    struct err err = {0};
    char release[64]; /* the kernel module's own, "580.159.04" */
    doctor_line("/sys/module/nvidia/version", release, sizeof release);
    if (device_cuda_describe(&facts, &err) != 0) {
        doctor_say(doctor, release[0] != '\0' ? DOCTOR_BAD : DOCTOR_NOTE, "CUDA backend", "%s",
                   err.text);
        return;
    }
    if (facts.driver == 0)
        doctor_say(doctor, DOCTOR_NOTE, "driver", "none: jobs run on the CPU backend");
    else if (facts.driver < facts.runtime)
        doctor_say(doctor, DOCTOR_BAD, "driver", "%s serves CUDA %d.%d, needed %d.%d: update it",
                   release, facts.driver / 1000, facts.driver % 1000 / 10, facts.runtime / 1000,
                   facts.runtime % 1000 / 10);
    else
        doctor_say(doctor, DOCTOR_OK, "driver", "%s, CUDA %d.%d", release, facts.driver / 1000,
                   facts.driver % 1000 / 10);
    doctor_libraries(doctor, &facts);
    for (int i = 0; i < facts.gpu_count && i < DEVICE_CUDA_GPUS_MAX; i++)
        doctor_gpu(doctor, i, &facts.gpus[i]);
    if (facts.driver >= facts.runtime && facts.gpu_count == 0)
        doctor_say(doctor, DOCTOR_NOTE, "GPUs",
                   "none visible (CUDA_VISIBLE_DEVICES may hide some)");
}

/* ---- limits ---- */

static void doctor_shared_memory(struct doctor *doctor)
{
    struct statvfs shm;
    if (statvfs("/dev/shm", &shm) != 0) {
        doctor_say(doctor, DOCTOR_BAD, "/dev/shm", "is not there: ranks meet in it; mount a tmpfs");
        return;
    }
    double free_mib = (double)shm.f_bavail * (double)shm.f_frsize / DOCTOR_MIB;
    double mib = (double)shm.f_blocks * (double)shm.f_frsize / DOCTOR_MIB;
    if (free_mib < DOCTOR_SHM_MIB)
        doctor_say(doctor, free_mib < DOCTOR_SHM_MIN_MIB ? DOCTOR_BAD : DOCTOR_NOTE, "/dev/shm",
                   "%.0f MiB free of %.0f: ranks meet in it, two want %d, eight %d (in a "
                   "container: --shm-size=1g)",
                   free_mib, mib, DOCTOR_SHM_MIN_MIB, DOCTOR_SHM_MIB);
    else
        doctor_say(doctor, DOCTOR_OK, "/dev/shm", "%.0f MiB free of %.0f", free_mib, mib);
}

static void doctor_limits(struct doctor *doctor)
{
    struct rlimit lock, files;
    if (getrlimit(RLIMIT_MEMLOCK, &lock) == 0 && lock.rlim_cur != RLIM_INFINITY)
        doctor_say(doctor, DOCTOR_NOTE, "locked memory",
                   "at most %.0f MiB: enough for CUDA's own pinning, not for NCCL over InfiniBand "
                   "(ulimit -l unlimited)",
                   (double)lock.rlim_cur / DOCTOR_MIB);
    else
        doctor_say(doctor, DOCTOR_OK, "locked memory", "no limit");
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < DOCTOR_DESCRIPTORS)
        doctor_say(doctor, DOCTOR_BAD, "open files", "at most %lld: raise ulimit -n to %d",
                   (long long)files.rlim_max, DOCTOR_DESCRIPTORS);
    else
        doctor_say(doctor, DOCTOR_OK, "open files", "at most %lld", (long long)files.rlim_max);
}

/* Of the group that this command is in: a daemon that was started alike has the same. */
static void doctor_cgroup(struct doctor *doctor)
{
    struct cgroup_home home;
    cgroup_find(&home);
    if (home.path[0] != '\0')
        doctor_say(doctor, DOCTOR_OK, "control groups",
                   "a daemon started from here gives each job one, in %s", home.path);
    else
        doctor_say(doctor, DOCTOR_NOTE, "control groups",
                   "none for jobs: %s. Host memory is then not counted by job. To delegate: "
                   "Delegate=yes and DelegateSubgroup=ithacad in the daemon's systemd unit, or "
                   "start it by "
                   "`systemd-run --user --scope -p Delegate=yes ithacad`",
                   home.why);
}

static void doctor_huge_pages(struct doctor *doctor)
{
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    char line[128];
    doctor_line(path, line, sizeof line);
    if (line[0] != '\0' && strstr(line, "[never]") == NULL)
        doctor_say(doctor, DOCTOR_OK, "huge pages", "on where asked for");
    else
        doctor_say(doctor, DOCTOR_NOTE, "huge pages",
                   "off: pinned memory takes longer to start; echo madvise > %s", path);
}

/* ---- disk ---- */

/* Seconds that all pieces of the file take. */
static int doctor_disk_pass(struct offload_file *file, enum offload_file_way way, char *memory,
                            double *ret_seconds, struct err *err)
{
    int64_t start = clock_monotonic_ns();
    for (int i = 0; i < DOCTOR_DISK_PIECES + OFFLOAD_FILE_SLOTS; i++) {
        int slot = i % OFFLOAD_FILE_SLOTS;
        if (i >= OFFLOAD_FILE_SLOTS)
            TRY(offload_file_wait(file, slot, err));
        if (i < DOCTOR_DISK_PIECES)
            TRY(offload_file_start(file, slot, way, memory + (int64_t)slot * DOCTOR_DISK_PIECE,
                                   (int64_t)i * DOCTOR_DISK_PIECE, DOCTOR_DISK_PIECE, err));
    }
    *ret_seconds = (double)(clock_monotonic_ns() - start) / 1e9;
    return 0;
}

static int doctor_disk_measure(const char *path, char ret[DOCTOR_TEXT_BYTES], struct err *err)
{
    const size_t memory_bytes = (size_t)OFFLOAD_FILE_SLOTS * DOCTOR_DISK_PIECE;
    CLEANUP(mem_free_ptr) char *memory = mem_aligned(MEM_FILE_ALIGN_BYTES, memory_bytes);
    double write_s = 0, read_s = 0;
    const int64_t bytes = (int64_t)DOCTOR_DISK_PIECE * DOCTOR_DISK_PIECES;
    struct offload_file *file = NULL;
    if (memory == NULL)
        return mem_fail(err, memory_bytes, "pieces of a file");
    TRY(offload_file_open(path, bytes, &file, err));
    int rc = doctor_disk_pass(file, OFFLOAD_FILE_WRITE, memory, &write_s, err);
    if (rc == 0)
        rc = doctor_disk_pass(file, OFFLOAD_FILE_READ, memory, &read_s, err);
    if (rc == 0)
        (void)snprintf(ret, DOCTOR_TEXT_BYTES, "writes %.2f GB/s, reads %.2f GB/s (%s)",
                       (double)bytes / write_s / 1e9, (double)bytes / read_s / 1e9,
                       offload_file_how(file));
    offload_file_close(file);
    return rc;
}

static void doctor_disk(struct doctor *doctor, const char *data_dir)
{
    char rate[DOCTOR_TEXT_BYTES];
    struct statvfs disk;
    struct err err = {0};
    CLEANUP(mem_free_ptr) char *path = mem_printf("%s/doctor-%d", data_dir, (int)getpid());
    if (path == NULL || statvfs(data_dir, &disk) != 0) {
        doctor_say(doctor, DOCTOR_BAD, "disk", "%s cannot be read; --data-dir names another folder",
                   data_dir);
        return;
    }
    if (doctor_disk_measure(path, rate, &err) != 0)
        doctor_say(doctor, DOCTOR_BAD, "disk", "%s", err.text);
    else
        doctor_say(doctor, DOCTOR_OK, "disk", "%s: %.1f GiB free; %s", data_dir,
                   (double)disk.f_bavail * (double)disk.f_frsize / DOCTOR_GIB, rate);
}

static int doctor_print(json_t *said, struct err *err)
{
    CLEANUP(json_unref) json_t *page = json_pack("{s:s, s:o}", "object", "doctor", "data", said);
    CLEANUP(buf_done) struct buf text;
    buf_init(&text, DOCTOR_PAGE_BYTES);
    if (page == NULL)
        return mem_fail(err, DOCTOR_PAGE_BYTES, "a page");
    TRY(json_print_pretty(page, &text, err));
    (void)puts(buf_str(&text));
    return 0;
}

int doctor_run(const char *data_dir, bool json, struct err *err)
{
    struct doctor doctor = {.said = json ? json_array() : NULL};
    doctor_machine(&doctor);
    doctor_gpus(&doctor);
    doctor_shared_memory(&doctor);
    doctor_limits(&doctor);
    doctor_cgroup(&doctor);
    doctor_huge_pages(&doctor);
    doctor_disk(&doctor, data_dir);
    if (json)
        TRY(doctor_print(doctor.said, err));
    return doctor.bad == 0 ? 0
                           : err_set(err, ERR_UNSUPPORTED, "%d finding%s above will make jobs fail",
                                     doctor.bad, doctor.bad == 1 ? "" : "s");
}
