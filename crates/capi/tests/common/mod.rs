//! The C side of the tests: compiles our programs against the library that cargo has just built.

#![allow(dead_code)] // Each test uses its part.

pub mod kernel;
pub mod lab;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Warnings that every C source must pass.
pub const STRICT: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];
/// The sanitizers for memory errors and undefined behaviour, needed for compiling and for linking.
pub const SANITIZE: [&str; 3] = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
];

/// The crate's directory.
pub fn crate_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The directory of `libmtcp.so`: beside this test, or that of another build by `cargo xtask stress
/// --sanitize`.
pub fn library_directory() -> PathBuf {
    if let Some(other) = std::env::var_os("CAPI_LIBRARY") {
        let other = PathBuf::from(other);
        let _ = std::os::unix::fs::symlink("libmtcp.so", other.join("libmtcp.so.1"));
        return other;
    }
    let own = std::env::current_exe().unwrap();
    let mut places = own.ancestors().skip(1).take(2);
    let found = places.find(|directory| directory.join("libmtcp.so").exists());
    let found = found.expect("libmtcp.so").to_owned();
    // Programs load the library by its major version, as in an installation. Another test may have
    // made the link already.
    let _ = std::os::unix::fs::symlink("libmtcp.so", found.join("libmtcp.so.1"));
    found
}

/// Factor for time limits: sanitizers within the library slow it down.
pub fn slowness() -> u32 {
    match std::env::var_os("CAPI_LIBRARY") {
        Some(_) => 4,
        None => 1,
    }
}

/// An empty directory of this test's own.
pub fn scratch(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// The files in a directory with an extension, sorted by name.
pub fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new(extension)))
        .collect();
    found.sort();
    found
}

/// The libraries of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum With {
    /// The shared library of libmtcp, found where it was built.
    Libmtcp,
    /// Only the C library.
    Libc,
    /// None: the program is compiled with the headers, but not linked.
    Headers,
}

/// Arguments that link a program with libmtcp: the shared library, or the archive if the
/// environment says so.
pub fn libmtcp() -> Vec<String> {
    let directory = library_directory();
    let directory = directory.display();
    let words = match std::env::var("CAPI_LINKAGE").as_deref() {
        Ok("static") => format!("{directory}/libmtcp.a -ldl -lm -lrt"),
        _ => format!("-L{directory} -lmtcp -Wl,-rpath,{directory}"),
    };
    words.split(' ').map(str::to_owned).collect()
}

/// Builds a program from one source in `tests/` with the sanitizers, as C by gcc or as C++ by g++,
/// through an object file. Its name contains the compiler's.
pub fn sanitized(source: &str, (compiler, language): (&str, &str), directory: &Path) -> PathBuf {
    let source = crate_directory().join("tests").join(source);
    let program = directory.join(compiler);
    let object = program.with_extension("o");
    let flags = [&["-x", language], &SANITIZE[..]].concat();
    compile(compiler, &[source], &flags, With::Headers, &object);
    compile(compiler, &[object], &SANITIZE, With::Libmtcp, &program);
    program
}

/// gcc for C, g++ for C++.
pub const LANGUAGES: [(&str, &str); 2] = [("gcc", "c"), ("g++", "c++")];

/// Compiles and links with all warnings as errors; panics with the compiler's output.
pub fn compile(compiler: &str, sources: &[PathBuf], flags: &[&str], with: With, program: &Path) {
    let mut command = Command::new(compiler);
    command.args(STRICT).args(["-D_GNU_SOURCE", "-O1", "-g"]);
    command.args(flags);
    command.arg("-o").arg(program).args(sources);
    command.arg("-I").arg(crate_directory().join("include"));
    if with == With::Headers {
        command.arg("-c");
    }
    if with != With::Libc && std::env::var_os("CAPI_LIBRARY").is_some() {
        // A library with sanitizers needs their runtime.
        command.args(SANITIZE);
    }
    if with == With::Libmtcp {
        command.args(libmtcp());
    }
    command.arg("-lpthread");
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
