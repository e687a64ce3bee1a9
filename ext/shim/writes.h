/* What an op writes to, looked at before it runs. */
#ifndef TGD_WRITES_H
#define TGD_WRITES_H

#include "rows.h"

namespace tgd
{

/* Would autograd refuse to let an op write to this tensor? As check_inplace() in VariableTypeUtils.h. */
bool is_refused(const c10::TensorImpl *impl);

/* Adds a row to the thread's current op, which is about to write to this tensor. May throw bad_alloc. */
void note_write(thread_state &t, c10::TensorImpl *impl, std::uint32_t argument);

/* The op has ended, or thrown: its writes become rows. Tells of a refused one, which may take the GIL. */
void end_writes(thread_state &t, bool threw);

} // namespace tgd

#endif
