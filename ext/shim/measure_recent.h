/*
 * Gradients that were looked at lately on a thread: many nodes hand on the very memory that they were given (view,
 * transpose, add, the sums' expand), and it need not be read again.
 */
#ifndef TGD_MEASURE_RECENT_H
#define TGD_MEASURE_RECENT_H

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>

#include "shim.h"
#include "statistics.h"

namespace tgd
{

class recent_gradients
{
public:
    /* What was found of a tensor with just these elements in any order, or NULL. Whoever writes to them in between
       counts its version up; where something runs that may not (a hook, a node in Python), forget() has to be called. */
    const tgd_statistics *find(const c10::TensorImpl *impl, const tgd_torch_tensor_info &info) const
    {
        if (!whole(impl, info)) {
            return nullptr;
        }
        for (const entry &one : entries_) {
            if (one.numel == info.numel && one.data == info.data && one.version_counter == info.version_counter &&
                one.version == info.version && one.dtype == info.dtype && one.negated == impl->is_neg() &&
                one.conjugated == impl->is_conj() &&
                one.storage._unsafe_get_target() == impl->unsafe_storage().unsafeGetStorageImpl()) {
                return &one.statistics;
            }
        }
        return nullptr;
    }

    void remember(const c10::TensorImpl *impl, const tgd_torch_tensor_info &info, const tgd_statistics &statistics)
    {
        if (!whole(impl, info)) {
            return;
        }
        entry &one = entries_[next_++ % most];
        /* Keeps the storage's address from being used again, and nothing of what it holds. */
        one.storage = impl->unsafe_storage().getWeakStorageImpl();
        one.numel = info.numel;
        one.data = info.data;
        one.version_counter = info.version_counter;
        one.version = info.version;
        one.dtype = info.dtype;
        one.negated = impl->is_neg();
        one.conjugated = impl->is_conj();
        one.statistics = statistics;
    }

    void forget()
    {
        if (next_ > 0) {
            for (entry &one : entries_) {
                one = entry();
            }
            next_ = 0;
        }
    }

private:
    static constexpr std::size_t most = 8;

    struct entry {
        c10::weak_intrusive_ptr<c10::StorageImpl> storage{
            c10::intrusive_ptr<c10::StorageImpl>()}; /* of the tensor */
        std::int64_t numel = -1;
        std::uint64_t data = 0, version_counter = 0;
        std::uint32_t version = 0;
        std::int8_t dtype = -1;
        bool negated = false, conjugated = false;
        tgd_statistics statistics{};
    };

    /* Are its elements all that lie between its first and its last one, each once? */
    static bool whole(const c10::TensorImpl *impl, const tgd_torch_tensor_info &info)
    {
        return info.numel > least && info.version_counter != 0 && (info.flags & TGD_TENSOR_HAS_STORAGE) != 0 &&
               (info.flags & (TGD_TENSOR_WRAPPER | TGD_TENSOR_SUBCLASS | TGD_TENSOR_SYMBOLIC | TGD_TENSOR_NESTED)) == 0 &&
               info.device_type == static_cast<std::int8_t>(c10::DeviceType::CPU) &&
               impl->is_non_overlapping_and_dense();
    }
    static constexpr std::int64_t least = 256; /* below that, looking is as fast */

    entry entries_[most];
    std::size_t next_ = 0;
};

} // namespace tgd

#endif
