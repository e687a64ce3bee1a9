/*
 * Where torch 2.6 to 2.15 differ: nodes are counted by std::shared_ptr before 2.13 and by c10::intrusive_ptr since.
 * The forms are told apart by what compiles, not by version numbers.
 */
#ifndef TGD_COMPAT_H
#define TGD_COMPAT_H

#include <exception>
#include <memory>
#include <new>

#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>

#include "error.h"
#include "shim.h"

#ifndef NDEBUG
#error "libtorch's classes have another layout without NDEBUG"
#endif

namespace tgd
{

using torch::autograd::Node;

inline Node *node_of(const tgd_torch_node *node)
{
    return const_cast<Node *>(reinterpret_cast<const Node *>(node));
}

inline const tgd_torch_node *handle(const Node *node)
{
    return reinterpret_cast<const tgd_torch_node *>(node);
}

inline c10::TensorImpl *impl_of(const tgd_torch_tensor *tensor)
{
    return const_cast<c10::TensorImpl *>(reinterpret_cast<const c10::TensorImpl *>(tensor));
}

inline const tgd_torch_tensor *handle(const c10::TensorImpl *impl)
{
    return reinterpret_cast<const tgd_torch_tensor *>(impl);
}

/* The node behind a weak pointer, or NULL. Borrowed: whoever kept it alive before this call still does. */
template <class T> Node *borrow(const c10::weak_intrusive_ptr<T> &weak)
{
    return weak.expired() ? nullptr : weak._unsafe_get_target();
}

template <class T> Node *borrow(const std::weak_ptr<T> &weak)
{
    return weak.lock().get();
}

/* Did a weak pointer never point to anything? */
template <class T> bool never_set(const c10::weak_intrusive_ptr<T> &weak)
{
    return weak._unsafe_get_target() == nullptr;
}

template <class T> bool never_set(const std::weak_ptr<T> &weak)
{
    return !weak.owner_before(std::weak_ptr<T>()) && !std::weak_ptr<T>().owner_before(weak);
}

/* The node behind an owning or a weak pointer. */
template <class T> Node *borrow(const c10::intrusive_ptr<T> &strong)
{
    return strong.get();
}

/* On large graphs nearly all the time goes by waiting for memory: ask early for what will be read. Any address. */
inline void prefetch(const void *address)
{
#if defined(__GNUC__)
    __builtin_prefetch(address);
#else
    (void)address;
#endif
}

/* The lines of a TensorImpl (208 bytes). */
inline void prefetch_tensor(const c10::TensorImpl *impl)
{
    const char *at = reinterpret_cast<const char *>(impl);
    for (int line = 0; line < 4; line++) {
        prefetch(at + line * 64);
    }
}

/* Runs body; what it throws becomes the status. */
template <class Body> tgd_status guarded(tgd_error *err, Body body) noexcept
{
    try {
        body();
        return TGD_OK;
    } catch (const std::bad_alloc &) {
        return tgd_fail_memory(err);
    } catch (const c10::Error &e) {
        return tgd_fail(err, TGD_ETORCH, "%s", e.what_without_backtrace());
    } catch (const std::exception &e) {
        return tgd_fail(err, TGD_ETORCH, "%s", e.what());
    } catch (...) {
        return tgd_fail(err, TGD_ETORCH, "unknown C++ exception");
    }
}

} // namespace tgd

#endif
