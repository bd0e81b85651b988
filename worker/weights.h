/* weights: a model folder's tensors into the shards of fsdp, each rank reading only its own: host
 * memory is a chunk of a few MiB a rank, whatever the model's size and the number of ranks.
 *
 * Every tensor of the shape must be there with its shape and an element type we read, and none
 * beside, but for buffers that old files carry (rotary_emb.inv_freq) and a tied model's lm_head. */
#pragma once
#include "common/err.h"
#include "worker/fsdp.h"

int weights_load(struct fsdp *fsdp, const char *model_dir, struct stream *stream, struct err *err);

/* Random ones instead, the same for any number of ranks within a chunk: to measure steps of a model
 * that is not there. */
int weights_random(struct fsdp *fsdp, struct stream *stream, struct err *err);

/* Names, shapes and types; reads no tensor. */
struct safetensors;
int weights_check(const struct model_shape *shape, const struct safetensors *st,
                  const char *model_dir, struct err *err);
/* An lm_head beside tied embeddings that differs from the embedding is refused, for the folder says
 * two things (field case R18). Reads both where there are two. After weights_check. */
int weights_check_tied(const struct model_shape *shape, const struct safetensors *st,
                       const char *model_dir, struct err *err);
/* All of it for a folder, config.json included: what can be known before a job holds a device. */
int weights_check_folder(const char *model_dir, struct err *err);
