// SPDX-License-Identifier: Apache-2.0
#include <cudnn.h>

#include "attempt.h"
#include "base.h"

namespace {

int softmax(cudnnHandle_t handle, cudnnTensorDescriptor_t shape, const OnDevice<float> &from, OnDevice<float> &to,
            int count) {
    ATTEMPT_LIBRARY(cudnnSetTensor4dDescriptor(shape, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, count, 1, 1));
    const float one = 1, zero = 0;
    ATTEMPT_LIBRARY(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, shape,
                                        from.data, &zero, shape, to.data));
    return 0;
}

}  // namespace

extern "C" int sl_cudnn_version() { return static_cast<int>(cudnnGetVersion()); }

extern "C" int sl_softmax(const float *values, int count, float factor, float *result) {
    OnDevice<float> from(values, count);
    ATTEMPT(from.code);
    OnDevice<float> to(count);
    ATTEMPT(to.code);
    ATTEMPT(sl_scale(from.data, count, factor));
    cudnnHandle_t handle = nullptr;
    ATTEMPT_LIBRARY(cudnnCreate(&handle));
    cudnnTensorDescriptor_t shape = nullptr;
    int code = kOfLibrary * static_cast<int>(cudnnCreateTensorDescriptor(&shape));
    if (!code) {
        code = softmax(handle, shape, from, to, count);
        cudnnDestroyTensorDescriptor(shape);
    }
    cudnnDestroy(handle);
    ATTEMPT(code);
    return to.to(result, count);
}
