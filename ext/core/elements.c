#include "elements.h"

#include <float.h>
#include <string.h>

static const tgd_element_type types[] = {
    [TGD_FLOAT32] = {.itemsize = 4, .parts = 1, .tiny = FLT_MIN},
    [TGD_FLOAT64] = {.itemsize = 8, .parts = 1, .wide = true, .tiny = DBL_MIN},
    [TGD_FLOAT16] = {.itemsize = 2, .parts = 1, .shift = 13, .rebias = 112 << 23, .special = 0x7C00, .tiny = 0x1p-14},
    [TGD_BFLOAT16] = {.itemsize = 2, .parts = 1, .shift = 16, .special = 0x7F80, .tiny = FLT_MIN},
    [TGD_COMPLEX32] = {.itemsize = 2, .parts = 2, .shift = 13, .rebias = 112 << 23, .special = 0x7C00, .tiny = 0x1p-14},
    [TGD_COMPLEX64] = {.itemsize = 4, .parts = 2, .tiny = FLT_MIN},
    [TGD_COMPLEX128] = {.itemsize = 8, .parts = 2, .wide = true, .tiny = DBL_MIN},
    [TGD_FLOAT8_E4M3FN] = {.itemsize = 1, .parts = 1, .shift = 20, .rebias = 120 << 23, .special = 0x7F,
                           .tiny = 0x1p-6},
    [TGD_FLOAT8_E5M2] = {.itemsize = 1, .parts = 1, .shift = 21, .rebias = 112 << 23, .special = 0x7C, .tiny = 0x1p-14},
    [TGD_FLOAT8_E4M3FNUZ] = {.itemsize = 1, .parts = 1, .shift = 20, .rebias = 119 << 23, .special = 0x80,
                             .tiny = 0x1p-7},
    [TGD_FLOAT8_E5M2FNUZ] = {.itemsize = 1, .parts = 1, .shift = 21, .rebias = 111 << 23, .special = 0x80,
                             .tiny = 0x1p-15},
};

const tgd_element_type *tgd_element_type_of(tgd_element element)
{
    return &types[element];
}

static float from_bits(int32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int32_t to_bits(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* As widen_16. The kinds without a negative zero have their one NaN in its place. */
static void widen_8(float *to, const uint8_t *from, size_t n, const tgd_element_type *type)
{
    for (size_t i = 0; i < n; i++) {
        const int32_t magnitude = from[i] & 0x7F, sign = from[i] >= 0x80 ? INT32_MIN : 0;
        int32_t bits = magnitude << type->shift;
        if (type->special == 0x80 ? from[i] == 0x80 : magnitude >= type->special) {
            const bool infinite = type->special == 0x7C && magnitude == 0x7C;
            bits = TGD_INFINITY_F32 | (infinite ? 0 : 1 << 22);
        } else if (bits < 1 << 23) {
            const int32_t least = type->rebias + (1 << 23);
            bits = to_bits(from_bits(bits + least) - from_bits(least));
        } else {
            bits += type->rebias;
        }
        to[i] = from_bits(bits | sign);
    }
}

/* ---- runs ---- */

bool tgd_elements_run(tgd_block_sink *s, const void *memory, uint64_t n)
{
    const tgd_element_type *type = s->type;
    const char *data = memory;
    const size_t step = TGD_BLOCK / type->parts, itemsize = (size_t)type->itemsize * type->parts;
    float widened[TGD_BLOCK];
    for (uint64_t i = 0; i < n; i += step, data += step * itemsize) {
        const size_t m = n - i < step ? (size_t)(n - i) : step;
        const void *block = data;
        if (type->itemsize == 2) {
            s->kernels->widen_16(widened, (const uint16_t *)block, m * type->parts, type->shift, type->rebias,
                           type->special << type->shift);
            block = widened;
        } else if (type->itemsize == 1) {
            widen_8(widened, (const uint8_t *)data, m, type);
            block = widened;
        }
        if (s->take(s, block, m)) {
            return true;
        }
    }
    return false;
}

/* ---- shapes ---- */

static uint64_t distance(int64_t stride)
{
    return stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
}

bool tgd_shape_simplify(tgd_shape *out, const tgd_strided *v)
{
    if (v->ndim > TGD_MOST_DIMENSIONS) {
        return false;
    }
    out->ndim = 0;
    out->n = out->repeat = 1;
    for (size_t d = v->ndim; d-- > 0;) {
        const uint64_t size = (uint64_t)v->sizes[d];
        const int64_t stride = v->strides[d];
        if (size == 1) {
            continue;
        }
        if (stride == 0 && size != 0) {
            out->repeat *= size;
            continue;
        }
        out->n *= size;
        size_t at = out->ndim++;
        for (; at > 0 && distance(out->strides[at - 1]) > distance(stride); at--) {
            out->sizes[at] = out->sizes[at - 1];
            out->strides[at] = out->strides[at - 1];
        }
        out->sizes[at] = size;
        out->strides[at] = stride;
    }
    size_t kept = 0;
    for (size_t d = 1; d < out->ndim; d++) {
        if (out->strides[d] == out->strides[kept] * (int64_t)out->sizes[kept]) {
            out->sizes[kept] *= out->sizes[d];
        } else {
            kept++;
            out->sizes[kept] = out->sizes[d];
            out->strides[kept] = out->strides[d];
        }
    }
    out->ndim = out->ndim == 0 ? 0 : kept + 1;
    return true;
}

bool tgd_shape_dense(const tgd_shape *shape)
{
    return shape->ndim == 0 || (shape->ndim == 1 && shape->strides[0] == 1);
}

static void copy_element(char *to, const char *from, size_t itemsize)
{
    switch (itemsize) {
    case 1:
        *to = *from;
        break;
    case 2:
        memcpy(to, from, 2);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    case 8:
        memcpy(to, from, 8);
        break;
    default:
        memcpy(to, from, 16);
        break;
    }
}

/* Long runs are read where they are, all else is first gathered in
   a buffer. */
bool tgd_elements_walk(tgd_block_sink *s, const void *memory, const tgd_shape *shape)
{
    const size_t itemsize = (size_t)s->type->itemsize * s->type->parts;
    if (shape->n == 0) {
        return false;
    }
    const char *data = memory;
    if (tgd_shape_dense(shape)) {
        return tgd_elements_run(s, data, shape->n);
    }
    _Alignas(32) char buffer[TGD_BLOCK * 8];
    const size_t room = TGD_BLOCK * 8 / 16;
    const uint64_t inner = shape->sizes[0];
    const bool direct = shape->strides[0] == 1 && inner >= 256;
    const int64_t step = shape->strides[0] * (int64_t)itemsize;
    uint64_t index[TGD_MOST_DIMENSIONS] = {0};
    size_t filled = 0;
    for (;;) {
        if (direct) {
            if (tgd_elements_run(s, data, inner)) {
                return true;
            }
        } else {
            const char *at = data;
            for (uint64_t i = 0; i < inner; i++, at += step) {
                copy_element(buffer + filled * itemsize, at, itemsize);
                if (++filled == room) {
                    if (tgd_elements_run(s, buffer, filled)) {
                        return true;
                    }
                    filled = 0;
                }
            }
        }
        size_t d = 1;
        for (; d < shape->ndim; d++) {
            data += shape->strides[d] * (int64_t)itemsize;
            if (++index[d] < shape->sizes[d]) {
                break;
            }
            data -= shape->strides[d] * (int64_t)(itemsize * shape->sizes[d]);
            index[d] = 0;
        }
        if (d == shape->ndim) {
            return tgd_elements_run(s, buffer, filled);
        }
    }
}
