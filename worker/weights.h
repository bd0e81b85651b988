/* weights: a model folder's tensors into the shards of fsdp, each rank reading only its own.
 *
 * Every tensor of the shape must be there with its shape; others are ignored, but for an lm_head
 * beside tied embeddings: one that differs from the embedding is refused, for the folder says two
 * things (field case R18). */
#pragma once
#include "common/err.h"
#include "worker/fsdp.h"

int weights_load(struct fsdp *fsdp, const char *model_dir, struct stream *stream, struct err *err);
/* Checks names, shapes and the tied head without reading more than that head. */
struct safetensors;
int weights_check(const struct model_shape *shape, const struct safetensors *st,
                  const char *model_dir, struct err *err);
