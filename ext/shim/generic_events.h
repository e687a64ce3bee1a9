/* Timing events of any device that torch drives, through the interface that torch itself uses for them. */
#ifndef TGD_GENERIC_EVENTS_H
#define TGD_GENERIC_EVENTS_H

#include "device_events.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Borrowed for ever. `stream` is torch's number of the stream (c10::StreamId). TGD_ETORCH where this torch, or what
   was registered with it, has no such device. Any thread. */
tgd_status tgd_generic_events(const tgd_device_events **out, int device_type, tgd_error *err);

#ifdef __cplusplus
}
#endif
#endif
