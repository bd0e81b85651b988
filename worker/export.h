/* export: the tuned model as a Hugging Face folder: model.safetensors in the base's element type,
 * config.json and the tokenizer's files copied from the base. Built beside its place and renamed to
 * <job folder>/model, so it is whole or absent. */
#pragma once
#include "common/err.h"

struct rank;

/* All ranks call it: units are gathered one by one, rank 0 writes. */
int export_model(struct rank *rank, struct err *err);
