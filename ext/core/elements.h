/* Elements of any type in memory of any shape, handed on in blocks of float32 or float64. Pure, any thread. */
#ifndef TGD_ELEMENTS_H
#define TGD_ELEMENTS_H

#include "statistics.h"
#include "statistics_kernels.h"

enum { TGD_BLOCK = 1024 }; /* numbers in a block, at most */

typedef struct tgd_element_type {
    uint8_t itemsize; /* of a part */
    uint8_t parts;    /* 2 of a complex number */
    uint8_t shift;    /* of what is widened to float32: see widen_16 */
    bool wide;        /* float64 */
    int32_t rebias;   /* likewise */
    int32_t special;  /* likewise, not shifted */
    double tiny;      /* the smallest normal number */
} tgd_element_type;

/* For ever. */
const tgd_element_type *tgd_element_type_of(tgd_element element);

/* Takes n elements, parts side by side, as double where the type is wide, else as float; at any address. True: enough
   seen. */
typedef struct tgd_block_sink tgd_block_sink;
struct tgd_block_sink {
    bool (*take)(tgd_block_sink *sink, const void *x, size_t n);
    void *context;
    const tgd_kernels *kernels;
    const tgd_element_type *type;
};

/* n elements that follow each other in memory. True as soon as take says so. */
bool tgd_elements_run(tgd_block_sink *sink, const void *data, uint64_t n);

/* The same elements with as few dimensions as there can be, the one with the smallest stride first. */
typedef struct tgd_shape {
    size_t ndim;
    uint64_t n;      /* elements in memory */
    uint64_t repeat; /* how often each of them appears */
    uint64_t sizes[TGD_MOST_DIMENSIONS];
    int64_t strides[TGD_MOST_DIMENSIONS];
} tgd_shape;

/* False for too many dimensions. */
bool tgd_shape_simplify(tgd_shape *out, const tgd_strided *values);
bool tgd_shape_dense(const tgd_shape *shape); /* one run */

/* As tgd_elements_run, over every element in memory once, in order of address where strides do not overlap. */
bool tgd_elements_walk(tgd_block_sink *sink, const void *data, const tgd_shape *shape);

#endif
