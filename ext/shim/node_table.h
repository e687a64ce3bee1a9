/* The table that generate_table.py writes. */
#ifndef TGD_NODE_TABLE_H
#define TGD_NODE_TABLE_H

#include <cstddef>
#include <cstdint>

namespace tgd
{

struct saved_member {
    enum kind_type : std::uint8_t {
        single,  /* SavedVariable */
        list,    /* std::vector<SavedVariable> */
        released /* bool beside a list: the list was cleared */
    };
    const char *name;     /* without the final underscore */
    std::uint32_t offset; /* in the node */
    kind_type kind;
};

struct generated_class {
    const char *mangled; /* typeid(T).name() */
    const char *name;    /* Node::name() */
    std::uint32_t first_member, n_members;
    std::uint32_t raising_edges; /* bit k: where edge k is wanted, apply() raises "not implemented" */
};

extern const saved_member saved_members[];
extern const generated_class generated_classes[]; /* by mangled name, ascending */
extern const std::size_t n_generated_classes;

} // namespace tgd

#endif
