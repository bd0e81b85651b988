/* offload_private: what the files of offload share. */
#pragma once
#include "worker/offload.h"

/* One stream waits for what another has been given so far. */
int offload_follow(struct offload *offload, struct stream *ahead, struct stream *behind,
                   struct err *err);
/* A copy, counted. */
int offload_copy(struct offload *offload, struct stream *stream, void *to, const void *from,
                 int64_t bytes, struct err *err);
/* Bytes [from, from + bytes) of a place to memory at hand, on the stream that comes in. */
int offload_fetch(struct offload *offload, const struct offload_place *place, int64_t from,
                  void *to, int64_t bytes, struct err *err);
