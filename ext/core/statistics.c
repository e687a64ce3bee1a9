#include "elements.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- adding up ---- */

/* What is known of some elements so far. Squares of very large and very small float64 are kept apart, scaled, as in
   Blue's algorithm for the norm. */
typedef struct partial {
    uint64_t n, n_nan, n_inf, n_zero, n_subnormal;
    double sum, sum_imaginary;
    double squares, squares_large, squares_small;
    double hi, lo; /* magnitudes of finite elements; lo is infinite where there is none but zeros */
} partial;

static const double large = 0x1p480, small = 0x1p-480, scale_down = 0x1p-600, scale_up = 0x1p600;

/* Neither is NaN. Unlike fmax() and fmin(), no call. */
static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static void merge(partial *p, const partial *other)
{
    p->n += other->n;
    p->n_nan += other->n_nan;
    p->n_inf += other->n_inf;
    p->n_zero += other->n_zero;
    p->n_subnormal += other->n_subnormal;
    p->sum += other->sum;
    p->sum_imaginary += other->sum_imaginary;
    p->squares += other->squares;
    p->squares_large += other->squares_large;
    p->squares_small += other->squares_small;
    p->hi = larger(p->hi, other->hi);
    p->lo = smaller(p->lo, other->lo);
}

static double norm_of(const partial *p)
{
    if (p->squares_large > 0) {
        return sqrt(p->squares_large + p->squares * scale_down * scale_down) * scale_up;
    }
    if (p->squares_small > 0) {
        return p->squares > 0 ? sqrt(p->squares + p->squares_small * scale_down * scale_down)
                              : sqrt(p->squares_small) * scale_down;
    }
    return sqrt(p->squares);
}

/* One element at a time: complex ones, and float64 that the fast loop cannot take. n elements of 1 or 2 parts. */
static void add_carefully(partial *p, const double *x, size_t n, size_t parts, double tiny)
{
    for (size_t i = 0; i < n; i++) {
        double re, im = 0;
        memcpy(&re, x + i * parts, sizeof re);
        if (parts == 2) {
            memcpy(&im, x + i * 2 + 1, sizeof im);
        }
        if (!isfinite(re) || !isfinite(im)) {
            const bool nan = isnan(re) || isnan(im);
            p->n_nan += nan;
            p->n_inf += !nan;
            continue;
        }
        const double most = larger(fabs(re), fabs(im));
        if (most == 0) {
            p->n_zero++;
            continue;
        }
        p->n_subnormal += most < tiny;
        p->sum += re;
        p->sum_imaginary += im;
        double magnitude = most;
        if (most >= large) {
            const double a = re * scale_down, b = im * scale_down;
            p->squares_large += a * a + b * b;
            magnitude = parts == 2 ? hypot(re, im) : most;
        } else if (most <= small) {
            const double a = re * scale_up, b = im * scale_up;
            p->squares_small += a * a + b * b;
            magnitude = parts == 2 ? hypot(re, im) : most;
        } else {
            const double square = re * re + im * im;
            p->squares += square;
            magnitude = parts == 2 ? sqrt(square) : most;
        }
        p->hi = larger(p->hi, magnitude);
        p->lo = smaller(p->lo, magnitude);
    }
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

/* What the bits of a float32 mean, also where the processor takes subnormal numbers for zero. */
static double magnitude_of(int32_t bits)
{
    return bits < 1 << 23 ? bits * 0x1p-149 : (double)from_bits(bits);
}

static void add_f32(partial *p, const tgd_kernels *k, const float *x, size_t n, double tiny)
{
    const int32_t limit = to_bits((float)tiny);
    tgd_block_f32 block;
    k->block_f32(x, n, limit, &block);
    uint32_t n_nan = 0, n_inf = 0;
    if (block.hi >= TGD_INFINITY_F32) {
        float finite[TGD_BLOCK];
        for (size_t i = 0; i < n; i++) {
            int32_t bits;
            memcpy(&bits, &x[i], sizeof bits);
            const int32_t a = bits & INT32_MAX;
            n_nan += a > TGD_INFINITY_F32;
            n_inf += a == TGD_INFINITY_F32;
            bits = a < TGD_INFINITY_F32 ? bits : 0;
            memcpy(&finite[i], &bits, sizeof bits);
        }
        k->block_f32(finite, n, limit, &block);
    }
    p->n_nan += n_nan;
    p->n_inf += n_inf;
    p->n_zero += block.n_zero - n_nan - n_inf;
    p->n_subnormal += block.n_small - block.n_zero;
    p->sum += block.sum;
    p->squares += block.squares;
    p->hi = larger(p->hi, magnitude_of(block.hi));
    p->lo = block.lo == INT32_MAX ? p->lo : smaller(p->lo, magnitude_of(block.lo));
}

static void add_f64(partial *p, const tgd_kernels *k, const double *x, size_t n)
{
    tgd_block_f64 block;
    k->block_f64(x, n, &block);
    if (!isfinite(block.squares) || block.hi >= large || block.lo <= small) {
        add_carefully(p, x, n, 1, DBL_MIN);
        return;
    }
    p->n_zero += block.n_zero;
    p->sum += block.sum;
    p->squares += block.squares;
    p->hi = larger(p->hi, block.hi);
    p->lo = smaller(p->lo, block.lo);
}

/* ---- blocks ---- */

static bool take_all(tgd_block_sink *s, const void *x, size_t n)
{
    partial *sum = s->context;
    if (s->type->parts == 1 && !s->type->wide) {
        add_f32(sum, s->kernels, x, n, s->type->tiny);
    } else if (s->type->parts == 1) {
        add_f64(sum, s->kernels, x, n);
    } else if (s->type->wide) {
        add_carefully(sum, x, n, 2, s->type->tiny);
    } else {
        float narrow[TGD_BLOCK];
        double wide[TGD_BLOCK];
        memcpy(narrow, x, 2 * n * sizeof *narrow);
        for (size_t i = 0; i < 2 * n; i++) {
            wide[i] = (double)narrow[i];
        }
        add_carefully(sum, wide, n, 2, s->type->tiny);
    }
    sum->n += n;
    return false;
}

static bool take_nonfinite(tgd_block_sink *s, const void *x, size_t n)
{
    n *= s->type->parts;
    return s->type->wide ? s->kernels->nonfinite_f64(x, n) : s->kernels->nonfinite_f32(x, n);
}

/* ---- all of it ---- */

enum { MOST_PIECES = 64 };
static const uint64_t least_piece = 1u << 17, worth_spreading = 1u << 20;

/* One dense run cut into pieces by its length alone, so that the sums do not depend on the threads. */
typedef struct pieces {
    const char *data;
    uint64_t n, length;
    const tgd_kernels *kernels;
    const tgd_element_type *type;
    partial sums[MOST_PIECES];
} pieces;

static void measure_piece(void *context, size_t i)
{
    pieces *all = context;
    const uint64_t start = i * all->length, rest = all->n - start;
    tgd_block_sink s = {.take = take_all, .context = &all->sums[i], .kernels = all->kernels, .type = all->type};
    const uint64_t itemsize = (uint64_t)all->type->itemsize * all->type->parts;
    tgd_elements_run(&s, all->data + start * itemsize, rest < all->length ? rest : all->length);
}

static void measure_dense(partial *sum, const tgd_strided *v, uint64_t n, tgd_statistics_spread spread)
{
    pieces all = {.data = v->data, .n = n, .kernels = tgd_kernels_choose(),
                  .type = tgd_element_type_of(v->element)};
    all.length = n / MOST_PIECES + 1 > least_piece ? n / MOST_PIECES + 1 : least_piece;
    all.length = (all.length + TGD_BLOCK - 1) / TGD_BLOCK * TGD_BLOCK;
    const size_t count = (size_t)((n + all.length - 1) / all.length);
    for (size_t i = 0; i < count; i++) {
        all.sums[i] = (partial){.lo = INFINITY};
    }
    if (spread != NULL && n >= worth_spreading) {
        spread(count, measure_piece, &all);
    } else {
        for (size_t i = 0; i < count; i++) {
            measure_piece(&all, i);
        }
    }
    for (size_t i = 0; i < count; i++) {
        merge(sum, &all.sums[i]);
    }
}

bool tgd_statistics_of(tgd_statistics *out, const tgd_strided *values, tgd_statistics_spread spread)
{
    tgd_shape shape;
    if (!tgd_shape_simplify(&shape, values)) {
        return false;
    }
    partial sum = {.lo = INFINITY};
    if (tgd_shape_dense(&shape) && shape.n > least_piece) {
        measure_dense(&sum, values, shape.n, spread);
    } else {
        tgd_block_sink s = {.take = take_all, .context = &sum, .kernels = tgd_kernels_choose(),
                      .type = tgd_element_type_of(values->element)};
        tgd_elements_walk(&s, values->data, &shape);
    }
    const uint64_t repeat = shape.repeat;
    const double times = (double)repeat, sign = values->negated ? -1 : 1;
    *out = (tgd_statistics){
        .n = sum.n * repeat,
        .n_nan = sum.n_nan * repeat,
        .n_inf = sum.n_inf * repeat,
        .n_zero = sum.n_zero * repeat,
        .n_subnormal = sum.n_subnormal * repeat,
        .sum = sum.sum * times * sign + 0.0,
        .sum_imaginary = sum.sum_imaginary * times * (values->conjugated ? -sign : sign) + 0.0,
        .norm = norm_of(&sum) * (repeat == 1 ? 1 : sqrt(times)),
        .absmax = sum.hi,
        .absmin = isfinite(sum.lo) ? sum.lo : 0,
    };
    return true;
}

bool tgd_strided_nonfinite(const tgd_strided *values)
{
    tgd_shape shape;
    if (!tgd_shape_simplify(&shape, values)) {
        return false;
    }
    tgd_block_sink s = {.take = take_nonfinite, .kernels = tgd_kernels_choose(),
                  .type = tgd_element_type_of(values->element)};
    return tgd_elements_walk(&s, values->data, &shape);
}

void tgd_statistics_add(tgd_statistics *sum, const tgd_statistics *other)
{
    const bool none = sum->absmin == 0 || (other->absmin != 0 && other->absmin < sum->absmin);
    sum->absmin = none ? other->absmin : sum->absmin;
    sum->absmax = larger(sum->absmax, other->absmax);
    sum->norm = hypot(sum->norm, other->norm);
    sum->n += other->n;
    sum->n_nan += other->n_nan;
    sum->n_inf += other->n_inf;
    sum->n_zero += other->n_zero;
    sum->n_subnormal += other->n_subnormal;
    sum->sum += other->sum;
    sum->sum_imaginary += other->sum_imaginary;
}

double tgd_statistics_rms(const tgd_statistics *s)
{
    const uint64_t n = tgd_statistics_finite(s);
    return n == 0 ? 0 : s->norm / sqrt((double)n);
}
