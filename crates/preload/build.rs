//! Links calls within the library to the library's own functions. A program that has a `sigaction`
//! of its own, and calls the next one from it, would otherwise be called by the library again, and
//! so on without an end. Erlang's virtual machine is such a program.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
