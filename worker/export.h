/* export: the tuned model as a Hugging Face folder in the base's layout (model_writer.h),
 * config.json, the tokenizer's files and the licence copied from it byte for byte. Built beside its
 * place and renamed, so it is whole or absent, and no file of an earlier export is left.
 *
 * With adapters (`lora.export`): `merged`, the same, with them added to the base's weights;
 * `adapter`, PEFT's two files beside the tokenizer's; `both`, the former with the latter in its
 * folder "adapter". */
#pragma once
#include "common/err.h"

struct rank;

/* To <job folder>/model. All ranks call it: units are gathered one by one, rank 0 writes. */
int export_model(struct rank *rank, struct err *err);
/* A checkpoint of any number of ranks, by one process; out_dir must not be there yet. Host memory:
 * a few MiB, and a layer's adapters. */
int export_checkpoint(const char *dir, const char *model_dir, const char *out_dir, struct err *err);
