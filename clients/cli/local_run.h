/* local_run: ranks started on this machine by the command line itself, without a daemon: to
 * calibrate it (cmd_calibrate.c) and to measure steps of a plan (cmd_ladder.c, cmd_plan.c).
 *
 *     TRY(local_run_open(&run, LAUNCH_CALIBRATE, MEM_BACKEND_CPU, &spec, err));
 *     rc = local_run_start(&run, err);           until all ranks have ended
 *     local_run_done(&run);                      the folder and all in it are gone
 *
 * The folder is a job's (common/launch_plan.h), the ranks are the product's own, under its keeper:
 * what is measured is what a job would do. Nobody else should run jobs meanwhile. */
#pragma once
#include "common/launch_plan.h"
#include "common/mem_plan.h"

struct local_run {
    struct launch_plan plan; /* its job_dir is a folder of its own; model_dir the same */
    char *worker;            /* program; owned */
};

/* spec: resolved; its metadata is not taken. ERR_RANK_START when no worker is found. */
int local_run_open(struct local_run *run, enum launch_purpose purpose, enum mem_backend backend,
                   const struct job_spec *spec, struct err *err);
/* A failed rank's last words are the error; ERR_CANCELLED after SIGINT. */
int local_run_start(struct local_run *run, struct err *err);
void local_run_done(struct local_run *run);

/* GPUs where there is a driver, else the CPU. */
enum mem_backend local_run_backend(void);
/* GPUs, or cores that this process may use. */
int64_t local_run_devices(enum mem_backend backend);
/* "NVIDIA H200", or the processor's name; "" where the system does not tell. */
enum { LOCAL_RUN_NAME_BYTES = 128 };
void local_run_device_name(enum mem_backend backend, char ret[LOCAL_RUN_NAME_BYTES]);
