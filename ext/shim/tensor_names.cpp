/* Python's names of dtypes, devices and layouts. c10's own functions have the C++ names, and throw. */
#include <cstddef>

#include <c10/core/DeviceType.h>
#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>

#include "shim.h"

namespace
{

const char *const dtypes[] = {
    "uint8",           "int8",           "int16",         "int32",       "int64",
    "float16",         "float32",        "float64",       "complex32",   "complex64",
    "complex128",      "bool",           "qint8",         "quint8",      "qint32",
    "bfloat16",        "quint4x2",       "quint2x4",      "bits1x8",     "bits2x4",
    "bits4x2",         "bits8",          "bits16",        "float8_e5m2", "float8_e4m3fn",
    "float8_e5m2fnuz", "float8_e4m3fnuz", "uint16",       "uint32",      "uint64",
    "uint1",           "uint2",          "uint3",         "uint4",       "uint5",
    "uint6",           "uint7",          "int1",          "int2",        "int3",
    "int4",            "int5",           "int6",          "int7",        "float8_e8m0fnu",
    "float4_e2m1fn_x2", "bcomplex32"};

const char *const devices[] = {"cpu", "cuda",   "mkldnn", "opengl", "opencl", "ideep", "hip",
                               "fpga", "maia",  "xla",    "vulkan", "metal",  "xpu",   "mps",
                               "meta", "hpu",   "ve",     "lazy",   "ipu",    "mtia",  "privateuseone"};

const char *const layouts[] = {"strided",    "sparse_coo", "sparse_csr", "_mkldnn",
                               "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"};

/* The numbers have never changed; new ones are added behind. */
static_assert(static_cast<int>(c10::ScalarType::BFloat16) == 15, "dtypes have other numbers");
static_assert(static_cast<int>(c10::ScalarType::Float8_e4m3fnuz) == 26, "dtypes have other numbers");
static_assert(static_cast<int>(c10::ScalarType::Int7) == 43, "dtypes have other numbers");
static_assert(static_cast<int>(c10::DeviceType::Meta) == 14, "devices have other numbers");
static_assert(static_cast<int>(c10::DeviceType::PrivateUse1) == 20, "devices have other numbers");
static_assert(static_cast<int>(c10::Layout::Jagged) == 7, "layouts have other numbers");

template <std::size_t N> const char *look_up(const char *const (&names)[N], int number)
{
    return number >= 0 && static_cast<std::size_t>(number) < N ? names[number] : "";
}

} // namespace

extern "C" const char *tgd_torch_dtype_name(int dtype)
{
    return dtype < static_cast<int>(c10::ScalarType::Undefined) ? look_up(dtypes, dtype) : "";
}

extern "C" const char *tgd_torch_device_name(int device_type)
{
    return look_up(devices, device_type);
}

extern "C" const char *tgd_torch_layout_name(int layout)
{
    return look_up(layouts, layout);
}
