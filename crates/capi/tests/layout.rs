//! Sizes, offsets, values and types that programs rely on, checked by a C program. It is compiled
//! as C and as C++, with the shared and the static library.

mod common;

use std::process::Command;

use common::{With, compile, crate_directory, library_directory, scratch};

fn source() -> Vec<std::path::PathBuf> {
    vec![crate_directory().join("tests/layout.c")]
}

#[test]
fn layouts_hold_in_c_and_in_cpp() {
    let directory = scratch("layout");
    let compilers = [
        ("gcc", "-std=c11"),
        ("gcc", "-std=gnu17"),
        ("g++", "-std=c++11"),
        ("g++", "-std=c++20"),
    ];
    for (at, (compiler, standard)) in compilers.into_iter().enumerate() {
        let program = directory.join(format!("layout{at}"));
        let language = if compiler == "g++" { "c++" } else { "c" };
        let flags = [standard, "-pedantic", "-x", language];
        compile(
            compiler,
            &source(),
            &flags,
            With::Headers,
            &program.with_extension("o"),
        );
        let object = vec![program.with_extension("o")];
        compile(compiler, &object, &[], With::Libmtcp, &program);
        let ended = Command::new(&program).status().unwrap();
        assert!(ended.success(), "{compiler} {standard}: {ended}");
    }
}

#[test]
fn static_library_is_enough() {
    let program = scratch("static").join("layout");
    let output = Command::new("gcc")
        .arg("-I")
        .arg(crate_directory().join("include"))
        .args(source())
        .arg("-o")
        .arg(&program)
        .arg(library_directory().join("libmtcp.a"))
        .args(["-lpthread", "-ldl", "-lm", "-lrt"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(Command::new(&program).status().unwrap().success());
}
