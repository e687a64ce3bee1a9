/* How living.c, optimizers.c and ctx_cycles.c share the work. */
#ifndef TGD_PY_LIVING_PARTS_H
#define TGD_PY_LIVING_PARTS_H

#include "holder.h"
#include "living.h"

struct tgd_py_living {
    tgd_census census;
    PyObject *kept; /* Owned */
    PyObject *seen; /* Owned set of the modules' addresses */
    tgd_torch_holder *nodes; /* Owned: where the roots begin */
    tgd_gradient_row *gradients; /* Owned, like what follows */
    tgd_held_row *held;
    tgd_root *roots;
    tgd_member_row *members;
    tgd_optimizer_row *optimizers;
    tgd_cycle_row *cycles;
    size_t gradient_capacity, held_capacity, root_capacity, member_capacity, optimizer_capacity, cycle_capacity;
};

/* GIL held, like all here. The tensor, the node of a custom Function's ctx, the node that made a tensor: each NULL for
   other objects, and borrowed from the object. */
const tgd_torch_tensor *tgd_py_tensor_of(PyObject *object);
const tgd_torch_node *tgd_py_node_of(PyObject *object);
const tgd_torch_node *tgd_py_grad_fn_of(PyObject *object);

/* A new reference to an object's own dict, or NULL; leaves no exception. */
PyObject *tgd_py_own_dict(PyObject *object);

/* One optimizer with what it updates; schedulers is the list of all there are. 0, or -1 with an exception. */
int tgd_py_living_add_optimizer(tgd_py_living *living, PyObject *optimizer, PyObject *schedulers);

/* What a ctx keeps that its own node made. 0, or -1 with an exception. */
int tgd_py_living_add_cycles(tgd_py_living *living, PyObject *ctx);

#endif
