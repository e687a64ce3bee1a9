#include "node_class.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <string_view>

namespace tgd
{
namespace
{

struct hand_written {
    const char *mangled;
    tgd_node_kind kind;
    bool has_saved;
};

/* Classes of libtorch that are not generated. Those without a saved tensor need no table. */
const hand_written hand_written_classes[] = {
    {"N5torch8autograd14AccumulateGradE", TGD_NODE_ACCUMULATE_GRAD, false},
    {"N5torch8autograd6PyNodeE", TGD_NODE_PYTHON, true},
    {"N5torch8autograd10CopySlicesE", TGD_NODE_COPY_SLICES, true},
    {"N5torch8autograd5ErrorE", TGD_NODE_ERROR, false},
    {"N5torch8autograd14NotImplementedE", TGD_NODE_ERROR, false},
    {"N5torch8autograd13CopyBackwardsE", TGD_NODE_BUILTIN, false},
    {"N5torch8autograd12DelayedErrorE", TGD_NODE_BUILTIN, false},
    {"N5torch8autograd13UndefinedGradE", TGD_NODE_BUILTIN, false},
    {"N5torch8autograd21UndefinedGradBackwardE", TGD_NODE_BUILTIN, false},
    {"N5torch8autograd9GraphRootE", TGD_NODE_BUILTIN, false},
    {"N5torch8autograd8IdentityE", TGD_NODE_BUILTIN, false},
    {"N5torch8autograd18WarnNotImplementedE", TGD_NODE_BUILTIN, false},
    {"N5torch8autograd7ScatterE", TGD_NODE_BUILTIN, false},
    {"N5torch8autograd6GatherE", TGD_NODE_BUILTIN, false},
    {"N5torch11distributed8autograd15SendRpcBackwardE", TGD_NODE_BUILTIN, false},
    {"N5torch11distributed8autograd15RecvRpcBackwardE", TGD_NODE_BUILTIN, false},
};

constexpr std::string_view cpp_node_prefix = "N5torch8autograd7CppNodeI";
constexpr std::string_view name_prefix = "torch::autograd::";

constexpr std::size_t table_size = 8192; /* a power of two; libtorch has some 730 classes */
constexpr std::size_t table_limit = table_size / 4 * 3;

std::atomic<const node_class *> table[table_size];
std::atomic<std::size_t> n_known{0};

/* Stands in where nothing could be allocated, and past the table's limit. */
const node_class unknown_class = {nullptr, "Node", TGD_NODE_OTHER, true, nullptr, 0, 0};

std::size_t slot_of(const std::type_info *type)
{
    return static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(type) >> 3) * 0x9E3779B97F4A7C15u >> 40) &
           (table_size - 1);
}

/* A copy that is never freed, or NULL. name() may be a third party's and may throw. */
const char *keep_name(const Node &node) noexcept
{
    try {
        std::string name = node.name();
        if (name.compare(0, name_prefix.size(), name_prefix) == 0) {
            name.erase(0, name_prefix.size());
        }
        char *copy = new char[name.size() + 1];
        std::memcpy(copy, name.c_str(), name.size() + 1);
        return copy;
    } catch (...) {
        return nullptr;
    }
}

node_class describe(const Node &node, const std::type_info &type) noexcept
{
    const char *mangled = type.name();
    const generated_class *end = generated_classes + n_generated_classes;
    const generated_class *found =
        std::lower_bound(generated_classes, end, mangled,
                         [](const generated_class &c, const char *name) { return std::strcmp(c.mangled, name) < 0; });
    if (found != end && std::strcmp(found->mangled, mangled) == 0) {
        return {&type,
                found->name,
                TGD_NODE_BUILTIN,
                found->n_members != 0,
                saved_members + found->first_member,
                found->n_members,
                found->raising_edges};
    }
    node_class made = {&type, nullptr, TGD_NODE_OTHER, true, nullptr, 0, 0};
    for (const hand_written &known : hand_written_classes) {
        if (std::strcmp(known.mangled, mangled) == 0) {
            made.kind = known.kind;
            made.has_saved = known.has_saved;
        }
    }
    if (std::string_view(mangled).substr(0, cpp_node_prefix.size()) == cpp_node_prefix) {
        made.kind = TGD_NODE_CPP;
    }
    /* PyNode's name is its Python class's, another one for each node. */
    made.name = made.kind == TGD_NODE_PYTHON ? "" : keep_name(node);
    return made;
}

const node_class &learn(const Node &node, const std::type_info &type, std::size_t i) noexcept
{
    if (n_known.load(std::memory_order_relaxed) >= table_limit) {
        return unknown_class;
    }
    node_class *made = new (std::nothrow) node_class(describe(node, type));
    if (made == nullptr || made->name == nullptr) {
        delete made;
        return unknown_class;
    }
    for (;; i = (i + 1) & (table_size - 1)) {
        const node_class *there = nullptr;
        if (table[i].compare_exchange_strong(there, made, std::memory_order_acq_rel)) {
            n_known.fetch_add(1, std::memory_order_relaxed);
            return *made;
        }
        if (there->type == &type) {
            /* Another thread was first. A name of made's own is rare and small; it stays. */
            delete made;
            return *there;
        }
    }
}

} // namespace

const node_class &class_of(const Node &node) noexcept
{
    const std::type_info &type = typeid(node);
    for (std::size_t i = slot_of(&type);; i = (i + 1) & (table_size - 1)) {
        const node_class *there = table[i].load(std::memory_order_acquire);
        if (there == nullptr) {
            return learn(node, type, i);
        }
        if (there->type == &type) {
            return *there;
        }
    }
}

} // namespace tgd
