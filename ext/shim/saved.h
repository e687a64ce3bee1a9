/* What the reader of Python nodes, which is linked elsewhere, shares with saved.cpp. */
#ifndef TGD_SAVED_H
#define TGD_SAVED_H

#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Read one torch::autograd::SavedVariable and show it to the visitor; flags are added to what it has. With
   TGD_SV_RELEASED_FLAG it is not read and may be NULL. Returns what the visitor returned. */
int tgd_torch_saved_visit(const void *saved_variable, const char *name, int64_t index, uint32_t flags,
                          tgd_torch_saved_visitor visit, void *context);

#ifdef __cplusplus
}
#endif
#endif
