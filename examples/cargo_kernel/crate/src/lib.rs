// SPDX-License-Identifier: Apache-2.0
//! What Python calls: the kernel's launcher, compiled by nvcc, behind functions of Rust.

use std::ffi::{c_char, c_int};

extern "C" {
    fn launch_cubes(count: u32, total: *mut u64) -> c_int;
    fn name_of_error(code: c_int) -> *const c_char;
}

#[no_mangle]
pub extern "C" fn cargo_kernel_version() -> c_int {
    1
}

/// The sum of the cubes of 0 … count - 1 in `total`; CUDA's error code, 0 for none.
///
/// # Safety
/// `total` points to a number that may be written.
#[no_mangle]
pub unsafe extern "C" fn cargo_kernel_cubes(count: u32, total: *mut u64) -> c_int {
    launch_cubes(count, total)
}

#[no_mangle]
pub extern "C" fn cargo_kernel_error(code: c_int) -> *const c_char {
    unsafe { name_of_error(code) }
}
