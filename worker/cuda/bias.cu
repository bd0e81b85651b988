/* bias: one thread an element of C. Runs for products with k = 0 and for biases of fp32 results,
 * which no model has in its steps: simple, not fast. */
#include "worker/cuda/bias.h"

#include "worker/cuda/kernel.h"

static __global__ void bias_kernel(struct ops_gemm args)
{
    int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= args.m * args.n * args.batch)
        return;
    int64_t column = index % args.n, row = index / args.n % args.m,
            matrix = index / args.n / args.m;
    int64_t at = matrix * args.stride_c + row * args.ldc + column;
    float value = args.bias == nullptr
                      ? 0.0f
                      : bf16_wide(((const bf16 *)args.bias)[matrix * args.stride_bias + column]);
    if (args.accumulate)
        value += args.c_f32 ? ((float *)args.c)[at] : bf16_wide(((bf16 *)args.c)[at]);
    if (args.c_f32)
        ((float *)args.c)[at] = value;
    else
        ((bf16 *)args.c)[at] = (bf16)bf16_pair(value, 0);
}

int bias_lay(struct stream *stream, const struct ops_gemm *args, struct err *err)
{
    int64_t blocks = ceil_div(args->m * args->n * args->batch, 256);
    bias_kernel<<<(unsigned)blocks, 256, 0, stream->cuda>>>(*args);
    return KERNEL_CHECK("bias");
}
