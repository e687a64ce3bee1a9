/* Statistics of memory, against a plain loop in long double: every type, any stride and length, all kinds of values,
   and both sets of loops. */
#include "check.h"
#include "statistics.h"
#include "statistics_kernels.h"

#include <float.h>
#include <math.h>

enum { MOST = 6000 };

static uint64_t state = 88172645463325252u;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 2685821657736338717u;
}

/* ---- what a value is, by the definition of its type ---- */

typedef struct format {
    const char *name;
    tgd_element element;
    size_t itemsize; /* of a part */
    size_t parts;
    int exponent_bits, mantissa_bits, bias;
    enum { IEEE, FN, FNUZ } kind; /* FN: all ones is NaN, no infinity; FNUZ: -0 is NaN, no infinity */
} format;

static const format formats[] = {
    {"float32", TGD_FLOAT32, 4, 1, 8, 23, 127, IEEE},
    {"float64", TGD_FLOAT64, 8, 1, 11, 52, 1023, IEEE},
    {"float16", TGD_FLOAT16, 2, 1, 5, 10, 15, IEEE},
    {"bfloat16", TGD_BFLOAT16, 2, 1, 8, 7, 127, IEEE},
    {"complex32", TGD_COMPLEX32, 2, 2, 5, 10, 15, IEEE},
    {"complex64", TGD_COMPLEX64, 4, 2, 8, 23, 127, IEEE},
    {"complex128", TGD_COMPLEX128, 8, 2, 11, 52, 1023, IEEE},
    {"float8_e4m3fn", TGD_FLOAT8_E4M3FN, 1, 1, 4, 3, 7, FN},
    {"float8_e5m2", TGD_FLOAT8_E5M2, 1, 1, 5, 2, 15, IEEE},
    {"float8_e4m3fnuz", TGD_FLOAT8_E4M3FNUZ, 1, 1, 4, 3, 8, FNUZ},
    {"float8_e5m2fnuz", TGD_FLOAT8_E5M2FNUZ, 1, 1, 5, 2, 16, FNUZ},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static uint64_t load_bits(const unsigned char *at, size_t size)
{
    uint64_t bits = 0;
    memcpy(&bits, at, size); /* little-endian, as everything that torch runs on */
    return bits;
}

static long double decode(const format *f, uint64_t bits)
{
    const uint64_t mantissa = bits & ((UINT64_C(1) << f->mantissa_bits) - 1);
    const uint64_t top = (UINT64_C(1) << f->exponent_bits) - 1;
    const uint64_t exponent = bits >> f->mantissa_bits & top;
    const bool negative = (bits >> (f->mantissa_bits + f->exponent_bits) & 1) != 0;
    if (f->kind == IEEE && exponent == top) {
        return mantissa != 0 ? (long double)NAN : negative ? -(long double)INFINITY : (long double)INFINITY;
    }
    if ((f->kind == FN && exponent == top && mantissa == (UINT64_C(1) << f->mantissa_bits) - 1) ||
        (f->kind == FNUZ && negative && exponent == 0 && mantissa == 0)) {
        return NAN;
    }
    const long double fraction = ldexpl((long double)mantissa, -f->mantissa_bits);
    const long double value = exponent == 0 ? ldexpl(fraction, 1 - f->bias)
                                            : ldexpl(1 + fraction, (int)exponent - f->bias);
    return negative ? -value : value;
}

/* ---- the reference ---- */

typedef struct reference {
    tgd_statistics s;
    long double sum, sum_imaginary, squares;
    long double scale; /* sum of magnitudes: what rounding is relative to */
} reference;

static void reference_add(reference *r, const format *f, const unsigned char *at)
{
    const long double re = decode(f, load_bits(at, f->itemsize));
    const long double im = f->parts == 2 ? decode(f, load_bits(at + f->itemsize, f->itemsize)) : 0;
    r->s.n++;
    if (isnan(re) || isnan(im)) {
        r->s.n_nan++;
        return;
    }
    if (fabsl(re) > DBL_MAX || fabsl(im) > DBL_MAX) { /* isinf() of a long double fails under valgrind */
        r->s.n_inf++;
        return;
    }
    if (re == 0 && im == 0) {
        r->s.n_zero++;
        return;
    }
    const long double tiny = ldexpl(1, 1 - f->bias);
    r->s.n_subnormal += fabsl(re) < tiny && fabsl(im) < tiny;
    r->sum += re;
    r->sum_imaginary += im;
    r->scale += fabsl(re) + fabsl(im);
    r->squares += re * re + im * im; /* the exponent of long double is wide enough */
    const double magnitude = hypot((double)re, (double)im); /* not hypotl(): wrong under valgrind */
    r->s.absmax = fmax(r->s.absmax, magnitude);
    r->s.absmin = r->s.absmin == 0 ? magnitude : fmin(r->s.absmin, magnitude);
}

static bool near(double actual, long double expected, long double tolerance)
{
    return (double)expected == actual || fabsl((long double)actual - expected) <= tolerance;
}

/* valgrind computes long double as double: neither the squares of float64 nor sums of many can then be told. */
static bool exact_reference(void)
{
    volatile long double large = 1e300L, one = 1, small = 1e-18L;
    return large * large < (long double)INFINITY && one + small != one;
}

static bool check_against(const tgd_statistics *s, const reference *r, const char *what)
{
    const long double norm = sqrtl(r->squares);
    const long double rounding = exact_reference() ? 1e-13L : 1e-11L;
    const bool norm_known = exact_reference() || (norm > 1e-140L && norm < 1e150L);
    bool ok = s->n == r->s.n && s->n_nan == r->s.n_nan && s->n_inf == r->s.n_inf && s->n_zero == r->s.n_zero &&
              s->n_subnormal == r->s.n_subnormal;
    /* Beyond double, a sum depends on the order. */
    ok = ok && (r->scale > DBL_MAX || near(s->sum, r->sum, r->scale * rounding));
    ok = ok && (r->scale > DBL_MAX || near(s->sum_imaginary, r->sum_imaginary, r->scale * rounding));
    ok = ok && (!norm_known || near(s->norm, norm, norm * rounding + 5e-324L));
    const long double ulp = exact_reference() ? 5e-16L : rounding;
    const bool least_known = exact_reference() || r->s.absmin > 1e-300;
    ok = ok && (!norm_known || near(s->absmax, r->s.absmax, (long double)r->s.absmax * ulp));
    ok = ok && (!least_known || near(s->absmin, r->s.absmin, (long double)r->s.absmin * ulp + 5e-324L));
    if (!ok) {
        printf("    %s: n %" PRIu64 "/%" PRIu64 " nan %" PRIu64 "/%" PRIu64 " inf %" PRIu64 "/%" PRIu64 " zero %" PRIu64
               "/%" PRIu64 " subnormal %" PRIu64 "/%" PRIu64 " sum %.17g/%.17Lg norm %.17g/%.17Lg max %.17g/%.17g min "
               "%.17g/%.17g\n", what, s->n, r->s.n, s->n_nan, r->s.n_nan, s->n_inf, r->s.n_inf, s->n_zero, r->s.n_zero,
               s->n_subnormal, r->s.n_subnormal, s->sum, r->sum, s->norm, norm, s->absmax, r->s.absmax, s->absmin,
               r->s.absmin);
    }
    return CHECK(ok);
}

/* ---- values ---- */

enum { NORMAL, ANY_BITS, WITH_NONFINITE, SUBNORMAL, HUGE_VALUES, MOSTLY_ZERO, STYLES };

static uint64_t random_bits(const format *f, int style)
{
    const int width = f->mantissa_bits + f->exponent_bits + 1;
    const uint64_t mask = width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1;
    const uint64_t bits = next_random() & mask;
    const uint64_t top = (UINT64_C(1) << f->exponent_bits) - 1;
    const uint64_t kept = bits & ~(top << f->mantissa_bits);
    switch (style) {
    case NORMAL:
        return kept | (uint64_t)(f->bias - (int)(next_random() % 4)) << f->mantissa_bits;
    case WITH_NONFINITE:
        return next_random() % 300 == 0 ? kept | top << f->mantissa_bits
                                        : kept | (uint64_t)f->bias << f->mantissa_bits;
    case SUBNORMAL:
        return kept;
    case HUGE_VALUES:
        return kept | (top - 1) << f->mantissa_bits;
    case MOSTLY_ZERO:
        return next_random() % 20 == 0 ? bits : next_random() % 2 == 0 || f->kind == FNUZ ? 0 : (mask >> 1) + 1;
    default:
        return bits;
    }
}

static void fill(const format *f, unsigned char *memory, size_t n, int style)
{
    for (size_t i = 0; i < n * f->parts; i++) {
        const uint64_t bits = random_bits(f, style);
        memcpy(memory + i * f->itemsize, &bits, f->itemsize);
    }
}

static void measure(const format *f, const unsigned char *memory, size_t n, const char *what)
{
    const int64_t size = (int64_t)n, stride = 1;
    const tgd_strided values = {.data = memory, .sizes = &size, .strides = &stride, .ndim = 1, .element = f->element};
    reference r = {0};
    for (size_t i = 0; i < n; i++) {
        reference_add(&r, f, memory + i * f->itemsize * f->parts);
    }
    tgd_statistics s;
    CHECK(tgd_statistics_of(&s, &values, NULL));
    check_against(&s, &r, what);
    CHECK_INT(tgd_strided_nonfinite(&values), r.s.n_nan + r.s.n_inf != 0);
}

static unsigned char *new_memory(size_t size)
{
    unsigned char *memory = malloc(size);
    if (memory == NULL) {
        exit(1);
    }
    return memory;
}

static void test_every_type_and_length(void)
{
    static const size_t lengths[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 255, 256, 1023, 1024, 1025, 2047, 2500, MOST};
    for (int portable = 0; portable < 2; portable++) {
        tgd_statistics_portable(portable != 0);
        for (size_t k = 0; k < FORMATS; k++) {
            const format *f = &formats[k];
            for (int style = 0; style < STYLES; style++) {
                for (size_t l = 0; l < sizeof lengths / sizeof lengths[0] - (check_quick() ? 1 : 0); l++) {
                    const size_t n = lengths[l], bytes = n * f->itemsize * f->parts;
                    unsigned char *memory = new_memory(bytes + 1);
                    fill(f, memory + 1, n, style); /* not aligned, and the end of the block is the end of the data */
                    char what[64];
                    snprintf(what, sizeof what, "%s style %d n %zu portable %d", f->name, style, n, portable);
                    measure(f, memory + 1, n, what);
                    free(memory);
                }
            }
        }
    }
    tgd_statistics_portable(false);
}

/* Every value there is of the types of 8 and 16 bits, alone. */
static void test_every_value(void)
{
    for (size_t k = 0; k < FORMATS; k++) {
        const format *f = &formats[k];
        if (f->itemsize > 2 || f->parts > 1) {
            continue;
        }
        const uint32_t step = check_quick() ? 17 : 1;
        for (uint32_t bits = 0; bits < 1u << (8 * f->itemsize); bits += step) {
            unsigned char memory[2];
            memcpy(memory, &bits, f->itemsize);
            char what[64];
            snprintf(what, sizeof what, "%s %#x", f->name, bits);
            measure(f, memory, 1, what);
        }
    }
}

/* An index into dimensions, and the element's place. */
static void test_shapes(void)
{
    for (int round = 0; round < (check_quick() ? 60 : 600); round++) {
        const format *f = &formats[next_random() % FORMATS];
        int64_t sizes[5], strides[5], extent = 1;
        const size_t ndim = next_random() % 6;
        int64_t order[5] = {0, 1, 2, 3, 4};
        for (size_t d = 0; d < ndim; d++) {
            const size_t other = next_random() % ndim;
            const int64_t swapped = order[d];
            order[d] = order[other];
            order[other] = swapped;
        }
        bool mixed = false;
        for (size_t d = 0; d < ndim; d++) {
            mixed = mixed || order[d] >= (int64_t)ndim;
        }
        int64_t step = 1;
        for (size_t i = 0; i < ndim; i++) {
            const size_t d = mixed ? i : (size_t)order[i];
            sizes[d] = (int64_t)(next_random() % (i == 0 ? 400 : 5)) + (next_random() % 20 != 0);
            if (next_random() % 4 == 0) {
                strides[d] = 0;
                continue;
            }
            step *= next_random() % 3 == 0 ? 2 : 1;
            strides[d] = step;
            step *= sizes[d] > 0 ? sizes[d] : 1;
        }
        uint64_t n = 1;
        for (size_t d = 0; d < ndim; d++) {
            n *= (uint64_t)sizes[d];
            extent += sizes[d] > 0 ? (sizes[d] - 1) * strides[d] : 0;
        }
        unsigned char *memory = new_memory((size_t)extent * f->itemsize * f->parts);
        fill(f, memory, (size_t)extent, (int)(next_random() % STYLES));
        reference r = {0};
        for (uint64_t i = 0; i < n; i++) {
            uint64_t rest = i;
            int64_t at = 0;
            for (size_t d = ndim; d-- > 0;) {
                at += (int64_t)(rest % (uint64_t)sizes[d]) * strides[d];
                rest /= (uint64_t)sizes[d];
            }
            reference_add(&r, f, memory + (size_t)at * f->itemsize * f->parts);
        }
        const tgd_strided values = {memory, sizes, strides, ndim, f->element, false, false};
        tgd_statistics s;
        CHECK(tgd_statistics_of(&s, &values, NULL));
        char what[64];
        snprintf(what, sizeof what, "%s round %d", f->name, round);
        check_against(&s, &r, what);
        CHECK_INT(tgd_strided_nonfinite(&values), r.s.n_nan + r.s.n_inf != 0);
        free(memory);
    }
}

static void test_too_many_dimensions(void)
{
    int64_t ones[TGD_MOST_DIMENSIONS + 1];
    for (size_t d = 0; d < sizeof ones / sizeof *ones; d++) {
        ones[d] = 1;
    }
    const float x = 3;
    tgd_strided values = {&x, ones, ones, TGD_MOST_DIMENSIONS + 1, TGD_FLOAT32, false, false};
    tgd_statistics s = {.n = 77};
    CHECK(!tgd_statistics_of(&s, &values, NULL));
    CHECK_INT(s.n, 77);
    CHECK(!tgd_strided_nonfinite(&values));
    values.ndim--;
    CHECK(tgd_statistics_of(&s, &values, NULL) && s.sum == 3);
}

static tgd_statistics of_f64(const double *x, size_t n)
{
    const int64_t size = (int64_t)n, stride = 1;
    const tgd_strided values = {x, &size, &stride, 1, TGD_FLOAT64, false, false};
    tgd_statistics s;
    CHECK(tgd_statistics_of(&s, &values, NULL));
    return s;
}

/* The norm where no square can be told. */
static void test_norm_has_the_range_of_its_value(void)
{
    CHECK(fabs(of_f64((double[]){3e200, 4e200}, 2).norm / 5e200 - 1) < 1e-15);
    CHECK(fabs(of_f64((double[]){3e-200, 4e-200}, 2).norm / 5e-200 - 1) < 1e-15);
    CHECK(of_f64((double[]){3e-200, 4e200, 1}, 3).norm == 4e200);
    CHECK(of_f64((double[]){3e-200, 4}, 2).norm == 4);
    CHECK(isinf(of_f64((double[]){DBL_MAX, DBL_MAX}, 2).norm));
    CHECK(of_f64((double[]){DBL_MIN / 4}, 1).norm == DBL_MIN / 4);
    const float small[] = {3e-30f, -4e-30f};
    const int64_t size = 2, stride = 1;
    tgd_statistics s;
    CHECK(tgd_statistics_of(&s, &(tgd_strided){small, &size, &stride, 1, TGD_FLOAT32, false, false}, NULL));
    CHECK(fabs(s.norm / 5e-30 - 1) < 1e-6);
}

static void test_negated_and_conjugated(void)
{
    const float x[] = {1, 2, 3, 5};
    const int64_t size = 2, stride = 1;
    tgd_strided values = {x, &size, &stride, 1, TGD_COMPLEX64, false, true};
    tgd_statistics s;
    CHECK(tgd_statistics_of(&s, &values, NULL) && s.sum == 4 && s.sum_imaginary == -7);
    values.negated = true;
    CHECK(tgd_statistics_of(&s, &values, NULL) && s.sum == -4 && s.sum_imaginary == 7);
    values.conjugated = false;
    CHECK(tgd_statistics_of(&s, &values, NULL) && s.sum == -4 && s.sum_imaginary == -7);
}

static void backwards(size_t n, void (*work)(void *context, size_t i), void *context)
{
    while (n-- > 0) {
        work(context, n);
    }
}

/* The same bits in whatever order the pieces are done, and with either set of loops. */
static void test_sums_do_not_depend_on_threads_or_processor(void)
{
    const size_t n = check_quick() ? 0 : (1u << 20) + 12345;
    float *x = (float *)(void *)new_memory((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(int64_t)next_random() * 1e-19f;
    }
    const int64_t size = (int64_t)n, stride = 1;
    const tgd_strided values = {x, &size, &stride, 1, TGD_FLOAT32, false, false};
    tgd_statistics a, b, c;
    CHECK(tgd_statistics_of(&a, &values, NULL));
    CHECK(tgd_statistics_of(&b, &values, backwards));
    tgd_statistics_portable(true);
    CHECK(tgd_statistics_of(&c, &values, NULL));
    tgd_statistics_portable(false);
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    CHECK(memcmp(&a, &c, sizeof a) == 0);
    CHECK_INT(a.n, n);
    free(x);
}

static void test_add(void)
{
    const double x[] = {0, 3, -4, 12, INFINITY, NAN, DBL_MIN / 2};
    const tgd_statistics all = of_f64(x, 7);
    for (size_t cut = 0; cut <= 7; cut++) {
        tgd_statistics s = of_f64(x, cut);
        const tgd_statistics rest = of_f64(x + cut, 7 - cut);
        tgd_statistics_add(&s, &rest);
        CHECK(s.n == 7 && s.n_nan == 1 && s.n_inf == 1 && s.n_zero == 1 && s.n_subnormal == 1);
        CHECK(s.sum == all.sum && s.norm == 13 && s.absmax == 12 && s.absmin == DBL_MIN / 2);
    }
    CHECK(tgd_statistics_mean(&all) == 11 / 5.0);
    CHECK(fabs(tgd_statistics_rms(&all) - 13 / sqrt(5)) < 1e-15);
    const tgd_statistics none = of_f64(x + 4, 2);
    CHECK(tgd_statistics_mean(&none) == 0 && tgd_statistics_rms(&none) == 0 && none.absmax == 0 && none.absmin == 0);
}

CHECK_MAIN(TEST(test_every_type_and_length), TEST(test_every_value), TEST(test_shapes), TEST(test_too_many_dimensions),
           TEST(test_norm_has_the_range_of_its_value), TEST(test_negated_and_conjugated),
           TEST(test_sums_do_not_depend_on_threads_or_processor), TEST(test_add))
