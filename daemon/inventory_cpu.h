/* inventory_cpu: the ranks this machine can run at once on the CPU backend.
 *
 * By default a slot a core that the process may use, but at least two: a job of two ranks is the
 * smallest that shows the whole road, and two ranks on one core are slow, not wrong. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct inventory {
    int64_t cores; /* cores the process may use */
    int64_t slots; /* ranks that may run at once */
    int64_t taken; /* slots of jobs that have processes, or are about to */
};

/* slots 0: the default. */
void inventory_cpu_init(struct inventory *inventory, int64_t slots);
int64_t inventory_free_slots(const struct inventory *inventory);
void inventory_take(struct inventory *inventory, int64_t ranks); /* must fit */
void inventory_give(struct inventory *inventory, int64_t ranks);
/* OpenMP threads of each rank of a job: cores / ranks, at least 1. */
int64_t inventory_threads(const struct inventory *inventory, int64_t ranks);
