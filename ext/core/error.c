#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(tgd_error *err, tgd_status status, int os_errno, const char *format, va_list args)
{
    if (err == NULL) {
        return;
    }
    err->status = status;
    err->os_errno = os_errno;
    int n = vsnprintf(err->message, sizeof err->message, format, args);
    if (n < 0) {
        err->message[0] = '\0';
    }
    if (os_errno != 0) {
        size_t used = strlen(err->message);
        snprintf(err->message + used, sizeof err->message - used, ": %s", strerror(os_errno));
    }
}

tgd_status tgd_fail(tgd_error *err, tgd_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(err, status, 0, format, args);
    va_end(args);
    return status;
}

tgd_status tgd_fail_io(tgd_error *err, int os_errno, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(err, TGD_EIO, os_errno, format, args);
    va_end(args);
    return TGD_EIO;
}

tgd_status tgd_fail_memory(tgd_error *err)
{
    return tgd_fail(err, TGD_ENOMEM, "out of memory");
}
