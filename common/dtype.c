/* dtype: conversions by bit arithmetic, so they are the same on every machine. */
#include "common/dtype.h"

#include "common/float_bits.h"
#include "common/must.h"

#include <string.h>

struct dtype_row {
    const char *name; /* as in safetensors headers */
    size_t bytes;     /* one element */
};

static const struct dtype_row dtype_rows[DTYPE_COUNT] = {
#define X(id, size, text) [DTYPE_##id] = {.name = text, .bytes = size},
    DTYPE_TABLE(X)
#undef X
};

size_t dtype_bytes(enum dtype dtype)
{
    must((unsigned)dtype < DTYPE_COUNT);
    return dtype_rows[dtype].bytes;
}

const char *dtype_name(enum dtype dtype)
{
    must((unsigned)dtype < DTYPE_COUNT);
    return dtype_rows[dtype].name;
}

enum dtype dtype_parse(const char *name)
{
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        if (strcmp(dtype_rows[dtype].name, name) == 0)
            return (enum dtype)dtype;
    return DTYPE_COUNT;
}

float dtype_bf16_to_f32(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

uint16_t dtype_f32_to_bf16(float value)
{
    uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u); /* a quiet NaN, never rounded to infinity */
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float dtype_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0x1fu)
        return float_of_bits(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0)
        return float_of_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    float subnormal = (float)mantissa * 0x1p-24f;
    return sign != 0 ? -subnormal : subnormal;
}

uint16_t dtype_f32_to_f16(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal; the addition rounds to even */
        float shifted = float_of_bits(magnitude) + 0.5f; /* 0.5 has steps of 2^-24 above it */
        return (uint16_t)(sign | (float_bits(shifted) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

/* Eight at a time, for BF16 is what files and GPUs hold: compilers vectorise this and not the loops
 * over single values. */
typedef uint16_t dtype_u16x8 __attribute__((vector_size(16)));
typedef uint32_t dtype_u32x8 __attribute__((vector_size(32)));
typedef int32_t dtype_i32x8 __attribute__((vector_size(32)));
enum { DTYPE_LANES = 8 };

static void dtype_bf16_to_f32s(const uint16_t *from, float *ret)
{
    dtype_u16x8 half;
    memcpy(&half, from, sizeof half);
    dtype_u32x8 bits = __builtin_convertvector(half, dtype_u32x8) << 16;
    memcpy(ret, &bits, sizeof bits);
}

static void dtype_f32_to_bf16s(const float *from, uint16_t *ret)
{
    dtype_u32x8 bits;
    memcpy(&bits, from, sizeof bits);
    dtype_i32x8 over = 0x7f800000 - (dtype_i32x8)(bits & 0x7fffffffu);
    dtype_u32x8 nan = (dtype_u32x8)(over >> 31); /* all ones where it is one */
    dtype_u32x8 rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    dtype_u32x8 high = ((nan & (bits | 0x400000u)) | (~nan & rounded)) >> 16;
    dtype_u16x8 half = __builtin_convertvector(high, dtype_u16x8);
    memcpy(ret, &half, sizeof half);
}

void dtype_to_f32(enum dtype from, const void *source, float *ret, size_t count)
{
    must(from == DTYPE_F32 || from == DTYPE_BF16 || from == DTYPE_F16);
    if (from == DTYPE_F32) {
        memcpy(ret, source, count * sizeof *ret);
        return;
    }
    const uint16_t *bits = source;
    size_t i = 0;
    for (; from == DTYPE_BF16 && i + DTYPE_LANES <= count; i += DTYPE_LANES)
        dtype_bf16_to_f32s(bits + i, ret + i);
    for (; i < count; i++)
        ret[i] = from == DTYPE_BF16 ? dtype_bf16_to_f32(bits[i]) : dtype_f16_to_f32(bits[i]);
}

void dtype_from_f32(enum dtype to, const float *source, void *ret, size_t count)
{
    must(to == DTYPE_F32 || to == DTYPE_BF16 || to == DTYPE_F16);
    if (to == DTYPE_F32) {
        memcpy(ret, source, count * sizeof *source);
        return;
    }
    uint16_t *bits = ret;
    size_t i = 0;
    for (; to == DTYPE_BF16 && i + DTYPE_LANES <= count; i += DTYPE_LANES)
        dtype_f32_to_bf16s(source + i, bits + i);
    for (; i < count; i++)
        bits[i] = to == DTYPE_BF16 ? dtype_f32_to_bf16(source[i]) : dtype_f32_to_f16(source[i]);
}
