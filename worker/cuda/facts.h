/* facts: versions of what the CUDA backend stands on, and the GPUs there are
 * (worker/device_cuda.h). */
#pragma once
#include "worker/device_cuda.h"

void facts_describe(struct device_cuda_facts *ret);
/* Whether NVRTC can be loaded, without which cuDNN has no engine for attention. */
bool facts_nvrtc(void);
