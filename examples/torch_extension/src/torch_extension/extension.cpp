// SPDX-License-Identifier: Apache-2.0
#include <torch/extension.h>

int squares(const float *values, long count, bool on_device, float *total);
const char *error_name(int code);

namespace {

double checked_squares(const torch::Tensor &values) {
    TORCH_CHECK(values.scalar_type() == torch::kFloat32, "float32 is needed, not ", values.scalar_type());
    const torch::Tensor flat = values.contiguous();
    float total = 0;
    const int code = squares(flat.data_ptr<float>(), flat.numel(), flat.is_cuda(), &total);
    TORCH_CHECK(code == 0, error_name(code), " (", code, ")");
    return total;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("squares", &checked_squares, "The sum of the squares of a tensor's values, wherever the tensor is.");
}
