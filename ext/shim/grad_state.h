/* What autograd is doing on the calling thread. No GIL, no lock, never fails. */
#ifndef TGD_GRAD_STATE_H
#define TGD_GRAD_STATE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Is grad mode on? */
int tgd_torch_grad_mode(void);
/* Is a backward under way on this thread, so that another one would run inside it? */
int tgd_torch_in_backward(void);

#ifdef __cplusplus
}
#endif
#endif
