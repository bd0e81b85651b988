/* launch_local: the environment is built by a list of names and prefixes, so that no secret in the
 * daemon's environment reaches code that reads users' files. */
#include "daemon/launch_local.h"

#include "common/io.h"
#include "common/launch_plan.h"
#include "common/mem.h"
#include "common/must.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LAUNCH_LOG_BYTES = 64 << 10 }; /* of a child that ends badly */

/* A name ends with '=', a prefix with '_'. */
static const char *const launch_passed[] = {
    "PATH=",         "HOME=",
    "LANG=",         "TZ=",
    "TMPDIR=",       "LD_LIBRARY_PATH=",
    "ASAN_OPTIONS=", "UBSAN_OPTIONS=",
    "TSAN_OPTIONS=", "LC_",
    "OMP_",          "GOMP_",
    "OPENBLAS_",     "CUDA_",
    "NCCL_",         "ITHACA_WORKER_",
};

/* Has the list a variable of this one's name? */
static bool launch_has(const char *const *variables, size_t count, const char *variable)
{
    size_t length = strcspn(variable, "=") + 1;
    for (size_t i = 0; i < count; i++)
        if (strncmp(variables[i], variable, length) == 0)
            return true;
    return false;
}

void launch_local_environment(const char *const *own, size_t own_count,
                              const char *ret_variables[LAUNCH_ENVIRONMENT_MAX + 1])
{
    must(own_count <= LAUNCH_ENVIRONMENT_MAX);
    size_t count = 0;
    while (count < own_count) {
        ret_variables[count] = own[count];
        count++;
    }
    for (char **variable = environ; *variable != NULL && count < LAUNCH_ENVIRONMENT_MAX;
         variable++) {
        bool passed = false;
        for (size_t i = 0; i < sizeof launch_passed / sizeof launch_passed[0]; i++)
            passed |= strncmp(*variable, launch_passed[i], strlen(launch_passed[i])) == 0;
        if (passed && !launch_has(own, own_count, *variable))
            ret_variables[count++] = *variable;
    }
    ret_variables[count] = NULL;
}

int launch_local_worker(struct host *host, const char *const *argv, const char *output_path,
                        host_exit_fn *on_exit, void *context, struct host_process **ret_process,
                        struct host_identity *ret_identity, struct err *err)
{
    const char *environment[LAUNCH_ENVIRONMENT_MAX + 1];
    launch_local_environment(NULL, 0, environment);
    const struct host_spawn spawn = {.argv = argv,
                                     .envp = environment,
                                     .output_path = output_path,
                                     .on_exit = on_exit,
                                     .context = context};
    return host->ops->spawn(host, &spawn, ret_process, ret_identity, err);
}

int launch_local_failed(const char *what, const char *log_path, const struct host_exit *ended,
                        enum err_code code, struct err *err)
{
    CLEANUP(buf_done) struct buf log;
    struct err unread;
    buf_init(&log, LAUNCH_LOG_BYTES);
    (void)io_read_file(log_path, LAUNCH_LOG_BYTES, &log, &unread); /* may be empty, or absent */
    buf_drop_newlines(&log);
    const char *line = strrchr(buf_str(&log), '\n');
    const char *said = strchr(line != NULL ? line : buf_str(&log), ' '); /* after its name */
    if (said != NULL)
        return err_set(err, code, "%s: %.800s", what, said + 1);
    return err_set(err, code, "%s: the process ended with %s %d", what,
                   ended->signal != 0 ? "signal" : "status",
                   ended->signal != 0 ? ended->signal : ended->status);
}

int launch_local_start(struct host *host, const struct launch_local *launch,
                       struct host_process **ret_keeper, struct host_identity *ret_identity,
                       struct err *err)
{
    CLEANUP(mem_free_ptr) char *plan_path = io_join(launch->attempt_dir, "plan.json");
    CLEANUP(mem_free_ptr) char *log_path = io_join(launch->attempt_dir, "keeper.log");
    if (plan_path == NULL || log_path == NULL)
        return mem_fail(err, strlen(launch->attempt_dir), "a path");
    TRY(io_make_dirs(launch->attempt_dir, 0700, err));
    TRY(io_write_file(plan_path, launch->plan_text, launch->plan_length, 0600, err));
    const char *const argv[] = {launch->worker_program, "--keep", launch->attempt_dir, NULL};
    return launch_local_worker(host, argv, log_path, launch->on_exit, launch->context, ret_keeper,
                               ret_identity, err);
}

void launch_local_clean(const struct launch_plan *plan)
{
    if (plan->shm_name[0] != '\0')
        (void)shm_unlink(plan->shm_name); /* mostly gone already */
}
