// SPDX-License-Identifier: Apache-2.0
#include <cublas_v2.h>

#include "attempt.h"
#include "base.h"

extern "C" int sl_cublas_version(int *major, int *minor) {
    ATTEMPT_LIBRARY(cublasGetProperty(MAJOR_VERSION, major));
    ATTEMPT_LIBRARY(cublasGetProperty(MINOR_VERSION, minor));
    return 0;
}

// result (rows by columns) = factor * left (rows by inner) * right (inner by columns), all by rows.
extern "C" int sl_multiply(const float *left, const float *right, int rows, int inner, int columns, float factor,
                           float *result) {
    OnDevice<float> a(left, static_cast<std::size_t>(rows) * inner);
    ATTEMPT(a.code);
    OnDevice<float> b(right, static_cast<std::size_t>(inner) * columns);
    ATTEMPT(b.code);
    OnDevice<float> c(static_cast<std::size_t>(rows) * columns);
    ATTEMPT(c.code);
    cublasHandle_t handle = nullptr;
    ATTEMPT_LIBRARY(cublasCreate(&handle));
    const float one = 1, zero = 0;
    // cuBLAS counts by columns: what is by rows is the transposed to it, so the order is turned round.
    const cublasStatus_t status = cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, columns, rows, inner, &one, b.data,
                                              columns, a.data, inner, &zero, c.data, columns);
    cublasDestroy(handle);
    ATTEMPT_LIBRARY(status);
    ATTEMPT(sl_scale(c.data, rows * columns, factor));
    return c.to(result, static_cast<std::size_t>(rows) * columns);
}
