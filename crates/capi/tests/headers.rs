//! The headers are C and C++ of any standard since C99 and C++11, pedantically, and what they publish has the published sizes and values.

mod common;

use common::With;

#[test]
fn layout_holds_in_every_dialect() {
    let source = common::crate_directory().join("tests/headers/layout.c");
    let object = common::scratch("headers").join("layout.o");
    for (compiler, standard) in [
        ("gcc", "-std=c99"),
        ("gcc", "-std=c11"),
        ("gcc", "-std=gnu17"),
        ("g++", "-std=c++11"),
        ("g++", "-std=c++20"),
    ] {
        let flags = [standard, "-pedantic"];
        common::compile(
            compiler,
            std::slice::from_ref(&source),
            &flags,
            With::Headers,
            &object,
        );
    }
}
