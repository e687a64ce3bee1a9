/*
 * Which device a node of the backward runs on, and in which of its streams, and whose events to time it with. Reads
 * torch's device registry; links no accelerator's library. No GIL, no lock, waits for nothing.
 */
#ifndef TGD_DEVICE_STREAM_H
#define TGD_DEVICE_STREAM_H

#include "device_events.h"
#include "shim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tgd_torch_stream {
    int device_type; /* c10::DeviceType */
    int device;
    uint64_t id;     /* torch's number of the stream */
    uint64_t native; /* the driver's handle, where has_native; 0 may be one (a default stream) */
    int has_native;
} tgd_torch_stream;

/* The accelerator that the node computes on: the device of its first gradient in that is on one, and the calling
   thread's current stream there, which is the node's own while the engine runs it. 0: none (CPU, meta). Never fails:
   a device that torch cannot be asked about is none. */
int tgd_torch_node_stream(const tgd_torch_node *node, tgd_torch_stream *out);

/* The calling thread's current stream on a device, likewise. */
int tgd_torch_current_stream(int device_type, int device, tgd_torch_stream *out);

/**
 * The events to time a kind of device with: CUDA's own where the CUDA runtime and torch's stream handles are at hand,
 * else the generic ones of torch (XPU, MPS, ROCm, privateuse1).
 * @param[out] out  borrowed for ever
 * @return TGD_OK, TGD_EINVAL (not an accelerator), TGD_ETORCH (this torch has no such device)
 */
tgd_status tgd_torch_device_events(const tgd_device_events **out, int device_type, tgd_error *err);

/* What `stream` those events want: the driver's handle or torch's number. */
uint64_t tgd_torch_stream_word(const tgd_device_events *events, const tgd_torch_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
