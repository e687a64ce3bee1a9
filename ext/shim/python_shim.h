/*
 * What needs both Python.h and libtorch_python: telling tensors and nodes from other objects, and reading nodes
 * that are written in Python. Linked into the extension only, never into libtorchgraphdbg.
 */
#ifndef TGD_PYTHON_SHIM_H
#define TGD_PYTHON_SHIM_H

#include <Python.h>

#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tgd_object_kind { TGD_OBJECT_OTHER = 0, TGD_OBJECT_TENSOR, TGD_OBJECT_NODE } tgd_object_kind;

/* GIL held. Sets the pointer that fits (borrowed: `object` keeps it alive), the other to NULL. Makes no wrapper and
   runs no Python code. A node object whose C++ node is gone is TGD_OBJECT_NODE with *node NULL. */
tgd_object_kind tgd_torch_object(PyObject *object, const tgd_torch_tensor **tensor, const tgd_torch_node **node);

/* GIL held. The address of the StorageImpl behind an UntypedStorage, 0 for anything else. */
uint64_t tgd_torch_storage_address(PyObject *object);

/* GIL held. The dict of a node's anomaly metadata, borrowed from the node; NULL where there is none. Unlike
   grad_fn.metadata it makes neither. */
PyObject *tgd_torch_node_metadata(const tgd_torch_node *node);
/* Who gives a code object the index that it has in tgd_place, TGD_NONE where it has none. Called with the GIL held. Set
   once, with the GIL held, before the first capture. */
void tgd_torch_set_code_table(uint32_t (*meet)(PyObject *code, PyObject *globals));
/* GIL held. The dict inside torch's own metadata of a node (an AnomalyMetadata that the Python engine made); borrowed
   from it. And where it has it. */
void *tgd_torch_metadata_dict(void *metadata);
size_t tgd_torch_dict_offset(void);

/* For tgd_torch_set_python(). Borrowed for ever. */
const tgd_torch_python *tgd_torch_python_hooks(void);

#ifdef __cplusplus
}
#endif
#endif
