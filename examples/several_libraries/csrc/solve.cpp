// SPDX-License-Identifier: Apache-2.0
#include <cusolverDn.h>

#include "attempt.h"
#include "base.h"

namespace {

int solved(cusolverDnHandle_t handle, OnDevice<float> &matrix, OnDevice<float> &values, int size) {
    int space = 0;
    ATTEMPT_LIBRARY(
        cusolverDnSpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, size, matrix.data, size, &space));
    OnDevice<float> work(space);
    ATTEMPT(work.code);
    OnDevice<int> info(1);
    ATTEMPT(info.code);
    ATTEMPT_LIBRARY(cusolverDnSpotrf(handle, CUBLAS_FILL_MODE_LOWER, size, matrix.data, size, work.data, space, info.data));
    int failed = 0;
    ATTEMPT(info.to(&failed, 1));
    if (failed) return -1;  // not positive definite
    ATTEMPT_LIBRARY(
        cusolverDnSpotrs(handle, CUBLAS_FILL_MODE_LOWER, size, 1, matrix.data, size, values.data, size, info.data));
    return 0;
}

}  // namespace

extern "C" int sl_cusolver_version(int *major, int *minor) {
    ATTEMPT_LIBRARY(cusolverGetProperty(MAJOR_VERSION, major));
    ATTEMPT_LIBRARY(cusolverGetProperty(MINOR_VERSION, minor));
    return 0;
}

// matrix (symmetric, positive definite) * result = factor * values
extern "C" int sl_solve(const float *matrix, const float *values, int size, float factor, float *result) {
    OnDevice<float> a(matrix, static_cast<std::size_t>(size) * size);
    ATTEMPT(a.code);
    OnDevice<float> b(values, size);
    ATTEMPT(b.code);
    ATTEMPT(sl_scale(b.data, size, factor));
    cusolverDnHandle_t handle = nullptr;
    ATTEMPT_LIBRARY(cusolverDnCreate(&handle));
    const int code = solved(handle, a, b, size);
    cusolverDnDestroy(handle);
    ATTEMPT(code);
    return b.to(result, size);
}
