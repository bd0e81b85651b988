/* shm_room: a piece of shared memory in which the ranks of one machine meet, for coll_shm.
 *
 * Every rank has a slot of two halves. Work goes in rounds:
 *
 *     shm_room_turn(room);                       the next round, the other half
 *     memcpy(shm_room_half(room, room->rank), ...);
 *     TRY(shm_room_meet(room, err));             all have written
 *     memcpy(..., shm_room_half(room, peer), ...);
 *
 * Rounds alternate between the halves, so one meeting a round is enough: whoever arrives at round k
 * has read all of round k-1; after the meeting of round k-1 the half of round k-2 is free. */
#pragma once
#include "common/err.h"
#include "common/limits.h"

#include <stddef.h>
#include <stdint.h>

struct coll_shm_config;
struct shm_header;

/* What a rank is about to do in a round, so that ranks that differ find out. */
struct shm_note {
    uint32_t kind;  /* of call */
    uint32_t dtype; /* enum dtype */
    int64_t count;  /* elements */
};

struct shm_room {
    struct shm_header *header; /* the mapping; NULL outside */
    size_t map_bytes;          /* of the mapping */
    int64_t half_bytes;        /* of half a slot: the largest piece; whole cache lines */
    int rank, world;
    int numbers[LIMIT_RANKS]; /* what errors call the ranks */
    int64_t timeout_ms;       /* of entering and of each call */
    int64_t deadline_ns;      /* monotonic, of the running call */
    uint32_t round;           /* the current round; its lowest bit picks the half */
    int spins;                /* looks before sleeping */
};

enum { SHM_ROOM_LINE = 64 }; /* bytes of a cache line; halves start on one */

/* Returns when all ranks are in; the object's name is gone then. On failure nothing is left, except
 * by ranks that were killed: the keeper unlinks that. */
int shm_room_enter(struct shm_room *room, const struct coll_shm_config *config, struct err *err);
void shm_room_leave(struct shm_room *room); /* fine on a room that was never entered */

void shm_room_start_clock(struct shm_room *room); /* deadline_ns = now + timeout_ms */
void shm_room_turn(struct shm_room *room);
char *shm_room_half(const struct shm_room *room, int rank); /* of the current round */
struct shm_note *shm_room_note(const struct shm_room *room, int rank);

/* What this rank wrote before it arrived, all may read once they have awaited. ERR_COLL_TIMEOUT
 * names the ranks that have not arrived, ERR_COLL_ABORTED the one that aborted or whose process has
 * ended. */
void shm_room_arrive(struct shm_room *room); /* without waiting */
int shm_room_await(struct shm_room *room, struct err *err);
int shm_room_meet(struct shm_room *room, struct err *err);        /* both */
int shm_room_check(const struct shm_room *room, struct err *err); /* ERR_COLL_ABORTED or 0 */

/* Releases every rank that waits, now and later. From any thread and in signal handlers. */
void shm_room_abort(struct shm_room *room);
