/* What is known of each C++ class of nodes, found once and kept for ever. */
#ifndef TGD_NODE_CLASS_H
#define TGD_NODE_CLASS_H

#include <typeinfo>

#include "compat.h"
#include "node_table.h"

namespace tgd
{

struct node_class {
    const std::type_info *type;
    const char *name; /* for ever; "" for PyNode */
    tgd_node_kind kind;
    bool has_saved;
    const saved_member *members; /* TGD_NODE_BUILTIN */
    std::uint32_t n_members;
    std::uint32_t raising_edges;
};

/* Any thread, no lock; allocates only when a class is met for the first time. Out of memory it answers with a class
   that is opaque. */
const node_class &class_of(const Node &node) noexcept;

} // namespace tgd

#endif
