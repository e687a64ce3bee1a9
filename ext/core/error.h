/* The only writer of tgd_error. */
#ifndef TGD_ERROR_H
#define TGD_ERROR_H

#include "torchgraphdbg/tgd.h"

#if defined(__GNUC__)
#define TGD_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define TGD_PRINTF(text, first)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Fills *err (which may be NULL) and returns status, for `return tgd_fail(...)`. os_errno is 0. */
tgd_status tgd_fail(tgd_error *err, tgd_status status, const char *format, ...) TGD_PRINTF(3, 4);

/* TGD_EIO with the text of os_errno behind the message. */
tgd_status tgd_fail_io(tgd_error *err, int os_errno, const char *format, ...) TGD_PRINTF(3, 4);

tgd_status tgd_fail_memory(tgd_error *err);

#ifdef __cplusplus
}
#endif
#endif
