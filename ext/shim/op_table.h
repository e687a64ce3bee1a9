/*
 * Ops by their schema: what each is called and which of its arguments it writes to. Found without a lock.
 */
#ifndef TGD_OP_TABLE_H
#define TGD_OP_TABLE_H

#include <cstdint>
#include <memory>

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>

namespace tgd
{

struct op_class {
    const void *key; /* the name inside the schema: one address for each schema */
    char *name; /* Owned for ever */
    std::uint8_t n_writes;
    std::uint8_t writes[8]; /* arguments the op writes to */
};

/* NULL for a range named by a string, which is no op, and where the table is full. For ever. May throw bad_alloc. */
const op_class *op_of(const at::RecordFunction &fn);

/* What a schema says, for whoever keeps it; not in the table. The name is the caller's to free. May throw bad_alloc. */
std::unique_ptr<op_class> op_of_schema(const c10::FunctionSchema &schema, const void *key);

/* A custom Function's name, kept for ever: its class may go. Bounded like the table of ops. */
const char *kept_name(const char *name);

} // namespace tgd

#endif
