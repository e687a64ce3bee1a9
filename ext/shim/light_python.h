/*
 * What the light level needs of the Python binding, and the other way round: while it is on, PyTorch's anomaly flag and
 * one dispatch key are set, and what Python code asks about them is answered as if they were not
 * (ext/python/light_patches.c).
 */
#ifndef TGD_LIGHT_PYTHON_H
#define TGD_LIGHT_PYTHON_H

#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The end of the error about a tensor that was modified in place, with the anomaly flag and without. */
#define TGD_HINT_ANOMALY_ON                                                                                            \
    "Hint: the backtrace further above shows the operation that failed to compute its gradient. The variable in "      \
    "question was changed in there or anywhere later. Good luck!"
#define TGD_HINT_ANOMALY_OFF                                                                                           \
    "Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "                  \
    "torch.autograd.set_detect_anomaly(True, check_nan=False)."

/* Called when the light level begins and when it ends, on that thread, with none of our locks held; counted by whoever
   supplies them. `install` returns 0, or -1 with the reason in err. Borrowed for ever; set once. */
typedef struct tgd_light_patches {
    int (*install)(tgd_error *err);
    void (*restore)(void);
} tgd_light_patches;
void tgd_light_set_patches(const tgd_light_patches *patches);

/* The dict inside torch's own metadata of a node. Borrowed from that. */
typedef void *(*tgd_dict_reader)(void *anomaly_metadata);
void tgd_light_set_dict_reader(tgd_dict_reader reader);
/* Where a node's metadata of ours has that dict: it must be where torch's has it. */
size_t tgd_light_dict_offset(void);
/* GIL held. Somebody is about to read node.metadata: the dict is there afterwards. */
void tgd_light_complete_metadata(const tgd_torch_node *node);

/* torch's own set_anomaly_enabled() has just run; what the two questions after it should answer. */
void tgd_light_anomaly_was_set(void);
int tgd_light_anomaly_enabled(void);
int tgd_light_anomaly_checks_nan(void);

/* The dispatch key, as DispatchKeySet.raw_repr() shows it. */
uint64_t tgd_light_key_bits(void);

#ifdef __cplusplus
}
#endif
#endif
