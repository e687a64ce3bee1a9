#include "op_table.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include <ATen/core/function_schema.h>

namespace tgd
{
namespace
{

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
        auto made = op_of_schema(*schema, key);
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

} // namespace

std::unique_ptr<op_class> op_of_schema(const c10::FunctionSchema &schema, const void *key)
{
    auto made = std::make_unique<op_class>();
    made->key = key;
    made->n_writes = 0;
    for (std::size_t i = 0; i < schema.arguments().size() && i < 256; i++) {
        const c10::AliasInfo *alias = schema.arguments()[i].alias_info();
        if (alias != nullptr && alias->isWrite() && made->n_writes < sizeof made->writes) {
            made->writes[made->n_writes++] = static_cast<std::uint8_t>(i);
        }
    }
    made->name = strdup(schema.name().c_str());
    if (made->name == nullptr) {
        throw std::bad_alloc();
    }
    return made;
}

const op_class *op_of(const at::RecordFunction &fn)
{
    return ops().find(fn);
}

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

} // namespace tgd
