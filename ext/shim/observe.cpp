/*
 * Full recording by at::RecordFunction. A callback runs on the thread of the op, without the GIL, and must neither
 * throw nor wait: rows go into the thread's own buffer, under a lock that only tgd_observe_take() ever contends for.
 *
 * Identity. A tensor made by a node is known by (thread, sequence_nr, output_nr), which never comes again. A leaf, or
 * what lies below a cut, gets a number kept inside the tensor itself, as its BackendMeta: it dies with the tensor, is
 * not copied with it, and no address can be mistaken for another. Tensors that own a BackendMeta are left alone.
 */
#include "observe.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "compat.h"
#include "private_fields.h"

namespace tgd
{
namespace
{

TGD_PRIVATE(observed_version, c10::VariableVersion, version_counter_)

constexpr std::size_t most_rows = 1u << 17;   /* of a kind, in each of a thread's two generations */
constexpr std::size_t most_ids = 1u << 20;    /* the same, for ids */
constexpr std::size_t recent_runs = 8;
constexpr std::size_t most_runs = 1u << 12;
constexpr std::size_t most_modes = 64;        /* blocks of no_grad and the like within one another */
constexpr std::size_t most_tensors = 64;      /* of one op: more are not followed */

/* ---- identity ---- */

class mark final : public c10::BackendMeta
{
public:
    explicit mark(tgd_identity number) : number_(number)
    {
    }
    /* A copy is another tensor. */
    c10::intrusive_ptr<c10::BackendMeta> clone(const c10::intrusive_ptr<c10::BackendMeta> &) const override
    {
        return {};
    }
    tgd_identity number_;
};

std::atomic<tgd_identity> next_identity{1};

/* The number a tensor bears; with `make`, one is given where there is none and no other BackendMeta is in the way. */
tgd_identity marked(c10::TensorImpl *impl, bool make)
{
    c10::BackendMeta *meta = impl->get_backend_meta();
    if (meta != nullptr) {
        return typeid(*meta) == typeid(mark) ? static_cast<mark *>(meta)->number_ : 0;
    }
    if (!make) {
        return 0;
    }
    tgd_identity number = next_identity.fetch_add(1, std::memory_order_relaxed);
    impl->set_backend_meta(c10::make_intrusive<mark>(number));
    return number;
}

const torch::autograd::AutogradMeta *autograd_of(c10::TensorImpl *impl)
{
    return static_cast<torch::autograd::AutogradMeta *>(impl->autograd_meta());
}

/* 0 for a tensor that carries no grad and comes from none. */
tgd_identity identity_of(c10::TensorImpl *impl, bool *carries_grad)
{
    const torch::autograd::AutogradMeta *meta = autograd_of(impl);
    if (meta != nullptr && meta->grad_fn_ != nullptr) {
        *carries_grad = true;
        return tgd_identity_of_output(meta->grad_fn_->thread_id(), meta->grad_fn_->sequence_nr(), meta->output_nr_);
    }
    *carries_grad = meta != nullptr && meta->requires_grad_;
    return marked(impl, *carries_grad);
}

template <class Visit> void each_tensor(const c10::IValue &value, Visit &&visit)
{
    if (value.isTensor()) {
        c10::TensorImpl *impl = value.unsafeToTensorImpl();
        if (impl != nullptr && impl != static_cast<c10::TensorImpl *>(c10::UndefinedTensorImpl::singleton())) {
            visit(impl);
        }
    } else if (value.isTensorList()) {
        for (const c10::IValue &item : value.toListRef()) {
            each_tensor(item, visit);
        }
    } else if (value.isList()) {
        for (const c10::IValue &item : value.toListRef()) {
            if (!item.isTensor()) {
                break;
            }
            each_tensor(item, visit);
        }
    }
}

/* ---- ops by schema ---- */

struct op_class {
    const void *key; /* the name inside the schema: one address for each schema */
    char *name; /* Owned for ever */
    std::uint8_t n_writes;
    std::uint8_t writes[8]; /* arguments the op writes to */
};

struct op_table {
    static constexpr std::size_t size = 1u << 14;
    std::atomic<const op_class *> slots[size];
    std::mutex mutex;

    static std::size_t slot_of(const void *key)
    {
        return (reinterpret_cast<std::uintptr_t>(key) >> 3) * 0x9E3779B97F4A7C15u >> 50;
    }

    const op_class *find(const at::RecordFunction &fn)
    {
        const char *key = fn.name();
        for (std::size_t i = slot_of(key);; i = (i + 1) % size) {
            const op_class *known = slots[i].load(std::memory_order_acquire);
            if (known == nullptr) {
                return learn(fn, key);
            }
            if (known->key == key && std::strcmp(known->name, key) == 0) {
                return known;
            }
        }
    }

    /* Ranges named by a string have no schema: they are no ops. */
    const op_class *learn(const at::RecordFunction &fn, const char *key)
    {
        auto schema = fn.operator_schema();
        if (!schema.has_value()) {
            return nullptr;
        }
        auto made = std::make_unique<op_class>();
        made->key = key;
        made->n_writes = 0;
        for (std::size_t i = 0; i < schema->arguments().size() && i < 256; i++) {
            const c10::AliasInfo *alias = schema->arguments()[i].alias_info();
            if (alias != nullptr && alias->isWrite() && made->n_writes < sizeof made->writes) {
                made->writes[made->n_writes++] = static_cast<std::uint8_t>(i);
            }
        }
        made->name = strdup(schema->name().c_str());
        if (made->name == nullptr) {
            throw std::bad_alloc();
        }
        std::lock_guard<std::mutex> lock(mutex);
        if (n_known >= size / 2) {
            std::free(made->name);
            return nullptr;
        }
        std::size_t i = slot_of(key);
        for (const op_class *known; (known = slots[i].load(std::memory_order_relaxed)) != nullptr;
             i = (i + 1) % size) {
            if (known->key == key && std::strcmp(known->name, key) == 0) {
                std::free(made->name);
                return known;
            }
        }
        n_known++;
        const op_class *kept = made.release();
        slots[i].store(kept, std::memory_order_release);
        return kept;
    }

    std::size_t n_known = 0;
};

op_table &ops()
{
    static op_table *table = new op_table(); /* for ever: callbacks may outlive static destruction */
    return *table;
}

/* ---- rows ---- */

struct generation {
    std::vector<tgd_op_row> ops;
    std::vector<tgd_write_row> writes;
    std::vector<tgd_taken_row> taken;
    std::vector<tgd_identity> ids;

    bool full() const
    {
        return ops.size() >= most_rows || writes.size() >= most_rows || taken.size() >= most_rows ||
               ids.size() >= most_ids;
    }
    std::size_t rows() const
    {
        return ops.size() + writes.size() + taken.size();
    }
};

struct thread_log {
    std::mutex mutex;
    generation now, before;
    std::uint64_t dropped = 0;
    bool dead = false;

    void make_room()
    {
        if (now.full()) {
            dropped += before.rows();
            before = std::move(now);
            now = generation();
        }
    }
};

struct all_logs {
    std::mutex mutex;
    std::vector<std::shared_ptr<thread_log>> logs;
    std::vector<tgd_run_row> runs;
    std::uint64_t dropped_runs = 0;
};

all_logs &logs()
{
    static all_logs *all = new all_logs();
    return *all;
}

std::atomic<std::uint64_t> clock_of_rows{1};

std::uint64_t tick()
{
    return clock_of_rows.fetch_add(1, std::memory_order_relaxed);
}

std::atomic<const tgd_observer *> active{nullptr};

constexpr tgd_place nowhere = {TGD_NONE, -1, TGD_NONE, 0};

/* What a thread is in the middle of. */
struct thread_state {
    std::shared_ptr<thread_log> log;
    int depth = 0;    /* ops within ops */
    int backward = 0; /* backward nodes within one another */
    bool live = false, carries = false;
    int uncaught = 0;
    tgd_op_row op{};
    std::vector<tgd_identity> ids;
    std::vector<tgd_write_row> writes; /* of the outermost op, until it has ended well or badly */
    std::vector<c10::TensorImpl *> written;
    tgd_place mode_off = nowhere;
    std::vector<tgd_place> modes; /* what mode_off was in the blocks around this one, outermost first */
    std::vector<std::uint64_t> runs; /* of this thread, innermost last */
    int task = -2;
    std::uint64_t task_run = 0;

    ~thread_state()
    {
        if (log) {
            log->dead = true;
        }
    }
};

thread_state &state()
{
    thread_local thread_state mine;
    if (!mine.log) {
        auto log = std::make_shared<thread_log>();
        std::lock_guard<std::mutex> lock(logs().mutex);
        logs().logs.push_back(log);
        mine.log = std::move(log);
    }
    return mine;
}

std::uint32_t flag_if(bool on, std::uint32_t flag)
{
    return on ? flag : 0u;
}

/* A custom Function's name, kept for ever: its class may go. Bounded like the table of ops. */
const char *kept_name(const char *name)
{
    static std::mutex mutex;
    static auto *names = new std::unordered_map<std::string, std::unique_ptr<std::string>>();
    std::lock_guard<std::mutex> lock(mutex);
    auto found = names->find(name);
    if (found == names->end()) {
        if (names->size() >= 4096) {
            return "Function";
        }
        found = names->emplace(name, std::make_unique<std::string>(name)).first;
    }
    return found->second->c_str();
}

tgd_place here()
{
    tgd_place place = nowhere;
    const tgd_observer *observer = active.load(std::memory_order_acquire);
    if (observer != nullptr) {
        observer->frames.here(&place);
    }
    return place;
}

/* ---- writes ---- */

/* Would autograd refuse to let an op write to this tensor? As check_inplace() in VariableTypeUtils.h. */
bool is_refused(const c10::TensorImpl *impl)
{
    const auto *meta = static_cast<const torch::autograd::AutogradMeta *>(impl->autograd_meta());
    if (meta == nullptr || !c10::GradMode::is_enabled()) {
        return false;
    }
    if (meta->is_view_) {
        const auto *view = static_cast<const torch::autograd::DifferentiableViewMeta *>(meta);
        if (view->has_bw_view()) {
            const at::Tensor &base = view->get_backward_view().base_;
            return view->get_creation_meta() != torch::autograd::CreationMeta::DEFAULT ||
                   (base.defined() && base.requires_grad() && base.is_leaf());
        }
    }
    return meta->grad_fn_ == nullptr && meta->requires_grad_;
}

void span_of(const c10::TensorImpl *impl, std::int64_t *first, std::int64_t *end)
{
    *first = *end = 0;
    if (!impl->has_storage() || impl->has_symbolic_sizes_strides() || impl->is_python_dispatch()) {
        return;
    }
    c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
    std::int64_t last = impl->storage_offset();
    for (std::size_t i = 0; i < sizes.size(); i++) {
        if (sizes[i] == 0) {
            return;
        }
        last += (sizes[i] - 1) * strides[i];
    }
    auto itemsize = static_cast<std::int64_t>(impl->itemsize());
    *first = impl->storage_offset() * itemsize;
    *end = (last + 1) * itemsize;
}

void note_write(thread_state &t, c10::TensorImpl *impl, std::uint32_t argument)
{
    if (impl->is_inference() || t.writes.size() >= 4096) {
        return;
    }
    tgd_write_row row{};
    row.sequence_nr = t.op.sequence_nr;
    row.thread = t.op.thread;
    row.name = t.op.name;
    row.place = t.op.place;
    row.flags = t.op.flags | flag_if(t.backward > 0, TGD_OP_IN_BACKWARD);
    row.tensor = reinterpret_cast<std::uintptr_t>(impl);
    row.version_counter = reinterpret_cast<std::uintptr_t>((impl->version_counter().*field(observed_version{})).get());
    row.version = impl->version_counter().current_version();
    row.argument = argument;
    if (impl->has_storage()) {
        row.storage = reinterpret_cast<std::uintptr_t>(impl->unsafe_storage().unsafeGetStorageImpl());
    }
    span_of(impl, &row.first_byte, &row.end_byte);
    const torch::autograd::AutogradMeta *meta = autograd_of(impl);
    if (meta != nullptr && meta->grad_fn_ != nullptr) {
        row.identity = tgd_identity_of_output(meta->grad_fn_->thread_id(), meta->grad_fn_->sequence_nr(),
                                              meta->output_nr_);
    }
    row.view = meta != nullptr && meta->is_view_;
    row.leaf = meta == nullptr || meta->grad_fn_ == nullptr;
    t.writes.push_back(row);
    t.written.push_back(impl);
}

/* ---- ops ---- */

void function_began(const at::RecordFunction &fn, thread_state &t)
{
    /* A custom Function: named by its class, with the sequence number of the node it makes. Its forward's ops are
       recorded on their own. */
    std::size_t n = 0;
    bool carries = false, any = false;
    std::vector<tgd_identity> ids;
    for (const c10::IValue &value : fn.inputs()) {
        each_tensor(value, [&](c10::TensorImpl *impl) {
            bool grad = false;
            tgd_identity id = identity_of(impl, &grad);
            if (id != 0 && n < most_tensors) {
                ids.push_back(id);
                n++;
            }
            carries = carries || grad;
            any = any || id != 0;
        });
    }
    if (!any) {
        return;
    }
    tgd_op_row row{};
    row.time = tick();
    row.sequence_nr = static_cast<std::uint64_t>(fn.seqNr());
    row.thread = at::RecordFunction::currentThreadId();
    row.name = kept_name(fn.name());
    row.place = here();
    row.mode = nowhere;
    row.flags = TGD_OP_FUNCTION | flag_if(c10::GradMode::is_enabled(), TGD_OP_GRAD_MODE);
    row.n_in = static_cast<std::uint16_t>(n);
    if (carries) {
        for (std::uint32_t nr = 0; nr < 8; nr++) {
            ids.push_back(tgd_identity_of_output(row.thread, row.sequence_nr, nr));
        }
        row.n_out = 8;
    }
    std::lock_guard<std::mutex> lock(t.log->mutex);
    t.log->make_room();
    row.first_id = static_cast<std::uint32_t>(t.log->now.ids.size());
    t.log->now.ids.insert(t.log->now.ids.end(), ids.begin(), ids.end());
    t.log->now.ops.push_back(row);
}

void op_began(const at::RecordFunction &fn)
{
    thread_state &t = state();
    const op_class *op = ops().find(fn);
    if (op == nullptr) {
        if (fn.seqNr() >= 0 && t.backward == 0 && fn.scope() == at::RecordScope::FUNCTION && fn.inputs().size() > 0) {
            function_began(fn, t);
        }
        return;
    }
    if (t.depth++ > 0) {
        return;
    }
    t.live = t.carries = false;
    t.ids.clear();
    t.writes.clear();
    t.written.clear();
    bool follow = t.backward == 0 || c10::GradMode::is_enabled();
    if (!follow && op->n_writes == 0) {
        return;
    }
    t.op = tgd_op_row{};
    t.op.sequence_nr = static_cast<std::uint64_t>(at::sequence_number::peek());
    t.op.thread = at::RecordFunction::currentThreadId();
    t.op.name = op->name;
    t.op.place = t.op.mode = nowhere;
    t.op.flags = flag_if(c10::GradMode::is_enabled(), TGD_OP_GRAD_MODE) |
                 flag_if(c10::InferenceMode::is_enabled(), TGD_OP_INFERENCE) |
                 flag_if(t.backward > 0, TGD_OP_IN_BACKWARD);
    t.uncaught = std::uncaught_exceptions();
    if (follow) {
        for (const c10::IValue &value : fn.inputs()) {
            each_tensor(value, [&](c10::TensorImpl *impl) {
                bool grad = false;
                tgd_identity id = t.ids.size() < most_tensors ? identity_of(impl, &grad) : 0;
                if (id != 0) {
                    t.ids.push_back(id);
                    t.carries = t.carries || grad;
                }
            });
        }
    }
    t.op.n_in = static_cast<std::uint16_t>(t.ids.size());
    t.live = !t.ids.empty();
    if (t.live || op->n_writes > 0) {
        t.op.time = tick();
        t.op.place = here();
    }
    for (std::uint8_t k = 0; k < op->n_writes; k++) {
        if (op->writes[k] < fn.inputs().size()) {
            std::uint32_t argument = 0;
            each_tensor(fn.inputs()[op->writes[k]], [&](c10::TensorImpl *impl) { note_write(t, impl, argument++); });
        }
    }
}

/* Where grad mode was switched off, for an op that loses the gradient because of it. */
tgd_place mode_place(const thread_state &t)
{
    tgd_place place = nowhere;
    const tgd_observer *observer = active.load(std::memory_order_acquire);
    if (observer == nullptr) {
        return place;
    }
    if (t.mode_off.via & TGD_VIA_DECORATOR) {
        observer->frames.decorated(&place);
    } else if (t.op.place.via & TGD_VIA_CHECKPOINT) {
        observer->frames.checkpoint(&place);
    }
    return place.code != TGD_NONE ? place : t.mode_off;
}

void outputs_of(const at::RecordFunction &fn, thread_state &t)
{
    std::size_t n_in = t.ids.size();
    bool lost = false;
    for (const c10::IValue &value : fn.outputs()) {
        each_tensor(value, [&](c10::TensorImpl *impl) {
            if (t.ids.size() - n_in >= most_tensors) {
                return;
            }
            bool grad = false;
            tgd_identity id = identity_of(impl, &grad);
            if (!grad) {
                lost = true;
                id = marked(impl, true);
                if (c10::isIntegralType(c10::typeMetaToScalarType(impl->dtype()), true)) {
                    t.op.flags |= TGD_OP_INTEGER_OUT;
                }
            }
            t.ids.push_back(id);
        });
    }
    t.op.n_out = static_cast<std::uint16_t>(t.ids.size() - n_in);
    if (t.carries && (lost || t.op.n_out == 0)) {
        t.op.flags |= TGD_OP_CUT;
        if (!(t.op.flags & TGD_OP_GRAD_MODE)) {
            t.op.mode = mode_place(t);
        }
    }
}

void op_ended(const at::RecordFunction &fn)
{
    thread_state &t = state();
    if (t.depth == 0 || ops().find(fn) == nullptr || --t.depth > 0 || (!t.live && t.writes.empty())) {
        return;
    }
    bool threw = std::uncaught_exceptions() > t.uncaught;
    if (threw) {
        t.op.flags |= TGD_OP_THREW;
    } else if (t.live) {
        outputs_of(fn, t);
    }
    {
        std::lock_guard<std::mutex> lock(t.log->mutex);
        t.log->make_room();
        if (t.live) {
            t.op.first_id = static_cast<std::uint32_t>(t.log->now.ids.size());
            t.log->now.ids.insert(t.log->now.ids.end(), t.ids.begin(), t.ids.end());
            t.log->now.ops.push_back(t.op);
        }
        for (tgd_write_row &row : t.writes) {
            row.time = t.op.time;
            row.place = t.op.place;
            row.flags |= flag_if(threw, TGD_OP_THREW);
            t.log->now.writes.push_back(row);
        }
    }
    const tgd_observer *observer = active.load(std::memory_order_acquire);
    if (threw && !t.writes.empty() && observer != nullptr && observer->refused != nullptr) {
        auto culprit = std::find_if(t.written.begin(), t.written.end(), is_refused);
        if (culprit == t.written.end()) {
            return; /* it failed for another reason */
        }
        tgd_write_row row = t.writes[static_cast<std::size_t>(culprit - t.written.begin())];
        c10::TensorImpl *impl = *culprit;
        t.writes.clear();
        t.written.clear();
        observer->refused(observer->context, handle(impl), &row);
    }
}

/* ---- backward ---- */

std::uint64_t add_run(const tgd_place &place, bool keep_graph, bool create_graph)
{
    tgd_run_row row{};
    row.time = tick();
    row.place = place;
    row.keep_graph = keep_graph;
    row.create_graph = create_graph;
    std::lock_guard<std::mutex> lock(logs().mutex);
    if (logs().runs.size() >= most_runs) {
        logs().runs.erase(logs().runs.begin(), logs().runs.begin() + most_runs / 2);
        logs().dropped_runs += most_runs / 2;
    }
    logs().runs.push_back(row);
    return row.time;
}

std::atomic<std::uint64_t> latest_run{0};

void node_began(const at::RecordFunction &)
{
    thread_state &t = state();
    t.backward++;
    int task = torch::autograd::get_current_graph_task_id();
    auto node = torch::autograd::get_current_node();
    if (task < 0 || node == nullptr) {
        return;
    }
    if (task != t.task) {
        t.task = task;
        if (!t.runs.empty()) {
            t.task_run = t.runs.back();
        } else if (latest_run.load() != 0) {
            t.task_run = latest_run.load(); /* a device's thread, at work for another */
        } else {
            t.task_run = add_run(here(), torch::autograd::get_current_graph_task_keep_graph(), false);
        }
    }
    if (node->sequence_nr() == UINT64_MAX) {
        return; /* AccumulateGrad: never freed */
    }
    tgd_taken_row row = {node->sequence_nr(), node->thread_id(), t.task_run};
    std::lock_guard<std::mutex> lock(t.log->mutex);
    t.log->make_room();
    t.log->now.taken.push_back(row);
}

void node_ended()
{
    thread_state &t = state();
    if (t.backward > 0) {
        t.backward--;
    }
}

/* ---- callbacks: nothing may leave them ---- */

std::atomic<std::uint64_t> failures{0};

template <class Body> void quietly(Body body) noexcept
{
    try {
        body();
    } catch (...) {
        failures.fetch_add(1, std::memory_order_relaxed);
    }
}

std::unique_ptr<at::ObserverContext> on_op(const at::RecordFunction &fn)
{
    quietly([&] { op_began(fn); });
    return nullptr;
}

void on_op_end(const at::RecordFunction &fn, at::ObserverContext *)
{
    quietly([&] { op_ended(fn); });
}

std::unique_ptr<at::ObserverContext> on_node(const at::RecordFunction &fn)
{
    quietly([&] { node_began(fn); });
    return nullptr;
}

void on_node_end(const at::RecordFunction &, at::ObserverContext *)
{
    quietly([] { node_ended(); });
}

struct session {
    std::mutex mutex;
    int count = 0;
    at::CallbackHandle op = 0, node = 0;
};

session &recording()
{
    static session *one = new session();
    return *one;
}

template <class Row> Row *copy_rows(const std::vector<Row> &rows)
{
    auto *copy = static_cast<Row *>(std::malloc((rows.size() + 1) * sizeof(Row)));
    if (copy == nullptr) {
        throw std::bad_alloc();
    }
    if (!rows.empty()) {
        std::memcpy(copy, rows.data(), rows.size() * sizeof(Row));
    }
    return copy;
}

/* A thread's rows come in the order of their times, but for a few that overlap: from a little before on. */
template <class Row, class Time>
typename std::vector<Row>::const_iterator from(const std::vector<Row> &rows, std::uint64_t since, Time time)
{
    auto first = std::lower_bound(rows.begin(), rows.end(), since,
                                  [&](const Row &row, std::uint64_t wanted) { return time(row) < wanted; });
    constexpr std::ptrdiff_t overlap = 64;
    return first - std::min<std::ptrdiff_t>(first - rows.begin(), since == 0 ? 0 : overlap);
}

void gather(generation &all, const generation &part, std::uint64_t since)
{
    auto time = [](const auto &row) { return row.time; };
    for (auto row = from(part.ops, since, time); row != part.ops.end(); ++row) {
        if (row->time >= since) {
            auto first = part.ids.begin() + row->first_id;
            all.ops.push_back(*row);
            all.ops.back().first_id = static_cast<std::uint32_t>(all.ids.size());
            all.ids.insert(all.ids.end(), first, first + row->n_in + row->n_out);
        }
    }
    for (auto row = from(part.writes, since, time); row != part.writes.end(); ++row) {
        if (row->time >= since) {
            all.writes.push_back(*row);
        }
    }
    auto run = [](const tgd_taken_row &row) { return row.run; };
    for (auto row = from(part.taken, since, run); row != part.taken.end(); ++row) {
        if (row->run >= since) {
            all.taken.push_back(*row);
        }
    }
}

} // namespace
} // namespace tgd

using namespace tgd;

extern "C" tgd_status tgd_observe_start(const tgd_observer *observer, tgd_error *err)
{
    return guarded(err, [&] {
        session &one = recording();
        std::lock_guard<std::mutex> lock(one.mutex);
        if (one.count++ > 0) {
            return;
        }
        active.store(observer, std::memory_order_release);
        at::RecordFunctionCallback op(on_op, on_op_end);
        op.needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION});
        one.op = at::addGlobalCallback(op);
        at::RecordFunctionCallback node(on_node, on_node_end);
        node.scopes({at::RecordScope::BACKWARD_FUNCTION});
        one.node = at::addGlobalCallback(node);
    });
}

extern "C" void tgd_observe_stop(void)
{
    (void)guarded(nullptr, [] {
        session &one = recording();
        std::lock_guard<std::mutex> lock(one.mutex);
        if (one.count == 0 || --one.count > 0) {
            return;
        }
        at::removeCallback(one.op);
        at::removeCallback(one.node);
        active.store(nullptr, std::memory_order_release);
        std::lock_guard<std::mutex> all(logs().mutex);
        for (const std::shared_ptr<thread_log> &log : logs().logs) {
            std::lock_guard<std::mutex> own(log->mutex);
            log->now = generation();
            log->before = generation();
            log->dropped = 0;
        }
        auto dead = [](const std::shared_ptr<thread_log> &log) { return log->dead; };
        auto &list = logs().logs;
        list.erase(std::remove_if(list.begin(), list.end(), dead), list.end());
        logs().runs.clear();
        latest_run.store(0);
    });
}

extern "C" tgd_status tgd_observe_take(tgd_record **out, uint64_t since, tgd_error *err)
{
    return guarded(err, [&] {
        generation all;
        std::vector<tgd_run_row> runs;
        std::uint64_t dropped = 0;
        {
            std::lock_guard<std::mutex> lock(logs().mutex);
            for (const std::shared_ptr<thread_log> &log : logs().logs) {
                std::lock_guard<std::mutex> own(log->mutex);
                gather(all, log->before, since);
                gather(all, log->now, since);
                dropped += log->dropped;
            }
            runs = logs().runs;
            dropped += logs().dropped_runs;
        }
        auto earlier = [](const auto &a, const auto &b) { return a.time < b.time; };
        std::stable_sort(all.ops.begin(), all.ops.end(), earlier);
        std::stable_sort(all.writes.begin(), all.writes.end(), earlier);
        auto *made = static_cast<tgd_record *>(std::calloc(1, sizeof(tgd_record)));
        if (made == nullptr) {
            throw std::bad_alloc();
        }
        made->shares = 1;
        std::unique_ptr<tgd_record, void (*)(const tgd_record *)> record(made, tgd_record_free);
        record->ops = copy_rows(all.ops);
        record->writes = copy_rows(all.writes);
        record->runs = copy_rows(runs);
        record->taken = copy_rows(all.taken);
        record->ids = copy_rows(all.ids);
        record->n_ops = static_cast<std::uint32_t>(all.ops.size());
        record->n_writes = static_cast<std::uint32_t>(all.writes.size());
        record->n_runs = static_cast<std::uint32_t>(runs.size());
        record->n_taken = static_cast<std::uint32_t>(all.taken.size());
        record->n_ids = static_cast<std::uint32_t>(all.ids.size());
        record->dropped = dropped + failures.load();
        record->began = since;
        *out = record.release();
    });
}

extern "C" uint64_t tgd_observe_now(void)
{
    return clock_of_rows.load();
}

extern "C" uint64_t tgd_observe_recent(void)
{
    std::uint64_t since = 0;
    quietly([&] {
        std::lock_guard<std::mutex> lock(logs().mutex);
        std::size_t n = logs().runs.size();
        since = n > recent_runs ? logs().runs[n - recent_runs].time : 0;
    });
    return since;
}

extern "C" void tgd_observe_grad_mode(int enabled)
{
    quietly([&] {
        if (active.load() != nullptr) {
            thread_state &t = state();
            tgd_place place = here(), before = nowhere;
            if (place.via & TGD_VIA_RESTORE) {
                if (!t.modes.empty()) {
                    before = t.modes.back();
                    t.modes.pop_back();
                }
                t.mode_off = enabled ? nowhere : before;
                return;
            }
            if (t.modes.size() >= most_modes) { /* set, and never restored */
                t.modes.erase(t.modes.begin(), t.modes.begin() + most_modes / 2);
            }
            t.modes.push_back(t.mode_off);
            t.mode_off = enabled ? nowhere : place;
        }
    });
}

extern "C" void tgd_observe_resize(uint64_t storage)
{
    quietly([&] {
        if (active.load() == nullptr) {
            return;
        }
        thread_state &t = state();
        tgd_write_row row{};
        row.time = tick();
        row.thread = at::RecordFunction::currentThreadId();
        row.storage = storage;
        row.name = "resize_";
        row.place = here();
        row.flags = TGD_OP_RESIZED;
        std::lock_guard<std::mutex> lock(t.log->mutex);
        t.log->make_room();
        t.log->now.writes.push_back(row);
    });
}

extern "C" void tgd_observe_run(int keep_graph, int create_graph)
{
    quietly([&] {
        if (active.load() != nullptr) {
            std::uint64_t run = add_run(here(), keep_graph != 0, create_graph != 0);
            state().runs.push_back(run);
            latest_run.store(run);
        }
    });
}

extern "C" void tgd_observe_run_ended(int failed)
{
    quietly([&] {
        thread_state &t = state();
        if (t.runs.empty()) {
            return;
        }
        std::uint64_t run = t.runs.back();
        t.runs.pop_back();
        latest_run.store(t.runs.empty() ? 0 : t.runs.back());
        std::lock_guard<std::mutex> lock(logs().mutex);
        for (std::size_t i = logs().runs.size(); i-- > 0;) {
            if (logs().runs[i].time == run) {
                logs().runs[i].failed = failed != 0;
                break;
            }
        }
    });
}

extern "C" tgd_identity tgd_torch_identity(const tgd_torch_tensor *tensor)
{
    tgd_identity id = 0;
    quietly([&] {
        bool grad = false;
        c10::TensorImpl *impl = impl_of(tensor);
        const torch::autograd::AutogradMeta *meta = autograd_of(impl);
        id = meta != nullptr && meta->grad_fn_ != nullptr ? identity_of(impl, &grad) : marked(impl, false);
    });
    return id;
}
