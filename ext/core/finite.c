#include "finite.h"

#include <string.h>

enum { WHOLE = 4096, TURNS = 16, MOST_DIMENSIONS = 64, UNROLLED = 4, HEAD = 16, ON_CPU = 0 };
enum { FLOAT16 = 5, FLOAT32 = 6, FLOAT64 = 7, COMPLEX32 = 8, COMPLEX64 = 9, COMPLEX128 = 10, BFLOAT16 = 15 };

/* A floating point type as its bits: not finite where the exponent is all ones. */
typedef struct number_class {
    uint64_t magnitude; /* all bits but the signs, for each number in a word of 64 bits */
    uint64_t carry;     /* added to the magnitudes, it moves exponents of all ones up into the signs */
    uint64_t exponent;  /* of one number */
    unsigned bytes;
} number_class;

static const number_class doubles = {0x7FFFFFFFFFFFFFFF, 0x0010000000000000, 0x7FF0000000000000, 8};
static const number_class floats = {0x7FFFFFFF7FFFFFFF, 0x0080000000800000, 0x7F800000, 4};
static const number_class halves = {0x7FFF7FFF7FFF7FFF, 0x0400040004000400, 0x7C00, 2};
static const number_class brains = {0x7FFF7FFF7FFF7FFF, 0x0080008000800080, 0x7F80, 2};

/* The real numbers behind a dtype (c10::ScalarType); NULL where it is none that can be read. */
static const number_class *class_of(const tgd_torch_tensor_info *tensor)
{
    switch (tensor->dtype) {
    case FLOAT32:
    case COMPLEX64:
        return &floats;
    case FLOAT64:
    case COMPLEX128:
        return &doubles;
    case FLOAT16:
    case COMPLEX32:
        return &halves;
    case BFLOAT16:
        return &brains;
    default:
        return NULL;
    }
}

/* Its elements without their repetitions: where they lie and how many there are. */
typedef struct extent {
    int64_t sizes[MOST_DIMENSIONS], strides[MOST_DIMENSIONS]; /* strides in elements, outermost (largest) first */
    int ndim;
    int64_t numel, repeats;
    bool dense; /* the elements fill one piece of memory */
} extent;

/* Dimensions by stride; those of one element or stride 0 are left out. False: they cannot be told, or reach out of
   the storage. */
static bool measure(const tgd_torch_tensor_info *tensor, extent *out)
{
    int64_t last = tensor->storage_offset;
    *out = (extent){.ndim = 0, .numel = 1, .repeats = 1};
    for (int i = 0; i < tensor->ndim; i++) {
        int64_t size = tensor->sizes[i], stride = tensor->strides[i];
        if (size < 0 || stride < 0) {
            return false;
        }
        if (size == 0) {
            out->numel = 0;
            return true;
        }
        if (size == 1) {
            continue;
        }
        if (stride == 0) {
            out->repeats *= size;
            continue;
        }
        int at = out->ndim++;
        for (; at > 0 && out->strides[at - 1] < stride; at--) {
            out->sizes[at] = out->sizes[at - 1];
            out->strides[at] = out->strides[at - 1];
        }
        out->sizes[at] = size;
        out->strides[at] = stride;
        out->numel *= size;
        last += (size - 1) * stride;
    }
    int64_t expected = 1;
    out->dense = true;
    for (int i = out->ndim; i-- > 0;) {
        out->dense = out->dense && out->strides[i] == expected;
        expected *= out->sizes[i];
    }
    return tensor->storage_offset >= 0 && ((uint64_t)last + 1) * tensor->itemsize <= tensor->storage_bytes;
}

bool tgd_finite_readable(const tgd_torch_tensor_info *tensor)
{
    const uint32_t foreign =
        TGD_TENSOR_SUBCLASS | TGD_TENSOR_WRAPPER | TGD_TENSOR_NESTED | TGD_TENSOR_SYMBOLIC | TGD_TENSOR_META;
    extent lies;
    return (tensor->flags & TGD_TENSOR_HAS_STORAGE) && !(tensor->flags & foreign) && tensor->strides != NULL &&
           tensor->ndim >= 0 && tensor->ndim <= MOST_DIMENSIONS && class_of(tensor) != NULL &&
           tensor->device_type == ON_CPU && measure(tensor, &lies) &&
           (tensor->data != 0 || lies.numel == 0);
}

static uint64_t word_at(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Is any of n numbers side by side not finite? Bounded by the memory: 8 bytes at a time, in four chains. */
static bool any(const char *at, size_t n, const number_class *type)
{
    size_t bytes = n * type->bytes, i = 0;
    const uint64_t magnitude = type->magnitude, carry = type->carry;
    uint64_t seen[UNROLLED] = {0};
    for (; i + UNROLLED * 8 <= bytes; i += UNROLLED * 8) {
        for (int k = 0; k < UNROLLED; k++) {
            seen[k] |= (word_at(at + i + k * 8) & magnitude) + carry;
        }
    }
    for (; i + 8 <= bytes; i += 8) {
        seen[0] |= (word_at(at + i) & magnitude) + carry;
    }
    if (i < bytes) {
        uint64_t word = 0;
        memcpy(&word, at + i, bytes - i);
        seen[0] |= (word & magnitude) + carry;
    }
    return ((seen[0] | seen[1] | seen[2] | seen[3]) & ~magnitude) != 0;
}

/* Where the k-th row of the innermost dimension begins, in elements. */
static int64_t row_offset(const extent *lies, int64_t k)
{
    int64_t offset = 0;
    for (int i = lies->ndim - 1; i-- > 0;) {
        offset += k % lies->sizes[i] * lies->strides[i];
        k /= lies->sizes[i];
    }
    return offset;
}

typedef struct reader {
    const extent *lies;
    const number_class *type;
    const char *first;
    size_t itemsize;
    size_t parts; /* numbers in an element: 2 if it is complex */
} reader;

/* One row: elements from..to of the innermost dimension. */
static bool any_in_row(const reader *r, int64_t offset, int64_t from, int64_t to)
{
    int64_t stride = r->lies->ndim == 0 ? 1 : r->lies->strides[r->lies->ndim - 1];
    if (stride == 1) {
        return any(r->first + (size_t)(offset + from) * r->itemsize, (size_t)(to - from) * r->parts, r->type);
    }
    for (int64_t i = from; i < to; i++) {
        if (any(r->first + (size_t)(offset + i * stride) * r->itemsize, r->parts, r->type)) {
            return true;
        }
    }
    return false;
}

static bool any_in_rows(const reader *r, int64_t row, int64_t step, int64_t n_rows, int64_t to)
{
    for (; row < n_rows; row += step) {
        if (any_in_row(r, row_offset(r->lies, row), 0, to)) {
            return true;
        }
    }
    return false;
}

/* The head of every slice of the outermost dimension, and the first of these slices in full; then a share of all. */
static bool sampled(const reader *r, unsigned turn)
{
    const extent *lies = r->lies;
    int64_t inner = lies->sizes[lies->ndim - 1], n_rows = lies->numel / inner;
    int64_t per_slice = n_rows / (lies->ndim > 1 ? lies->sizes[0] : 1);
    if (lies->ndim > 1) {
        for (int64_t k = 0; k < lies->sizes[0]; k++) {
            if (any_in_row(r, k * lies->strides[0], 0, inner < HEAD ? inner : HEAD)) {
                return true;
            }
        }
    }
    /* row_offset() counts from the inside: the first rows are those of the first slice. */
    if (lies->ndim > 1 && any_in_rows(r, 0, 1, per_slice, inner)) {
        return true;
    }
    if (lies->dense) {
        int64_t share = (lies->numel + TURNS - 1) / TURNS, from = share * (int64_t)(turn % TURNS);
        int64_t n = from >= lies->numel ? 0 : from + share > lies->numel ? lies->numel - from : share;
        return any(r->first + (size_t)from * r->itemsize, (size_t)n * r->parts, r->type);
    }
    if (n_rows >= TURNS) {
        return any_in_rows(r, turn % TURNS, TURNS, n_rows, inner);
    }
    return any_in_rows(r, 0, 1, n_rows, inner);
}

static reader reader_of(const tgd_torch_tensor_info *tensor, const extent *lies)
{
    return (reader){
        .lies = lies,
        .type = class_of(tensor),
        .first = (const char *)(uintptr_t)tensor->data + (size_t)tensor->storage_offset * tensor->itemsize,
        .itemsize = tensor->itemsize,
        .parts = tensor->flags & TGD_TENSOR_COMPLEX ? 2 : 1,
    };
}

tgd_finite tgd_finite_look(const tgd_torch_tensor_info *tensor, unsigned turn)
{
    extent lies;
    if (!tgd_finite_readable(tensor) || !measure(tensor, &lies)) {
        return TGD_FINITE_UNCHECKED;
    }
    const reader r = reader_of(tensor, &lies);
    bool found;
    if (lies.numel == 0) {
        found = false;
    } else if (lies.numel <= WHOLE && lies.dense) {
        found = any(r.first, (size_t)lies.numel * r.parts, r.type);
    } else if (lies.numel <= WHOLE) {
        int64_t inner = lies.sizes[lies.ndim - 1];
        found = any_in_rows(&r, 0, 1, lies.numel / inner, inner);
    } else {
        found = sampled(&r, turn);
    }
    return found ? TGD_NOT_FINITE : TGD_FINITE;
}

static void count_one(const reader *r, const char *at, int64_t *n_nan, int64_t *n_inf)
{
    bool nan = false, inf = false;
    for (size_t k = 0; k < r->parts; k++) {
        uint64_t bits = 0;
        memcpy(&bits, at + k * r->type->bytes, r->type->bytes);
        uint64_t one = r->type->bytes == 8 ? UINT64_MAX : (UINT64_C(1) << r->type->bytes * 8) - 1;
        bits &= r->type->magnitude & one;
        nan = nan || bits > r->type->exponent;
        inf = inf || bits == r->type->exponent;
    }
    *n_nan += nan;
    *n_inf += inf && !nan;
}

void tgd_finite_count(const tgd_torch_tensor_info *tensor, int64_t *n_nan, int64_t *n_inf)
{
    extent lies;
    *n_nan = *n_inf = 0;
    if (!measure(tensor, &lies) || lies.numel == 0) {
        return;
    }
    const reader r = reader_of(tensor, &lies);
    int64_t inner = lies.ndim == 0 ? 1 : lies.sizes[lies.ndim - 1];
    int64_t stride = lies.ndim == 0 ? 1 : lies.strides[lies.ndim - 1];
    for (int64_t row = 0; row < lies.numel / inner; row++) {
        int64_t offset = row_offset(&lies, row);
        for (int64_t i = 0; i < inner; i++) {
            count_one(&r, r.first + (size_t)(offset + i * stride) * r.itemsize, n_nan, n_inf);
        }
    }
    *n_nan *= lies.repeats;
    *n_inf *= lies.repeats;
}
