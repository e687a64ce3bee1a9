/* Checksums of what nodes saved, for writes that nobody tells us of. */
#ifndef TGD_CHECKSUM_H
#define TGD_CHECKSUM_H

#include "rows.h"

namespace at
{
struct RecordFunction;
}

namespace tgd
{

/* Is somebody asking for checksums? */
bool checksums_wanted();

/* An op has ended: adds a row for each tensor that the nodes it made have saved. Takes the log's lock itself. */
void sum_outputs(thread_state &t, const at::RecordFunction &fn);

} // namespace tgd

#endif
