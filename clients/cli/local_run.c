/* local_run: a launch plan in a temporary folder, and a keeper as a child; see local_run.h. */
#include "clients/cli/local_run.h"

#include "clients/cli/cli.h"
#include "common/cores.h"
#include "common/exit_report.h"
#include "common/io.h"
#include "common/mem.h"
#include "common/time_rates.h"
#include "common/worker_program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RUN_COLL_TIMEOUT_MS = 300000,
    RUN_HEARTBEAT_MS = 60000,
    RUN_GPUS_MAX = LIMIT_RANKS,
    RUN_PATH_BYTES = 64
};

enum mem_backend local_run_backend(void)
{
    return io_exists("/dev/nvidia0") ? MEM_BACKEND_CUDA : MEM_BACKEND_CPU;
}

int64_t local_run_devices(enum mem_backend backend)
{
    if (backend == MEM_BACKEND_CPU)
        return cores_allowed();
    int64_t count = 0;
    char path[RUN_PATH_BYTES];
    do
        (void)snprintf(path, sizeof path, "/dev/nvidia%lld", (long long)count);
    while (io_exists(path) && ++count < RUN_GPUS_MAX);
    return count;
}

/* What follows `key` and a colon in a file of lines; "" where there is none. */
static void run_line(const char *path, const char *key, char ret[LOCAL_RUN_NAME_BYTES])
{
    char line[512];
    FILE *file = fopen(path, "re");
    ret[0] = '\0';
    while (file != NULL && ret[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || colon == NULL)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        (void)snprintf(ret, LOCAL_RUN_NAME_BYTES, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    if (file != NULL)
        (void)fclose(file); /* read only */
}

void local_run_device_name(enum mem_backend backend, char ret[LOCAL_RUN_NAME_BYTES])
{
    static const char gpus[] = "/proc/driver/nvidia/gpus";
    char path[LIMIT_PATH_BYTES];
    ret[0] = '\0';
    if (backend == MEM_BACKEND_CPU) {
        run_line("/proc/cpuinfo", "model name", ret);
        return;
    }
    DIR *stream = opendir(gpus);
    const struct dirent *entry;
    while (stream != NULL && ret[0] == '\0' && (entry = readdir(stream)) != NULL) {
        (void)snprintf(path, sizeof path, "%s/%s/information", gpus, entry->d_name);
        run_line(path, "Model", ret);
    }
    if (stream != NULL)
        (void)closedir(stream); /* read only */
}

/* A folder of its own, for all that the run leaves. */
static int run_folder(char **ret, struct err *err)
{
    const char *temporary = cli_environment("TMPDIR");
    char *path = mem_printf("%s/ithaca-run-XXXXXX", temporary != NULL ? temporary : "/tmp");
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (mkdtemp(path) == NULL) {
        int rc = err_set_errno(err, errno, "%s", path);
        mem_free(path);
        return rc;
    }
    *ret = path;
    return 0;
}

/* The first GPUs, of those that CUDA_VISIBLE_DEVICES names where it is set. */
static void run_gpus(struct launch_plan *plan)
{
    const char *visible = cli_environment("CUDA_VISIBLE_DEVICES");
    for (uint32_t rank = 0; rank < plan->world; rank++) {
        size_t length = visible != NULL ? strcspn(visible, ",") : 0;
        if (length > 0)
            (void)snprintf(plan->gpus[rank], sizeof plan->gpus[rank], "%.*s", (int)length, visible);
        else
            (void)snprintf(plan->gpus[rank], sizeof plan->gpus[rank], "%u", rank);
        if (visible != NULL)
            visible += length + (visible[length] == ',');
    }
}

static int run_fill(struct local_run *run, enum mem_backend backend, struct err *err)
{
    struct launch_plan *plan = &run->plan;
    char name[LOCAL_RUN_NAME_BYTES];
    int64_t devices = local_run_devices(backend), ranks = job_spec_slots(&plan->spec);
    plan->device = backend == MEM_BACKEND_CPU ? LAUNCH_CPU : LAUNCH_CUDA;
    if (plan->device == LAUNCH_CUDA && devices < ranks)
        return err_set_field(err, ERR_DOES_NOT_FIT, "ithaca.gpus",
                             "%lld GPUs are asked for and this machine has %lld", (long long)ranks,
                             (long long)devices);
    plan->threads = plan->device == LAUNCH_CPU && devices > ranks ? (uint32_t)(devices / ranks) : 1;
    run_gpus(plan);
    local_run_device_name(backend, name);
    plan->peak_flops = (int64_t)time_rates_card_peak(name);
    (void)snprintf(plan->job_id, sizeof plan->job_id, "local-%d", (int)getpid());
    (void)snprintf(plan->shm_name, sizeof plan->shm_name, "/ithaca-local-%d", (int)getpid());
    (void)snprintf(plan->model_name, sizeof plan->model_name, "%s", plan->spec.model);
    TRY(run_folder(&plan->job_dir, err));
    plan->model_dir = mem_strdup(plan->job_dir);
    return plan->model_dir != NULL ? 0 : mem_fail(err, LIMIT_PATH_BYTES, "a path");
}

int local_run_open(struct local_run *run, enum launch_purpose purpose, enum mem_backend backend,
                   const struct job_spec *spec, struct err *err)
{
    *run = (struct local_run){.plan = {.attempt = 1,
                                       .purpose = purpose,
                                       .world = (uint32_t)job_spec_slots(spec),
                                       .heartbeat_limit_ms = RUN_HEARTBEAT_MS,
                                       .coll_timeout_ms = RUN_COLL_TIMEOUT_MS,
                                       .spec = *spec}};
    run->plan.spec.metadata = NULL;
    int rc = worker_program_find(cli_environment("ITHACA_WORKER"), &run->worker, err);
    if (rc == 0)
        rc = run_fill(run, backend, err);
    if (rc != 0)
        local_run_done(run);
    return rc;
}

void local_run_done(struct local_run *run)
{
    struct err unremoved; /* a temporary folder: nothing depends on it */
    if (run->plan.job_dir != NULL)
        (void)io_remove_tree(run->plan.job_dir, &unremoved);
    if (run->plan.shm_name[0] != '\0')
        (void)shm_unlink(run->plan.shm_name); /* mostly gone already */
    launch_plan_done(&run->plan);
    mem_free(run->worker);
    *run = (struct local_run){0};
}

/* In the child: the keeper, which stops its ranks should we end before it. */
__attribute__((noreturn)) static void run_become_keeper(const struct local_run *run,
                                                        const char *attempt, pid_t parent)
{
    const char *const argv[] = {"ithaca-worker", "--keep", attempt, NULL};
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent && null >= 0 &&
        dup2(null, STDOUT_FILENO) >= 0)
        (void)execv(run->worker, (char *const *)(uintptr_t)argv);
    (void)fprintf(stderr, "%s: %s\n", run->worker, strerror(errno));
    _exit(127);
}

static volatile sig_atomic_t run_interrupted;

static void run_on_interrupt(int signal_number)
{
    run_interrupted = signal_number;
}

/* Until the keeper has ended; an interrupt stops it and its ranks first. */
static int run_wait(pid_t pid, int *ret_status, struct err *err)
{
    struct sigaction interrupt = {.sa_handler = run_on_interrupt}, before;
    int rc = 0;
    run_interrupted = 0;
    (void)sigaction(SIGINT, &interrupt, &before); /* fails for bad numbers only */
    while (waitpid(pid, ret_status, 0) < 0 && rc == 0) {
        if (errno != EINTR)
            rc = err_set_errno(err, errno, "the keeper");
        else if (run_interrupted != 0)
            (void)kill(pid, SIGTERM); /* unreaped: it is there */
    }
    (void)sigaction(SIGINT, &before, NULL);
    if (rc == 0 && run_interrupted != 0)
        rc = err_set(err, ERR_CANCELLED, "interrupted");
    return rc;
}

static int run_keeper(const struct local_run *run, const char *attempt, int *ret_status,
                      struct err *err)
{
    if (access(run->worker, X_OK) != 0)
        return err_set(err, ERR_RANK_START, "%s: %s", run->worker, strerror(errno));
    (void)fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return err_set_errno(err, errno, "fork");
    if (pid == 0)
        run_become_keeper(run, attempt, parent);
    return run_wait(pid, ret_status, err);
}

/* Whether all ranks ended well. The keeper does only where they do: what it left says why not. */
static int run_outcome(const char *attempt, int keeper_status, struct err *err)
{
    struct exit_report report;
    CLEANUP(mem_free_ptr) char *path = io_join(attempt, "exit.json");
    if (path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a path");
    if (keeper_status != 0 && !io_exists(path))
        return err_set(err, ERR_RANK_START, "the keeper of the ranks ended with status %#x",
                       keeper_status);
    TRY(exit_report_read(path, &report, err));
    if (report.first_failed < 0)
        return 0;
    const struct exit_rank *rank = &report.ranks[report.first_failed];
    const char *words = rank->last_words[0] != '\0' ? rank->last_words : "it left no last words";
    return err_set(err, ERR_RANK_DIED, "rank %d ended with %s %d: %s", report.first_failed,
                   rank->signal != 0 ? "signal" : "status",
                   rank->signal != 0 ? rank->signal : rank->exit_status, words);
}

int local_run_start(struct local_run *run, struct err *err)
{
    CLEANUP(json_unref) json_t *json = launch_plan_json(&run->plan);
    CLEANUP(mem_free_ptr) char *attempt = launch_plan_attempt_dir(&run->plan);
    CLEANUP(mem_free_ptr) char *path = attempt == NULL ? NULL : io_join(attempt, "plan.json");
    if (json == NULL || path == NULL)
        return mem_fail(err, LIMIT_PATH_BYTES, "a launch plan");
    TRY(io_make_dirs(attempt, 0700, err));
    TRY(json_write_file(path, json, 0600, err));
    int status = 0;
    TRY(run_keeper(run, attempt, &status, err));
    return run_outcome(attempt, status, err);
}
