// SPDX-License-Identifier: Apache-2.0
// What the other libraries take from this one.
#pragma once

extern "C" int sl_scale(float *on_device, int count, float factor);
