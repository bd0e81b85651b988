/* plan_command: what plan, ladder and calibrate understand of the command line. No daemon is asked:
 * shapes come from the table of published models, from a model folder, or are built in; rates from
 * the calibration in the data folder, or a table. Legal values that are not served yet are planned,
 * and said to be. */
#pragma once
#include "clients/cli/cli.h"
#include "common/buf.h"
#include "common/mem_estimate.h"

enum { PLAN_TEXT_BYTES = 1 << 20 };

struct plan_command {
    json_t *job;
    struct job_spec spec;
    struct model_shape shape;
    struct mem_ask ask;      /* of them */
    struct time_rates rates; /* the ask's */
    bool longest;            /* --max-seq-len, and the next two: of plan alone */
    bool buffers;            /* --buffers */
    bool timeline;           /* --timeline */
    bool automatic;          /* --auto */
    bool run;                /* --run */
    int64_t steps;           /* --steps: of a run */
};

int plan_command_read(struct cli *cli, struct plan_command *command, struct err *err);
void plan_command_done(struct plan_command *command);
/* 3145728, 3072K or 3M; *ret stays when it is not given. */
int plan_command_number(struct cli *cli, const char *option, int64_t *ret, struct err *err);
/* --memory and --host-memory; *ret_card: the text of --memory, "" without. */
int plan_command_memory(struct cli *cli, struct mem_ask *ask, const char **ret_card,
                        struct err *err);
/* The shape of a published model, the built-in one, or of a folder with a config.json. */
int plan_command_shape(const char *name, struct model_shape *ret, struct err *err);
/* --backend; *ret stays when it is not given. */
void plan_command_backend(struct cli *cli, enum mem_backend *ret);
