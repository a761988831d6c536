// SPDX-License-Identifier: Apache-2.0
//! Runs nvcc for the kernel and, as many build scripts do, keeps to itself what nvcc says:
//! when it fails, cargo shows that it failed and not why. `cuwheel record` shows it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn variable(name: &str) -> Option<String> {
    println!("cargo:rerun-if-env-changed={name}");
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// NVCC, else the one of CUDA_HOME or CUDA_PATH, else whichever is on PATH.
fn compiler(home: Option<&str>) -> PathBuf {
    match (variable("NVCC"), home) {
        (Some(nvcc), _) => PathBuf::from(nvcc),
        (None, Some(home)) => Path::new(home).join("bin").join("nvcc"),
        (None, None) => PathBuf::from("nvcc"),
    }
}

fn run(nvcc: &Path, arguments: &[&str]) {
    let told = Command::new(nvcc).args(arguments).output();
    if !told.map(|output| output.status.success()).unwrap_or(false) {
        panic!("nvcc failed");
    }
}

fn main() {
    println!("cargo:rerun-if-changed=kernels/cubes.cu");
    let home = variable("CUDA_HOME").or_else(|| variable("CUDA_PATH"));
    let nvcc = compiler(home.as_deref());
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let object = out.join("cubes.o").display().to_string();
    let archive = out.join("libcubes.a").display().to_string();

    let mut arguments = vec!["-O2", "-std=c++17", "-Xcompiler", "-fPIC"];
    let architecture = variable("CUDA_COMPUTE_CAP").map(|number| format!("-arch=sm_{}", number.replace('.', "")));
    arguments.extend(architecture.as_deref());
    let host = variable("NVCC_CCBIN");
    if let Some(host) = host.as_deref() {
        arguments.extend(["-ccbin", host]);
    }
    arguments.extend(["-c", "kernels/cubes.cu", "-o", &object]);
    run(&nvcc, &arguments);
    run(&nvcc, &["-lib", &object, "-o", &archive]);

    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=cubes");
    for folder in ["lib64", "lib"] {
        if let Some(home) = home.as_deref() {
            println!("cargo:rustc-link-search=native={}", Path::new(home).join(folder).display());
        }
    }
    println!("cargo:rustc-link-lib=static=cudart_static");
    for library in ["stdc++", "rt", "pthread", "dl"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}
