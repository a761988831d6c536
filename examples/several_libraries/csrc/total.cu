// SPDX-License-Identifier: Apache-2.0
#include "attempt.h"
#include "base.h"

namespace {

__global__ void add_up(const float *values, int count, float *total) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) atomicAdd(total, values[i]);
}

}  // namespace

// The sum of the values, each times a factor: the factor is the other library's business.
extern "C" int sl_total(const float *values, int count, float factor, float *total) {
    OnDevice<float> from(values, count);
    ATTEMPT(from.code);
    const float nothing = 0;
    OnDevice<float> sum(&nothing, 1);
    ATTEMPT(sum.code);
    ATTEMPT(sl_scale(from.data, count, factor));
    if (count > 0) add_up<<<(count + 255) / 256, 256>>>(from.data, count, sum.data);
    ATTEMPT(cudaGetLastError());
    return sum.to(total, 1);
}
