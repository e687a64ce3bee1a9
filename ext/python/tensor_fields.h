/* What SavedTensor and InputMetadata have in common: a tgd_tensor_info in Python's terms. */
#ifndef TGD_PY_TENSOR_FIELDS_H
#define TGD_PY_TENSOR_FIELDS_H

#include "row.h"

/* A tuple, -1 for a symbolic size; None where no shape can be told. */
PyObject *tgd_py_shape(const tgd_tensor_info *info);
/* A tuple in elements; None where there are none. */
PyObject *tgd_py_strides(const tgd_tensor_info *info);
/* The torch.dtype; None where it is unknown. */
PyObject *tgd_py_dtype(const tgd_py_state *state, const tgd_tensor_info *info);
/* "cuda:0"; None where it is unknown. */
PyObject *tgd_py_device(const tgd_tensor_info *info);
/* "float32 (3, 4) cpu ", as much of it as is known. */
PyObject *tgd_py_tensor_phrase(const tgd_tensor_info *info);

#endif
