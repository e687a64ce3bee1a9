/*
 * A libcudart without a GPU: devices, streams and events on a simulated clock, so that every moment at which an event
 * ran is known. Built by run.sh as a shared library, found by the code under test through TORCHGRAPHDBG_CUDART, and
 * steered through this table, which the library exports as fake_cudart().
 *
 * Time is in nanoseconds and stands still between calls; each CUDA call takes call_cost, work starts launch_cost after
 * it was asked for, or when the stream has done what came before.
 */
#ifndef FAKE_CUDART_H
#define FAKE_CUDART_H

#include <stdbool.h>
#include <stdint.h>

enum { FAKE_CALLS = 4096 };

/* A call of an event function, in order. */
typedef struct fake_call {
    char what;       /* 'c'reate, 'r'ecord, 'd'estroy */
    int device;      /* the thread's current one */
    uint64_t stream; /* of a record */
    void *event;
    uint64_t ran;    /* of a record: the true time at which the event runs */
} fake_call;

typedef struct fake_counts {
    unsigned long calls;     /* of any function, also those that failed */
    long events;             /* alive */
    unsigned long syncs;     /* of a function that waits for the device */
    unsigned long broken;    /* captures that a call broke, and records into a captured stream */
    unsigned long contexts;  /* made by a call of the code under test */
    unsigned long misused;   /* events destroyed twice, used after that, or of another device than their stream */
    unsigned n_calls;        /* in `log` */
    fake_call log[FAKE_CALLS];
} fake_counts;

typedef struct fake_cudart_control {
    void (*reset)(int devices); /* all devices have a context; no stream, no error; the log is empty */
    fake_counts *counts;
    uint64_t *call_cost, *launch_cost;
    uint64_t (*now)(void);
    void (*advance)(uint64_t ns);
    void (*drift)(int ppm);              /* of the devices' clocks against the host's */
    void (*context)(int device, bool active);
    uint64_t (*stream)(int device);      /* a new stream's handle */
    void (*launch)(uint64_t stream, int device, uint64_t duration); /* device: whose default stream, with 0 */
    void (*capture)(uint64_t stream, int device, bool on, bool global);
    /* The nth call from now of a function ("cudaEventRecord"; NULL: any) returns the code; lasting: and all after it,
       of whatever function. */
    void (*inject)(const char *function, unsigned long nth, int code, bool lasting);
    bool (*injected)(void);              /* has it happened? */
    void (*leave_error)(int code);       /* as if a call of the program had failed on this thread */
    int (*last_error)(void);             /* of this thread, without clearing it */
    int (*current_device)(void);         /* of this thread */
    void (*choose_device)(int device);   /* the program's cudaSetDevice */
    int (*capture_mode)(void);           /* of this thread */
    void (*memory)(const void *pointer, int type, int device, bool mapped); /* type: as cudaMemoryType */
} fake_cudart_control;

typedef const fake_cudart_control *(*fake_cudart_function)(void);

#endif
