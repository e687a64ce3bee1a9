/*
 * Ops that write, seen by a kernel of their own on a dispatch key that nothing else uses, so that other ops cost
 * nothing. The key is set in the threads that are watched; while an op runs it is excluded, so that the outermost op is
 * the one that is seen. Once registered, the kernels stay: a thread may be inside one at any time.
 */
#include "light.h"

#include <exception>
#include <unordered_set>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/graph_task.h>

#include "identity.h"
#include "light_cuts.h"
#include "light_python.h"
#include "op_table.h"
#include "writes.h"

namespace tgd
{
namespace
{

constexpr c10::DispatchKey watch_key = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr c10::DispatchKeySet python_key(c10::DispatchKey::PythonDispatcher);

/* Is this an op whose writes nobody's version counter sees (inside another op), or one that is only traced? */
bool is_inner(c10::DispatchKeySet keys)
{
    return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView) || keys.has_any(python_key);
}

void writes_begin(thread_state &t, const op_class &op, const torch::jit::Stack &stack, std::size_t n_arguments)
{
    t.writes.clear();
    t.written.clear();
    t.op = tgd_op_row{};
    t.op.sequence_nr = static_cast<std::uint64_t>(at::sequence_number::peek());
    t.op.thread = at::RecordFunction::currentThreadId();
    t.op.name = op.name;
    t.op.mode = nowhere;
    t.op.flags = flag_if(c10::GradMode::is_enabled(), TGD_OP_GRAD_MODE) |
                 flag_if(c10::InferenceMode::is_enabled(), TGD_OP_INFERENCE) |
                 flag_if(torch::autograd::get_current_graph_task_id() != -1, TGD_OP_IN_BACKWARD);
    t.op.time = tick();
    t.op.place = here();
    const c10::IValue *arguments = stack.data() + (stack.size() - n_arguments);
    for (std::uint8_t k = 0; k < op.n_writes; k++) {
        std::uint32_t argument = 0;
        each_tensor(arguments[op.writes[k]], [&](c10::TensorImpl *impl) { note_write(t, impl, argument++); });
    }
}

class watching_kernel final : public c10::OperatorKernel
{
public:
    watching_kernel(const op_class *op, std::size_t n_arguments, std::size_t n_returns, bool cuts)
        : op_(op), n_arguments_(n_arguments), n_returns_(n_returns), cuts_(cuts)
    {
    }

    void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack)
    {
        c10::DispatchKeySet after(c10::DispatchKeySet::FULL_AFTER, watch_key);
        /* Python's dispatcher has sent us the call and is not done with it: it looks at each key. */
        c10::DispatchKeySet next = (keys & after) | (keys & python_key);
        if (!light_on.load(std::memory_order_relaxed)) {
            pass_on(op, next, stack);
            leave_thread(); /* it was stopped while this thread was elsewhere */
            return;
        }
        if (full_on.load(std::memory_order_relaxed) || is_inner(keys) ||
            op.schema().arguments().size() != n_arguments_ /* the name was given to another op since */) {
            pass_on(op, next, stack);
            return;
        }
        thread_state *t = nullptr;
        quietly([&] { t = &state(); });
        if (t == nullptr || t->light_depth > 0) {
            pass_on(op, next, stack);
            return;
        }
        struct inside {
            explicit inside(int *depth) : depth_(depth)
            {
                ++*depth_;
            }
            ~inside()
            {
                --*depth_;
            }
            int *depth_;
        } guard(&t->light_depth);
        bool loses = false;
        quietly([&] {
            loses = cuts_ && cut_begins(*t, *op_, *stack, n_arguments_);
            if (op_->n_writes > 0) {
                writes_begin(*t, *op_, *stack, n_arguments_);
            }
        });
        try {
            pass_on(op, next, stack);
        } catch (...) {
            if (op_->n_writes > 0) {
                quietly([&] { end_writes(*t, true); });
            }
            throw;
        }
        quietly([&] {
            if (op_->n_writes > 0) {
                end_writes(*t, false);
            }
            if (loses) {
                cut_ends(*t, *stack, n_returns_);
            }
        });
    }

private:
    static void pass_on(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack)
    {
        c10::impl::ExcludeDispatchKeyGuard excluded(watch_key);
        op.redispatchBoxed(keys, stack);
    }

    const op_class *op_;
    std::size_t n_arguments_, n_returns_;
    bool cuts_;
};

/* What is registered, for ever. Under its own lock, which nothing below waits for anything but the dispatcher's. */
struct registry {
    std::mutex mutex;
    std::unordered_set<c10::OperatorName> seen;
    std::vector<c10::RegistrationHandleRAII> kernels;
    bool fallback = false;
};

registry &registered()
{
    static auto *one = new registry();
    return *one;
}

/* Told of ops that are defined later. Called under the dispatcher's lock: what is to be done waits. */
std::atomic<bool> more_ops{false};

class listener final : public c10::OpRegistrationListener
{
public:
    void onOperatorRegistered(const c10::OperatorHandle &) override
    {
        more_ops.store(true, std::memory_order_relaxed);
    }
    void onOperatorDeregistered(const c10::OperatorHandle &) override
    {
    }
};

void register_op(registry &all, const c10::OperatorHandle &op)
{
    const c10::FunctionSchema &schema = op.schema();
    if (!all.seen.insert(op.operator_name()).second) {
        return;
    }
    std::unique_ptr<op_class> known = op_of_schema(schema, schema.name().c_str());
    bool cuts = can_cut(known->name);
    if (known->n_writes == 0 && !cuts) {
        std::free(known->name);
        return;
    }
    auto kernel = std::make_unique<watching_kernel>(known.release(), schema.arguments().size(),
                                                    schema.returns().size(), cuts);
    all.kernels.push_back(c10::Dispatcher::singleton().registerImpl(
        op.operator_name(), watch_key,
        c10::KernelFunction::makeFromBoxedFunctor<watching_kernel>(std::move(kernel)), std::nullopt, nullptr,
        "torchgraphdbg"));
}

void register_all(registry &all)
{
    more_ops.store(false, std::memory_order_relaxed);
    c10::Dispatcher &dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
        auto op = dispatcher.findSchema(name);
        if (op.has_value() && !op->schema().is_vararg() && !op->schema().is_varret()) {
            register_op(all, *op);
        }
    }
}

} // namespace

void register_kernels()
{
    registry &all = registered();
    std::lock_guard<std::mutex> lock(all.mutex);
    c10::Dispatcher &dispatcher = c10::Dispatcher::singleton();
    if (!all.fallback) {
        all.kernels.push_back(
            dispatcher.registerFallback(watch_key, c10::KernelFunction::makeFallthrough(), "torchgraphdbg"));
        all.fallback = true;
        all.kernels.push_back(dispatcher.addRegistrationListener(std::make_unique<listener>()));
        more_ops.store(true);
    }
    if (more_ops.load(std::memory_order_relaxed)) {
        register_all(all);
    }
}

void join_thread() noexcept
{
    if (!c10::impl::tls_is_dispatch_key_included(watch_key)) {
        c10::impl::tls_set_dispatch_key_included(watch_key, true);
    }
}

void leave_thread() noexcept
{
    if (c10::impl::tls_is_dispatch_key_included(watch_key)) {
        c10::impl::tls_set_dispatch_key_included(watch_key, false);
    }
}

void register_later_ops()
{
    if (more_ops.load(std::memory_order_relaxed)) {
        register_kernels();
    }
}

} // namespace tgd

extern "C" uint64_t tgd_light_key_bits(void)
{
    return c10::DispatchKeySet(tgd::watch_key).raw_repr();
}
