/* dtype: element types, their sizes and names, and conversions of single values. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(id, bytes, safetensors name) */
#define DTYPE_TABLE(X) \
    X(F32, 4, "F32")   \
    X(BF16, 2, "BF16") \
    X(F16, 2, "F16")   \
    X(F64, 8, "F64")   \
    X(I32, 4, "I32")   \
    X(I64, 8, "I64")   \
    X(U8, 1, "U8")

enum dtype {
#define X(id, bytes, name) DTYPE_##id,
    DTYPE_TABLE(X)
#undef X
        DTYPE_COUNT
};

size_t dtype_bytes(enum dtype dtype);
const char *dtype_name(enum dtype dtype);
enum dtype dtype_parse(const char *name); /* DTYPE_COUNT when unknown */

float dtype_bf16_to_f32(uint16_t bits);
uint16_t dtype_f32_to_bf16(float value); /* round to nearest even; NaN stays NaN */
float dtype_f16_to_f32(uint16_t bits);
uint16_t dtype_f32_to_f16(float value); /* round to nearest even; overflow to infinity */

/* count elements of a floating dtype to or from fp32. */
void dtype_to_f32(enum dtype from, const void *source, float *ret, size_t count);
void dtype_from_f32(enum dtype to, const float *source, void *ret, size_t count);

#ifdef __cplusplus
}
#endif
