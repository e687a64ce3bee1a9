/* The engine's queue of ready nodes, one for the program. */
#ifndef ENGINE_QUEUE_H
#define ENGINE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void engine_queue_clear(void);
void engine_queue_push(uint32_t node, uint64_t sequence_nr);
/* The node that runs next; false when there is none. */
bool engine_queue_pop(uint32_t *node);

#ifdef __cplusplus
}
#endif
#endif
