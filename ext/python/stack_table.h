/*
 * The stacks of callers that were seen, as a tree: a stack is a line and the stack around it. A number means the same
 * as long as the process lives. Neither reading nor adding needs the GIL or a lock. At most 65,536 of them.
 */
#ifndef TGD_PY_STACK_TABLE_H
#define TGD_PY_STACK_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* A frame: the code's index in code_table.h, and where in it, in code units; -1 = its first line. */
typedef struct tgd_py_caller {
    uint32_t code;
    int32_t lasti;
} tgd_py_caller;

enum { TGD_PY_MOST_CALLERS = 64 };

/* The number of the stack with these frames, innermost first, n <= TGD_PY_MOST_CALLERS. 0: no frames, or the table is
   full. */
uint32_t tgd_py_stack_find(const tgd_py_caller *callers, size_t n);

/* The innermost frame of a stack, and the number of the stack around it, which may be 0. Returns 0 for none. */
int tgd_py_stack_read(uint32_t stack, tgd_py_caller *caller, uint32_t *outer);

#endif
