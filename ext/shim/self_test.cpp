/* The member table against the libtorch that is loaded: does each place hold what a real node saved? */
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include "node_class.h"

namespace tgd
{
namespace
{

/* Plain eager mode with gradients for this scope, whatever the caller's thread is set to: dispatch keys (functorch
   levels, autocast), dispatch modes, inference mode and no_grad, saved-tensor hooks and profilers are put aside. */
class plain_mode
{
public:
    plain_mode()
        : keys_(c10::default_included_set, c10::default_excluded_set),
          modes_(c10::impl::TorchDispatchModeTLS::get_state()), hooks_(at::SavedTensorDefaultHooks::get_tls_state())
    {
        c10::impl::TorchDispatchModeTLS::set_state({});
        at::SavedTensorDefaultHooks::set_tls_state({});
    }
    ~plain_mode()
    {
        at::SavedTensorDefaultHooks::set_tls_state(hooks_);
        c10::impl::TorchDispatchModeTLS::set_state(modes_); /* touches the keys, which are put back after this */
    }
    plain_mode(const plain_mode &) = delete;
    plain_mode &operator=(const plain_mode &) = delete;

private:
    c10::InferenceMode gradients_{false};
    c10::impl::ForceDispatchKeyGuard keys_;
    at::DisableRecordFunctionGuard observers_;
    c10::impl::TorchDispatchModeTLS modes_;
    at::impl::SavedTensorDefaultHooksTLS hooks_;
};

struct expected {
    const char *name;
    std::int64_t index;
    const at::Tensor *tensor;
    bool output; /* its own result: another TensorImpl over the same storage */
};

struct comparison {
    const expected *next, *end;
    bool wrong;
};

int compare(void *context, const tgd_torch_saved *saved)
{
    auto *c = static_cast<comparison *>(context);
    if ((saved->flags & (TGD_SV_EMPTY | TGD_SV_RELEASED_FLAG)) != 0) {
        return 0;
    }
    const expected *want = c->next;
    tgd_torch_tensor_info info = {};
    if (want != c->end) {
        tgd_torch_tensor_read(handle(want->tensor->unsafeGetTensorImpl()), &info);
    }
    c->wrong = want == c->end || std::strcmp(want->name, saved->name) != 0 || want->index != saved->index ||
               want->output != ((saved->flags & TGD_SV_OUTPUT) != 0) || saved->saved_version != info.version ||
               saved->tensor.version != info.version || saved->tensor.storage != info.storage ||
               (!want->output && saved->tensor.address != info.address);
    c->next += c->wrong ? 0 : 1;
    return c->wrong;
}

/* result's node must have saved exactly these, in the table's order. */
template <std::size_t N> void check(const at::Tensor &result, const char *name, const expected (&want)[N])
{
    const tgd_torch_node *node = handle(result.grad_fn().get());
    if (node == nullptr || std::strcmp(tgd_torch_node_name(node), name) != 0) {
        throw std::runtime_error(std::string(name) + " is not what its operator makes");
    }
    comparison c = {want, want + N, false};
    const char *inner = nullptr;
    const tgd_visit visit = tgd_torch_node_saved(node, &inner, compare, &c);
    if (visit != TGD_VISIT_DONE || c.next != c.end) {
        throw std::runtime_error(std::string(name) + "'s saved tensors are not where the table says; this library was "
                                                     "built for torch " +
                                 tgd_torch_built_for() + ": rebuild it");
    }
}

at::TensorOptions options(at::ScalarType dtype)
{
    return at::TensorOptions().dtype(dtype).device(at::kCPU).layout(at::kStrided).pinned_memory(false);
}

at::Tensor leaf(at::IntArrayRef sizes)
{
    return at::empty(sizes, options(at::kFloat)).fill_(0.5).set_requires_grad(true);
}

void run()
{
    plain_mode plain;
    const at::Tensor a = leaf({2, 3}), b = leaf({2, 3}), c = leaf({3, 2}), d = leaf({2, 2});
    check(a.mul(b), "MulBackward0", {{"other", -1, &b, false}, {"self", -1, &a, false}});
    const at::Tensor s = a.sigmoid();
    check(s, "SigmoidBackward0", {{"result", -1, &s, true}});
    check(at::addmm(d, a, c), "AddmmBackward0", {{"mat1", -1, &a, false}, {"mat2", -1, &c, false}});
    const at::Tensor rows = at::zeros({2}, options(at::kLong));
    c10::List<std::optional<at::Tensor>> indices;
    indices.push_back(rows);
    check(at::index(a, indices), "IndexBackward0", {{"indices", 0, &rows, false}});
    check(at::_foreach_mul({a, c}, {b, c})[1], "ForeachMulBackward0List",
          {{"other", 0, &b, false}, {"other", 1, &c, false}, {"self", 0, &a, false}, {"self", 1, &c, false}});
}

} // namespace
} // namespace tgd

using namespace tgd;

extern "C" tgd_status tgd_torch_self_test(tgd_error *err)
{
    return guarded(err, run);
}
