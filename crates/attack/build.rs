//! Compiles the hostile program, which the cases carry as data: static, for the images that it attacks from hold
//! nothing else.

#![allow(
    clippy::print_stdout,
    reason = "this is how a build script speaks to cargo"
)]

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let directory = PathBuf::from("src/hostile");
    println!("cargo::rerun-if-changed={}", directory.display());
    println!("cargo::rerun-if-env-changed=CC");
    let output =
        PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where")).join("hostile");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(&compiler)
        .args(["-static", "-O1", "-s", "-o"])
        .args([&output, &directory.join("hostile.c")])
        .output();
    match built {
        Ok(built) if built.status.success() => {}
        Ok(built) => panic!(
            "{compiler} does not link hostile.c statically; it needs a static libc (Debian: libc6-dev, Fedora: \
             glibc-static):\n{}",
            String::from_utf8_lossy(&built.stderr)
        ),
        Err(error) => panic!(
            "{compiler} does not start: {error}; install a C compiler (Debian: gcc libc6-dev)"
        ),
    }
}
