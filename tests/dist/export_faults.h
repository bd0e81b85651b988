/* export_faults: exports whose calls fail, one after another. */
#pragma once
#include "tests/dist/train_scene.h"
#include "worker/export.h"

/* Whatever write or allocation fails, an export leaves nothing, and the next one succeeds. */
static inline int export_faults_walk(struct rank *rank, const char *checkpoint, bool memory,
                                     struct err *err)
{
    const char *job_dir = rank->plan->job_dir;
    CLEANUP(mem_free_ptr) char *model = io_join(job_dir, "model");
    CLEANUP(mem_free_ptr) char *temp = io_join(job_dir, "model.tmp");
    int64_t blocks = mem_live(), failed = 0, late = 0;
    int rc = -1;
    for (; rc != 0; failed++) {
        (memory ? mem_fault_after : io_fault_after)(failed + 1);
        rc = checkpoint != NULL ? export_checkpoint(checkpoint, rank->plan->model_dir, model, err)
                                : export_model(rank, err);
        mem_fault_after(0);
        io_fault_after(0);
        if (rc != 0 && rc != (memory ? -ERR_NOMEM : -ERR_NO_SPACE))
            return err_wrap(err, rc, "fault %" PRId64 ": ", failed);
        late += rc != 0 && io_exists(model); /* the last: the sync of where it appeared */
        if (mem_live() != blocks || io_exists(temp) || late > 1)
            return err_set(err, ERR_INTERNAL, "fault %" PRId64 " left something", failed);
        if (rc != 0)
            TRY(io_remove_tree(model, err));
    }
    printf("%" PRId64 " faults\n", failed - 1);
    TRY(io_remove_tree(model, err));
    return failed > 5 ? 0 : err_set(err, ERR_INTERNAL, "too few faults");
}

/* The part of a rank whose model was trained or loaded: exports of it and of a checkpoint. */
static inline int export_faults_play(struct rank *rank, void *context, struct err *err)
{
    TRY(checkpoint_save(rank, err));
    CLEANUP(mem_free_ptr) char *dir = checkpoint_dir(rank->plan->job_dir, 0);
    for (int memory = 0; memory < 2; memory++) {
        TRY(export_faults_walk(rank, NULL, memory, err));
        TRY(export_faults_walk(rank, dir, memory, err));
    }
    return 0;
}
