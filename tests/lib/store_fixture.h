/* store_fixture: a store in a folder in memory, and jobs in it. For cmocka programs. */
#pragma once
#include "common/io.h"
#include "common/mem.h"
#include "daemon/job_fsm.h"
#include "daemon/store.h"
#include "daemon/store_sql.h"
#include "tests/lib/cmocka.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct fixture {
    char dir[64];
    struct store *store;
    struct err err;
};

static inline int setup(void **state)
{
    struct fixture *f = mem_new(1, sizeof *f);
    (void)snprintf(f->dir, sizeof f->dir, "/dev/shm/ithaca-store-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    OK(f, store_open(f->dir, &f->store, &f->err));
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    store_close(f->store);
    OK(f, io_remove_tree(f->dir, &f->err));
    mem_free(f);
    assert_int_equal(mem_live(), 0);
    return 0;
}

static inline void add_job(struct fixture *f, int n, const char *metadata)
{
    char id[64], event_id[64], spec[256];
    (void)snprintf(id, sizeof id, "ftjob-%d", n);
    (void)snprintf(event_id, sizeof event_id, "ftevent-%d", n);
    (void)snprintf(spec, sizeof spec, "{\"model\":\"tiny\",\"metadata\":%s}", metadata);
    const struct store_job job = {.id = id,
                                  .created_ms = 1000 + n,
                                  .owner = "admin",
                                  .spec_json = spec,
                                  .model = "tiny",
                                  .model_dir = "/models/tiny",
                                  .training_file = "file-a",
                                  .validation_file = "",
                                  .priority = n,
                                  .ranks = 2};
    int64_t row = 0;
    OK(f, store_job_insert(f->store, &job, event_id, &row, &f->err));
    assert_true(row > 0);
}

struct ids {
    char text[512];
    int count;
};

static inline int collect_job(void *context, const struct store_job *job, struct err *err)
{
    struct ids *ids = context;
    (void)snprintf(ids->text + strlen(ids->text), sizeof ids->text - strlen(ids->text), "%s ",
                   job->id + strlen("ftjob-"));
    ids->count++;
    return 0;
}
