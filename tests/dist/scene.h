/* scene: ranks as forked processes, for the tests of coll_shm and shm_room. A rank plays its part
 * and says what it thinks of it by its exit status; its complaint goes to stderr.
 *
 *     scene_play(&(struct scene){.world = 3, .timeout_ms = 400, .victim = -1, .play = play_x}); */
#pragma once
#include "common/mem.h"
#include "tests/lib/cmocka.h"
#include "worker/coll.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD_MAX = 8, SLOT = 16384 };

struct scene {
    int world;
    int64_t timeout_ms;
    int victim; /* rank of which the others must hear, or -1 */
    int (*play)(const struct scene *scene, struct coll *coll); /* 0: as it should be */
};

static char scene_name[64]; /* of the shared memory; main fills it */

#define EXPECT(condition)                                                                     \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            (void)fprintf(stderr, "rank %d: %s:%d: %s: %s\n", coll->rank, __FILE__, __LINE__, \
                          #condition, err.text);                                              \
            return 1;                                                                         \
        }                                                                                     \
    } while (0)

static int scene_rank(const struct scene *scene, int rank)
{
    struct err err = {0};
    struct coll *coll = NULL;
    const struct coll_shm_config config = {.name = scene_name,
                                           .rank = rank,
                                           .world = scene->world,
                                           .timeout_ms = scene->timeout_ms,
                                           .slot_bytes = SLOT};
    if (coll_shm_open(&config, &coll, &err) != 0) {
        (void)fprintf(stderr, "rank %d: %s\n", rank, err.text);
        return 2;
    }
    int rc = scene->play(scene, coll);
    coll->ops->close(coll);
    if (mem_live() != 0) {
        (void)fprintf(stderr, "rank %d: %lld blocks leaked\n", rank, (long long)mem_live());
        return 3;
    }
    return rc;
}

static bool scene_name_is_gone(void)
{
    char path[128];
    (void)snprintf(path, sizeof path, "/dev/shm%s", scene_name);
    return access(path, F_OK) != 0;
}

static void scene_fork(const struct scene *scene, pid_t *pids)
{
    (void)fflush(NULL);
    for (int rank = 0; rank < scene->world; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            _exit(scene_rank(scene, rank));
        assert_true(pids[rank] > 0);
    }
}

/* Whether the others end with 0; the victim is put out of its misery. */
static bool scene_wait(const struct scene *scene, const pid_t *pids)
{
    bool good = true;
    for (int rank = 0; rank < scene->world; rank++) {
        int status = 0;
        if (rank == scene->victim)
            continue;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        if (status != 0)
            (void)fprintf(stderr, "world %d: rank %d: status %#x\n", scene->world, rank, status);
        good = good && status == 0;
    }
    if (scene->victim >= 0) {
        (void)kill(pids[scene->victim], SIGKILL);
        assert_int_equal(waitpid(pids[scene->victim], NULL, 0), pids[scene->victim]);
    }
    assert_true(scene_name_is_gone());
    return good;
}

static bool scene_is_good(const struct scene *scene)
{
    pid_t pids[WORLD_MAX];
    scene_fork(scene, pids);
    return scene_wait(scene, pids);
}

static void scene_play(const struct scene *scene)
{
    assert_true(scene_is_good(scene));
}
