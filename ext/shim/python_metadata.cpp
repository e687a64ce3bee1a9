/* The dict inside torch's own metadata of a node. */
#include <Python.h>

#include <cstdint>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_anomaly_mode.h>

#include "private_fields.h"
#include "python_shim.h"

namespace
{

using torch::autograd::AnomalyMetadata;
using torch::autograd::PyAnomalyMetadata;

TGD_PRIVATE(metadata_dict, PyAnomalyMetadata, dict_)

} // namespace

extern "C" void *tgd_torch_metadata_dict(void *metadata)
{
    return static_cast<PyAnomalyMetadata *>(static_cast<AnomalyMetadata *>(metadata))->dict();
}

extern "C" size_t tgd_torch_dict_offset(void)
{
    alignas(PyAnomalyMetadata) static const char place[sizeof(PyAnomalyMetadata)] = {};
    const auto *metadata = reinterpret_cast<const PyAnomalyMetadata *>(place);
    return static_cast<size_t>(reinterpret_cast<const char *>(&(metadata->*field(metadata_dict{}))) -
                               reinterpret_cast<const char *>(static_cast<const AnomalyMetadata *>(metadata)));
}
