/*
 * What most files here need of libtorch, compiled once for all of them where the compiler is gcc (setup.py). A file still
 * includes what it uses: without this one it compiles just as well, and takes three times as long.
 */
#ifndef TGD_TORCH_HEADERS_H
#define TGD_TORCH_HEADERS_H

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#endif
