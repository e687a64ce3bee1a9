/*
 * Where nodes were made. While anomaly mode is on, a node asks the default engine for its metadata as it is made and
 * tells it to store the stack: the engine stub below answers with metadata of ours. What the user sees of anomaly mode
 * is as without us: torch's own metadata does all it did while the user's mode is on, and nothing is printed or checked
 * while it is off.
 */
#include "light.h"

#include <cstring>
#include <typeinfo>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "light_python.h"
#include "private_fields.h"

namespace tgd
{

using torch::autograd::AnomalyMode;
using torch::autograd::edge_list;
using torch::autograd::Engine;
using torch::autograd::variable_list;

namespace
{

TGD_PRIVATE(anomaly_metadata, Node, anomaly_metadata_)

/* The user's own anomaly mode, as Python last set it. */
std::atomic<bool> user_enabled{false}, user_checks_nan{true};
std::atomic<bool> listening{false};

std::atomic<tgd_dict_reader> dict_of{nullptr};

/* A DetectAnomalyGuard of C++ sets the flags without telling us: we never set the second one. */
bool user_mode()
{
    return user_enabled.load(std::memory_order_relaxed) ||
           (AnomalyMode::is_enabled() && AnomalyMode::should_check_nan());
}

/* What PyTorch would have said without us. The type of the error and where it was thrown stay. */
[[noreturn]] void throw_plain(const c10::Error &error)
{
    std::string text = error.msg();
    std::size_t at = text.find(TGD_HINT_ANOMALY_ON);
    if (typeid(error) != typeid(c10::Error) || at == std::string::npos || user_mode()) {
        throw;
    }
    text.replace(at, std::strlen(TGD_HINT_ANOMALY_ON), TGD_HINT_ANOMALY_OFF);
    throw c10::Error(text, error.backtrace());
}

/* Stands in for the engine that is really there, which does all the work. C++ callers of backward come through here;
   Python's go to the real one. Lives for ever: the distributed engine may hold on to it. */
class listening_engine final : public Engine
{
public:
    explicit listening_engine(Engine &real) : real_(real)
    {
    }
    ~listening_engine() override
    {
        stop();
    }
    variable_list execute(const edge_list &roots, const variable_list &inputs, bool keep_graph, bool create_graph,
                          bool accumulate_grad, const edge_list &outputs) override
    {
        if (!light_on.load(std::memory_order_relaxed)) {
            return real_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
        }
        struct told {
            told(bool keep, bool create)
            {
                tgd_observe_run(keep, create);
            }
            ~told()
            {
                tgd_observe_run_ended(failed);
            }
            bool failed = true;
        } run(keep_graph, create_graph);
        if (!keep_graph) {
            quietly([&] { mark(roots, outputs, !accumulate_grad); });
        }
        try {
            auto result = real_.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
            run.failed = false;
            return result;
        } catch (const c10::Error &error) {
            throw_plain(error);
        }
    }
    auto execute_with_graph_task(const std::shared_ptr<torch::autograd::GraphTask> &task, node_pointer root,
                                 torch::autograd::InputBuffer &&buffer)
        -> decltype(std::declval<Engine &>().execute_with_graph_task(task, root, std::move(buffer))) override
    {
        return real_.execute_with_graph_task(task, std::move(root), std::move(buffer));
    }
    std::unique_ptr<AnomalyMetadata> make_anomaly_metadata() override
    {
        auto made = std::make_unique<node_metadata>();
        if (user_mode()) {
            made->complete();
        }
        return made;
    }
    std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override
    {
        return real_.get_default_saved_variable_hooks();
    }
    Engine &real()
    {
        return real_;
    }

private:
    static void mark(const edge_list &roots, const edge_list &outputs, bool captures)
    {
        std::vector<const Node *> from, to;
        for (const torch::autograd::Edge &edge : roots) {
            from.push_back(edge.function.get());
        }
        for (const torch::autograd::Edge &edge : outputs) {
            to.push_back(edge.function.get());
        }
        mark_run({from.data(), from.size(), to.data(), to.size(), captures}, state().runs.back());
    }

    Engine &real_;
};

std::atomic<listening_engine *> stand_in{nullptr};

Engine &stand_in_stub()
{
    return *stand_in.load();
}

Engine &real_stub()
{
    return stand_in.load()->real();
}

} // namespace

void node_metadata::complete()
{
    if (theirs == nullptr) {
        theirs = stand_in.load()->real().make_anomaly_metadata();
        tgd_dict_reader read = dict_of.load(std::memory_order_acquire);
        dict = read == nullptr ? nullptr : read(theirs.get());
    }
}

void node_metadata::store_stack()
{
    if (light_on.load(std::memory_order_relaxed)) {
        quietly([this] {
            place = near();
            time = tick();
            register_later_ops();
        });
        join_thread();
    }
    if (theirs != nullptr) {
        theirs->store_stack();
    }
}

void node_metadata::print_stack(const std::string &current_node_name)
{
    if (user_mode()) {
        complete(); /* a node made before the user's mode was on: torch says that it knows nothing */
        theirs->print_stack(current_node_name);
    }
}

/* A node made by backward stands for the forward line of the node that made it. */
void node_metadata::assign_parent(const node_pointer &parent)
{
    if (parent != nullptr) {
        const node_metadata *made_by = metadata_of(parent.get());
        if (made_by != nullptr && made_by->place.code != TGD_NONE) {
            place = made_by->place;
        }
    }
    if (theirs != nullptr) {
        theirs->assign_parent(parent);
    }
}

node_metadata *metadata_of(const Node *node) noexcept
{
    AnomalyMetadata *metadata = (node->*field(anomaly_metadata{})).get();
    return metadata != nullptr && typeid(*metadata) == typeid(node_metadata) ? static_cast<node_metadata *>(metadata)
                                                                            : nullptr;
}

void start_nodes()
{
    if (stand_in.load() == nullptr) {
        stand_in.store(new listening_engine(Engine::get_default_engine()));
    }
    user_enabled.store(AnomalyMode::is_enabled());
    user_checks_nan.store(AnomalyMode::should_check_nan());
    torch::autograd::set_default_engine_stub(stand_in_stub);
    listening.store(true);
    rearm_nodes();
}

void stop_nodes() noexcept
{
    bool enabled = user_mode();
    bool checks_nan = enabled ? AnomalyMode::should_check_nan() : user_checks_nan.load();
    listening.store(false);
    AnomalyMode::set_enabled(enabled, checks_nan);
    torch::autograd::set_default_engine_stub(real_stub);
}

void rearm_nodes() noexcept
{
    if (listening.load(std::memory_order_relaxed) && !AnomalyMode::is_enabled()) {
        AnomalyMode::set_enabled(true, false);
    }
}

} // namespace tgd

using namespace tgd;

extern "C" int tgd_torch_node_origin(const tgd_torch_node *node, tgd_node_origin *out)
{
    const node_metadata *metadata = metadata_of(node_of(node));
    if (metadata == nullptr || metadata->time == 0) {
        return 0;
    }
    out->place = metadata->place;
    out->time = metadata->time;
    out->first_run = metadata->first_run;
    out->last_run = metadata->last_run;
    return 1;
}

extern "C" int tgd_torch_has_origins(void)
{
    return stand_in.load() != nullptr;
}

/* ---- for the patched functions of Python ---- */

extern "C" void tgd_light_set_dict_reader(tgd_dict_reader reader)
{
    dict_of.store(reader, std::memory_order_release);
}

extern "C" size_t tgd_light_dict_offset(void)
{
    node_metadata probe;
    return static_cast<std::size_t>(reinterpret_cast<char *>(&probe.dict) -
                                    reinterpret_cast<char *>(static_cast<AnomalyMetadata *>(&probe)));
}

extern "C" void tgd_light_complete_metadata(const tgd_torch_node *node)
{
    quietly([&] {
        AnomalyMetadata *metadata = node_of(node)->metadata();
        if (typeid(*metadata) == typeid(node_metadata)) {
            static_cast<node_metadata *>(metadata)->complete();
        }
    });
}

extern "C" void tgd_light_anomaly_was_set(void)
{
    if (listening.load()) {
        user_enabled.store(AnomalyMode::is_enabled());
        user_checks_nan.store(AnomalyMode::should_check_nan());
        rearm_nodes();
    }
}

extern "C" int tgd_light_anomaly_enabled(void)
{
    return listening.load() ? user_mode() : AnomalyMode::is_enabled();
}

extern "C" int tgd_light_anomaly_checks_nan(void)
{
    return !listening.load() || user_mode() ? AnomalyMode::should_check_nan() : user_checks_nan.load();
}
