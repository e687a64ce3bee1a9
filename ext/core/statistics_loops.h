/*
 * The loops of statistics_kernels.c that must be fast, in GCC's vector extension; included once for each instruction
 * set, with
 *   NAME(x)                     what a function is called there
 *   TARGET                      the attribute that makes the compiler use the instruction set
 *   BYTES                       the length of its vectors
 *   I32 U32 F32 I64 F64         such vectors of int32_t, uint32_t, float, int64_t, double; HALF_F32 and HALF_U16: as
 *                               many float and uint16_t as F64 and I32 have elements
 *   MAX_I32(a, b) MIN_I32 MAX_F64 MIN_F64   of two of them; which one for a NaN does not matter
 *   WIDEN(x)                    F64 from HALF_F32
 *   ADD_SQUARE(sum, x)          sum + x * x of F64, where the product is exact
 * Everywhere eight elements are taken at a time, each into a sum of its own, and the eight sums are added in the same
 * order, so that every instruction set gives the same bits.
 */

enum {
    NAME(I32_PARTS) = 32 / BYTES, /* vectors for eight elements */
    NAME(F64_PARTS) = 64 / BYTES,
    NAME(I32_LANES) = BYTES / 4,
    NAME(F64_LANES) = BYTES / 8
};
#define I32_PARTS NAME(I32_PARTS)
#define F64_PARTS NAME(F64_PARTS)
#define I32_LANES NAME(I32_LANES)
#define F64_LANES NAME(F64_LANES)

/* x[0..n) */
TARGET static void NAME(block_f32)(const float *x, size_t n, int32_t tiny, tgd_block_f32 *out)
{
    F64 sum[F64_PARTS] = {{0}}, square[F64_PARTS] = {{0}};
    I32 zero[I32_PARTS] = {{0}}, small[I32_PARTS] = {{0}}, hi[I32_PARTS] = {{0}}, lo[I32_PARTS];
    const I32 magnitude = (I32){0} + INT32_MAX, limit = (I32){0} + tiny;
    UNROLL for (int k = 0; k < I32_PARTS; k++) {
        lo[k] = magnitude;
    }
    float rest[8] = {0};
    for (size_t i = 0; i < n; i += 8) {
        const float *at = x + i;
        if (n - i < 8) {
            memcpy(rest, at, (n - i) * sizeof *rest);
            at = rest;
        }
        UNROLL for (int k = 0; k < I32_PARTS; k++) {
            I32 bits;
            memcpy(&bits, at + k * I32_LANES, sizeof bits);
            const I32 a = bits & magnitude;
            const I32 is_zero = a == 0;
            zero[k] -= is_zero;
            small[k] -= a < limit;
            hi[k] = MAX_I32(hi[k], a);
            lo[k] = MIN_I32(lo[k], a | (is_zero & magnitude));
        }
        UNROLL for (int k = 0; k < F64_PARTS; k++) {
            HALF_F32 single;
            memcpy(&single, at + k * F64_LANES, sizeof single);
            const F64 d = WIDEN(single);
            sum[k] += d;
            square[k] = ADD_SQUARE(square[k], d);
        }
    }
    /* Out of the registers: what is indexed by a variable must not keep the loop's own in memory. */
    F64 sums[F64_PARTS], squares[F64_PARTS];
    I32 zeros[I32_PARTS], smalls[I32_PARTS], his[I32_PARTS], los[I32_PARTS];
    UNROLL for (int k = 0; k < F64_PARTS; k++) {
        sums[k] = sum[k];
        squares[k] = square[k];
    }
    UNROLL for (int k = 0; k < I32_PARTS; k++) {
        zeros[k] = zero[k];
        smalls[k] = small[k];
        his[k] = hi[k];
        los[k] = lo[k];
    }
    const uint32_t padding = (8 - n % 8) % 8;
    out->sum = add_eight(sums);
    out->squares = add_eight(squares);
    out->n_zero = count_eight(zeros) - padding;
    out->n_small = count_eight(smalls) - padding;
    out->hi = largest_of_eight(his);
    out->lo = smallest_of_eight(los);
}

TARGET static void NAME(block_f64)(const double *x, size_t n, tgd_block_f64 *out)
{
    F64 sum[F64_PARTS] = {{0}}, square[F64_PARTS] = {{0}}, hi[F64_PARTS] = {{0}}, lo[F64_PARTS];
    I64 zero[F64_PARTS] = {{0}};
    const I64 magnitude = (I64){0} + INT64_MAX, infinity = (I64){0} + INFINITY_F64;
    UNROLL for (int k = 0; k < F64_PARTS; k++) {
        lo[k] = (F64)infinity;
    }
    double rest[8] = {0};
    for (size_t i = 0; i < n; i += 8) {
        const double *at = x + i;
        if (n - i < 8) {
            memcpy(rest, at, (n - i) * sizeof *rest);
            at = rest;
        }
        UNROLL for (int k = 0; k < F64_PARTS; k++) {
            F64 d;
            memcpy(&d, at + k * F64_LANES, sizeof d);
            const I64 a = (I64)d & magnitude;
            const I64 is_zero = a == 0;
            zero[k] -= is_zero;
            hi[k] = MAX_F64(hi[k], (F64)a);
            lo[k] = MIN_F64(lo[k], (F64)(a | (is_zero & infinity)));
            sum[k] += d;
            square[k] += d * d;
        }
    }
    F64 sums[F64_PARTS], squares[F64_PARTS], his[F64_PARTS], los[F64_PARTS];
    I64 zeros[F64_PARTS];
    UNROLL for (int k = 0; k < F64_PARTS; k++) {
        sums[k] = sum[k];
        squares[k] = square[k];
        zeros[k] = zero[k];
        his[k] = hi[k];
        los[k] = lo[k];
    }
    int64_t z[8];
    double h[8], l[8];
    memcpy(z, zeros, sizeof z);
    memcpy(h, his, sizeof h);
    memcpy(l, los, sizeof l);
    out->sum = add_eight(sums);
    out->squares = add_eight(squares);
    out->n_zero = 0 - (uint64_t)(8 - n % 8) % 8;
    out->hi = 0;
    out->lo = INFINITY;
    for (int k = 0; k < 8; k++) {
        out->n_zero += (uint64_t)z[k];
        out->hi = h[k] > out->hi ? h[k] : out->hi;
        out->lo = l[k] < out->lo ? l[k] : out->lo;
    }
}

TARGET static bool NAME(nonfinite_f32)(const float *x, size_t n)
{
    I32 hi[2] = {{0}};
    const I32 magnitude = (I32){0} + INT32_MAX;
    size_t i = 0;
    for (; i + 2 * I32_LANES <= n; i += 2 * I32_LANES) {
        UNROLL for (int k = 0; k < 2; k++) {
            I32 bits;
            memcpy(&bits, x + i + k * I32_LANES, sizeof bits);
            bits &= magnitude;
            hi[k] = MAX_I32(hi[k], bits);
        }
    }
    int32_t most = 0;
    for (int k = 0; k < I32_LANES; k++) {
        most = hi[0][k] > most ? hi[0][k] : most;
        most = hi[1][k] > most ? hi[1][k] : most;
    }
    for (; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    return most >= TGD_INFINITY_F32;
}

TARGET static bool NAME(nonfinite_f64)(const double *x, size_t n)
{
    I64 any = {0};
    size_t i = 0;
    for (; i + F64_LANES <= n; i += F64_LANES) {
        F64 d;
        memcpy(&d, x + i, sizeof d);
        any |= d - d != 0;
    }
    int64_t found = 0;
    for (int k = 0; k < F64_LANES; k++) {
        found |= any[k];
    }
    for (; i < n; i++) {
        double d;
        memcpy(&d, x + i, sizeof d);
        found |= !isfinite(d);
    }
    return found != 0;
}

/* Subnormal numbers come out by a subtraction, so that none is met on the way. */
TARGET static void NAME(widen_16)(float *to, const uint16_t *from, size_t n, int shift, int32_t rebias, int32_t special)
{
    const I32 least = (I32){0} + (rebias + (1 << 23));
    uint16_t rest[I32_LANES] = {0};
    for (size_t i = 0; i < n; i += I32_LANES) {
        const uint16_t *at = from + i;
        const size_t m = n - i < I32_LANES ? n - i : I32_LANES;
        if (m < I32_LANES) {
            memcpy(rest, at, m * sizeof *rest);
            at = rest;
        }
        HALF_U16 half;
        memcpy(&half, at, sizeof half);
        const U32 bits = __builtin_convertvector(half, U32);
        I32 value = (I32)((bits & 0x7FFF) << shift);
        if (rebias != 0) {
            const I32 is_subnormal = value < (1 << 23), is_special = value >= special;
            const I32 subnormal = (I32)((F32)(value + least) - (F32)least);
            value += rebias + (is_special & rebias);
            value = (value & ~is_subnormal) | (subnormal & is_subnormal);
        }
        value |= (I32)((bits & 0x8000) << 16);
        if (m < I32_LANES) {
            memcpy(to + i, &value, m * sizeof *to);
        } else {
            memcpy(to + i, &value, sizeof value);
        }
    }
}

static const tgd_kernels NAME(kernels) = {NAME(block_f32), NAME(block_f64), NAME(nonfinite_f32), NAME(nonfinite_f64),
                                          NAME(widen_16)};

#undef I32_PARTS
#undef F64_PARTS
#undef I32_LANES
#undef F64_LANES
