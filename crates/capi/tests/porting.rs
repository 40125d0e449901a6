//! docs/porting.md is right: its diff is that between the two programs, and both compile.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::With;

fn directory() -> PathBuf {
    common::crate_directory().join("examples/porting")
}

#[test]
fn worked_diff_is_what_differs() {
    let output = Command::new("diff")
        .args(["-U1", "before.c", "after.c"])
        .current_dir(directory())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // The first two lines have names and times.
    let hunks: Vec<&str> = text.lines().skip(2).collect();
    let page = common::crate_directory().join("../../docs/porting.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```diff\n").unwrap();
    let (shown, _) = rest.split_once("\n```").unwrap();
    let shown: Vec<&str> = shown.lines().collect();
    assert!(
        hunks == shown,
        "docs/porting.md should show:\n{}",
        hunks.join("\n")
    );
}

#[test]
fn both_programs_compile_as_c_and_as_cxx() {
    let scratch = common::scratch("porting");
    for compiler in ["gcc", "g++"] {
        for (name, with) in [("before", With::Libc), ("after", With::Libmtcp)] {
            let source = directory().join(format!("{name}.c"));
            let program = scratch.join(format!("{name}-{compiler}"));
            common::compile(compiler, &[source], &[], with, &program);
        }
    }
}
