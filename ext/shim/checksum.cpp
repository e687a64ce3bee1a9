#include "checksum.h"

#include <algorithm>
#include <cstring>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/variable.h>

#include "compat.h"
#include "identity.h"

namespace tgd
{
namespace
{

constexpr std::size_t most_nodes = 256; /* of one op */
constexpr int most_dimensions = 16;
constexpr std::uint64_t prime = 0x9E3779B185EBCA87u, other_prime = 0xC2B2AE3D27D4EB4Fu;

std::atomic<int> wanted{0};

std::uint64_t word(const char *at)
{
    std::uint64_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value)
{
    hash ^= value * other_prime;
    hash = (hash << 31 | hash >> 33) * prime;
    return hash;
}

/* Four lanes of eight bytes, so that memory is what it waits for. Not against an adversary. */
std::uint64_t hash_block(std::uint64_t hash, const char *bytes, std::size_t n)
{
    std::uint64_t lanes[4] = {hash, hash + prime, hash ^ other_prime, hash - prime};
    std::size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        for (std::size_t k = 0; k < 4; k++) {
            lanes[k] = mixed(lanes[k], word(bytes + i + 8 * k));
        }
    }
    hash = mixed(mixed(mixed(mixed(n, lanes[0]), lanes[1]), lanes[2]), lanes[3]);
    for (; i < n; i++) {
        hash = mixed(hash, static_cast<unsigned char>(bytes[i]) + 1u);
    }
    return hash ^ hash >> 29;
}

/* Dimensions that are read, outermost first; what is repeated (stride 0) counts once. */
struct layout {
    int n = 0;
    std::int64_t size[most_dimensions], stride[most_dimensions]; /* bytes */
};

std::uint64_t hash_strided(std::uint64_t hash, const char *data, const layout &dims, int depth, std::size_t run)
{
    if (depth == dims.n) {
        return hash_block(hash, data, run);
    }
    for (std::int64_t i = 0; i < dims.size[depth]; i++) {
        hash = hash_strided(hash, data + i * dims.stride[depth], dims, depth + 1, run);
    }
    return hash;
}

std::uint64_t sum_of(const c10::TensorImpl *impl)
{
    if (!impl->has_storage() || !impl->device().is_cpu() || impl->layout() != c10::kStrided ||
        impl->is_python_dispatch() || impl->has_symbolic_sizes_strides() || impl->numel() == 0 ||
        impl->dim() > most_dimensions) {
        return 0;
    }
    const c10::StorageImpl *storage = impl->unsafe_storage().unsafeGetStorageImpl();
    const auto itemsize = static_cast<std::int64_t>(impl->itemsize());
    const c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
    layout dims;
    std::int64_t end = impl->storage_offset() + 1;
    for (std::size_t i = 0; i < sizes.size(); i++) {
        end += (sizes[i] - 1) * strides[i];
        if (sizes[i] > 1 && strides[i] != 0) {
            dims.size[dims.n] = sizes[i];
            dims.stride[dims.n++] = strides[i] * itemsize;
        }
    }
    const auto *data = static_cast<const char *>(storage->data());
    if (data == nullptr || static_cast<std::uint64_t>(end * itemsize) > storage->nbytes()) {
        return 0;
    }
    std::int64_t run = itemsize; /* bytes that lie together, from the innermost dimension outwards */
    while (dims.n > 0 && dims.stride[dims.n - 1] == run) {
        run *= dims.size[--dims.n];
    }
    const std::uint64_t hash = hash_strided(prime, data + impl->storage_offset() * itemsize, dims, 0,
                                            static_cast<std::size_t>(run));
    return hash == 0 ? 1 : hash;
}

struct summing {
    std::vector<tgd_sum_row> *rows;
    tgd_sum_row row;
};

/* tgd_torch_saved_visitor: places as walk.c counts them. */
int add_sum(void *context, const tgd_torch_saved *saved)
{
    auto *s = static_cast<summing *>(context);
    if ((saved->flags & TGD_SV_RAISES) != 0) {
        return 0;
    }
    s->row.sum = tgd_torch_tensor_sum(reinterpret_cast<const tgd_torch_tensor *>(saved->tensor.address));
    s->row.version = saved->tensor.version;
    if (s->row.sum != 0) {
        s->rows->push_back(s->row);
    }
    s->row.place++;
    return 0;
}

} // namespace

bool checksums_wanted()
{
    return wanted.load(std::memory_order_relaxed) > 0;
}

void sum_outputs(thread_state &t, const at::RecordFunction &fn)
{
    std::vector<const Node *> nodes;
    const auto meet = [&](const Node *node) {
        if (node != nullptr && nodes.size() < most_nodes && node->sequence_nr() != UINT64_MAX &&
            node->sequence_nr() >= t.op.sequence_nr && node->thread_id() == t.op.thread &&
            std::find(nodes.begin(), nodes.end(), node) == nodes.end()) {
            nodes.push_back(node);
        }
    };
    for (const c10::IValue &value : fn.outputs()) {
        each_tensor(value, [&](c10::TensorImpl *impl) {
            const torch::autograd::AutogradMeta *meta = autograd_of(impl);
            meet(meta == nullptr ? nullptr : meta->grad_fn_.get());
        });
    }
    std::vector<tgd_sum_row> rows;
    for (std::size_t i = 0; i < nodes.size(); i++) {
        for (const torch::autograd::Edge &edge : nodes[i]->next_edges()) {
            meet(edge.function.get());
        }
        summing s = {&rows, {}};
        s.row.time = t.op.time;
        s.row.sequence_nr = nodes[i]->sequence_nr();
        s.row.thread = t.op.thread;
        const char *inner = nullptr;
        tgd_torch_node_saved(handle(nodes[i]), &inner, add_sum, &s);
    }
    if (!rows.empty()) {
        std::lock_guard<std::mutex> lock(t.log->mutex);
        t.log->make_room();
        t.log->now.sums.insert(t.log->now.sums.end(), rows.begin(), rows.end());
    }
}

} // namespace tgd

using namespace tgd;

extern "C" uint64_t tgd_torch_tensor_sum(const tgd_torch_tensor *tensor)
{
    std::uint64_t sum = 0;
    if (tensor != nullptr) {
        try {
            sum = sum_of(impl_of(tensor));
        } catch (...) {
            sum = 0;
        }
    }
    return sum;
}

extern "C" void tgd_observe_want_checksums(int more)
{
    wanted.fetch_add(more);
}

extern "C" int tgd_observe_checksums(void)
{
    return checksums_wanted();
}
