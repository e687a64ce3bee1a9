/* Graphs such as models make, built over fake_torch.h, for the tests of folding and drawing. */
#ifndef MODELS_H
#define MODELS_H

#include "probe.h"

enum { MODEL_PARAMETERS = 512, MODEL_NAME = 64 };

typedef struct model {
    tgd_parameter parameters[MODEL_PARAMETERS];
    char names[MODEL_PARAMETERS][MODEL_NAME];
    size_t n_parameters;
    tgd_torch_tensor *loss;
} model;

static inline tgd_torch_tensor *model_op(const char *name, tgd_torch_tensor *x, tgd_torch_tensor *y, int ndim,
                                         const int64_t *sizes)
{
    tgd_torch_node *node = fake_node(name);
    tgd_torch_tensor *const inputs[2] = {x, y};
    for (size_t k = 0; k < 2; k++) {
        if (inputs[k] != NULL) {
            const tgd_torch_node *made_by = inputs[k]->info.grad_fn;
            fake_edge(node, k, made_by != NULL ? made_by : fake_leaf_node(inputs[k]), inputs[k]->info.output_nr);
        }
    }
    return fake_output(node, 0, ndim, sizes);
}

/* A new leaf that is a parameter, as long as there is room for its name. */
static inline tgd_torch_tensor *model_parameter(model *m, const char *name, int64_t size)
{
    tgd_torch_tensor *w = fake_leaf(FAKE_SIZES(size, size));
    if (m->n_parameters < MODEL_PARAMETERS) {
        size_t n = strlen(name) < MODEL_NAME ? strlen(name) : MODEL_NAME - 1;
        memcpy(m->names[m->n_parameters], name, n);
        m->names[m->n_parameters][n] = '\0';
        m->parameters[m->n_parameters] = (tgd_parameter){m->names[m->n_parameters], w};
        m->n_parameters++;
    }
    return w;
}

static inline tgd_torch_tensor *model_layer(model *m, const char *op, tgd_torch_tensor *x, const char *module)
{
    char name[2 * MODEL_NAME];
    snprintf(name, sizeof name, "%s.weight", module);
    return model_op(op, x, model_parameter(m, name, 8), FAKE_SIZES(4, 8));
}

/* Residual blocks "layer.0" ... with a head and a stem. The result that the first op of block `fault` saved is written
   to afterwards; no block: none is. */
static inline void model_residual(model *m, int blocks, int fault)
{
    m->n_parameters = 0;
    tgd_torch_tensor *x = model_layer(m, "ConvolutionBackward0", NULL, "stem");
    for (int b = 0; b < blocks; b++) {
        char module[MODEL_NAME];
        tgd_torch_tensor *skip = x;
        snprintf(module, sizeof module, "layer.%d.conv1", b);
        x = model_layer(m, "ConvolutionBackward0", x, module);
        x = model_op("ReluBackward0", x, NULL, FAKE_SIZES(4, 8));
        fake_save_result((tgd_torch_node *)(uintptr_t)x->info.grad_fn, "result", x);
        if (b == fault) {
            fake_bump(x);
        }
        snprintf(module, sizeof module, "layer.%d.conv2", b);
        x = model_layer(m, "ConvolutionBackward0", x, module);
        x = model_op("AddBackward0", x, skip, FAKE_SIZES(4, 8));
    }
    x = model_op("ViewBackward0", x, NULL, FAKE_SIZES(32));
    x = model_layer(m, "AddmmBackward0", x, "head");
    m->loss = model_op("MeanBackward0", x, NULL, FAKE_SCALAR);
}

/* One op after another, two kinds in turn. */
static inline void model_chain(model *m, size_t n)
{
    m->n_parameters = 0;
    tgd_torch_tensor *x = fake_leaf(FAKE_SIZES(2));
    for (size_t i = 0; i < n; i++) {
        x = model_op(i % 2 == 0 ? "MulBackward0" : "AddBackward0", x, NULL, FAKE_SIZES(2));
    }
    m->loss = model_op("SumBackward0", x, NULL, FAKE_SCALAR);
}

/* One node over n ops with a leaf each. */
static inline void model_star(model *m, size_t n)
{
    m->n_parameters = 0;
    tgd_torch_node *stack = fake_node("StackBackward0");
    for (size_t i = 0; i < n; i++) {
        tgd_torch_tensor *x = model_op("MulBackward0", fake_leaf(FAKE_SIZES(2)), NULL, FAKE_SIZES(2));
        fake_edge(stack, i, x->info.grad_fn, 0);
        ((tgd_torch_node *)(uintptr_t)x->info.grad_fn)->sequence_nr = i;
    }
    stack->sequence_nr = n;
    m->loss = fake_output(stack, 0, FAKE_SIZES(2));
}

/* n ops over any of those before, by a generator of our own so that every machine makes the same ones. */
static inline void model_random(model *m, size_t n, uint64_t seed, bool faults)
{
    static const char *const ops[] = {"MulBackward0", "AddBackward0", "TanhBackward0", "ViewBackward0", "CatBackward0"};
    tgd_torch_tensor **all = malloc((n + 4) * sizeof *all);
    m->n_parameters = 0;
    for (size_t i = 0; i < 4; i++) {
        char name[MODEL_NAME];
        snprintf(name, sizeof name, "part.%zu.w", i);
        all[i] = model_parameter(m, name, 3);
    }
    for (size_t i = 4; i < n + 4; i++) {
        uint64_t draw[4];
        for (size_t k = 0; k < 4; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            draw[k] = seed >> 33;
        }
        size_t near = i < 12 ? i : 12;
        tgd_torch_tensor *second = draw[0] % 3 == 0   ? NULL
                                   : draw[0] % 7 == 0 ? all[draw[1] % i]
                                                      : all[i - 1 - draw[1] % near];
        all[i] = model_op(ops[draw[2] % 5], all[i - 1 - draw[3] % near], second, FAKE_SIZES(3, 3));
        tgd_torch_node *node = (tgd_torch_node *)(uintptr_t)all[i]->info.grad_fn;
        fake_save_result(node, "result", all[i]);
        if (faults && draw[1] % 50 == 0) {
            fake_bump(all[i]);
        }
    }
    m->loss = all[n + 3];
    free(all);
}

static inline tgd_report *model_report(const model *m)
{
    return probe_parameters(m->loss, m->n_parameters > 0 ? m->parameters : NULL, m->n_parameters);
}

#endif
