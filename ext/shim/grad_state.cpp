#include "grad_state.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

extern "C" int tgd_torch_grad_mode(void)
{
    return c10::GradMode::is_enabled();
}

extern "C" int tgd_torch_in_backward(void)
{
    return torch::autograd::get_current_graph_task_id() != -1;
}
