//! Gives the shared library its soname, so that programs load the major version that they were
//! linked with.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmtcp.so.1");
}
