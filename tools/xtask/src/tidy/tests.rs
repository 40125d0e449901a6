//! Each rule on a bad sample, and on a good one that looks alike.

use super::manifest::Manifest;
use super::source::{Package, Source};
use super::*;

fn source(path: &str, text: &str) -> Source {
    Source::new(path.into(), text.to_owned())
}

fn package(name: &str, sources: Vec<Source>) -> Package {
    let text = format!("[package]\nname = \"{name}\"\n");
    Package {
        directory: format!("crates/{name}").into(),
        manifest: Manifest::parse(&text).unwrap().unwrap(),
        sources,
    }
}

/// Findings of tidy in one file of the crate `stack`.
fn say(file: &str, text: &str) -> Vec<String> {
    let findings = of_source(&source(&format!("crates/stack/src/{file}"), text));
    findings
        .iter()
        .map(|finding| format!("{}:{}", finding.rule, finding.line))
        .collect()
}

fn function_of(lines: usize) -> String {
    format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
}

#[test]
fn function_of_seventy_lines_passes_and_one_more_does_not() {
    let good = format!("//! A file.\n{}", function_of(70));
    assert!(say("a.rs", &good).is_empty());
    let bad = format!("//! A file.\n{}", function_of(71));
    assert_eq!(say("a.rs", &bad), ["function-length:2"]);
}

#[test]
fn method_and_default_method_are_functions_too() {
    let bad = format!(
        "//! A file.\nimpl A {{\n{}}}\ntrait B {{\n{}}}",
        function_of(80),
        function_of(80)
    );
    assert_eq!(
        say("a.rs", &bad),
        ["function-length:3", "function-length:85"]
    );
}

#[test]
fn function_within_a_macro_is_a_function_too() {
    let of = |lines| {
        let function = function_of(lines);
        format!("//! A file.\nproptest! {{\n#[test]\n{function}}}\n")
    };
    assert!(say("a.rs", &of(70)).is_empty());
    assert_eq!(say("a.rs", &of(71)), ["function-length:4"]);
}

#[test]
fn attributes_and_docs_are_no_lines_of_the_function() {
    let good = format!("//! A file.\n/// Says.\n#[inline]\n{}", function_of(70));
    assert!(say("a.rs", &good).is_empty());
}

#[test]
fn file_counts_code_and_neither_blanks_nor_comments() {
    let good = format!(
        "//! A file.\n{}{}",
        "\n// why\n".repeat(500),
        "const A: u8 = 0;\n".repeat(600)
    );
    assert!(say("a.rs", &good).is_empty());
    let bad = format!("{good}const A: u8 = 0;\n");
    assert_eq!(say("a.rs", &bad), ["file-length:0"]);
}

#[test]
fn unsafe_in_an_ordinary_file_is_found_in_each_form() {
    for (item, line) in [
        ("fn f() {\n    // SAFETY: sound.\n    unsafe { g() }\n}", 4),
        ("unsafe fn f() {}", 2),
        ("// SAFETY: sound.\nunsafe impl Send for A {}", 3),
        ("unsafe trait A {}", 2),
        ("unsafe extern \"C\" { fn g(); }", 2),
        ("#[unsafe(no_mangle)]\nfn f() {}", 2),
        ("fn f() { call!(unsafe { g() }) }", 2),
        ("macro_rules! m { () => { unsafe { g() } } }", 2),
    ] {
        let text = format!("//! A file.\n{item}\n");
        assert_eq!(
            say("a.rs", &text),
            [format!("unsafe-file:{line}")],
            "{item}"
        );
    }
}

#[test]
fn unsafe_block_in_its_file_needs_a_reason() {
    let bad = "//! A file.\nfn f() {\n    unsafe { g() }\n}\n";
    assert_eq!(say("a_unsafe.rs", bad), ["safety-comment:3"]);
    let bad = "//! A file.\n// SAFETY: too far away.\n\nunsafe impl Send for A {}\n";
    assert_eq!(say("a_unsafe.rs", bad), ["safety-comment:4"]);
}

#[test]
fn reason_stands_above_the_block_its_statement_or_inside() {
    for body in [
        "    // SAFETY: sound.\n    unsafe { g() }",
        "    // SAFETY: sound,\n    // for two reasons.\n    let a =\n        unsafe { g() };",
        "    unsafe {\n        // SAFETY: sound.\n        g()\n    }",
        "    // SAFETY: sound.\n    #[allow(unused)]\n    let a = call(1, unsafe { g() });",
    ] {
        let text = format!("//! A file.\nfn f() {{\n{body}\n}}\n");
        assert!(say("a_unsafe.rs", &text).is_empty(), "{body}");
    }
}

#[test]
fn crate_without_unsafe_files_forbids_unsafe() {
    let bare = "//! A crate.\n";
    let findings = unsafe_code::check_package(&package(
        "stack",
        vec![source("crates/stack/src/lib.rs", bare)],
    ));
    assert_eq!(findings.len(), 1);
    let forbidding = "//! A crate.\n#![no_std]\n#![forbid(unsafe_code)]\n";
    let good = package("stack", vec![source("crates/stack/src/lib.rs", forbidding)]);
    assert!(unsafe_code::check_package(&good).is_empty());
    let with_unsafe = vec![
        source("crates/stack/src/lib.rs", bare),
        source("crates/stack/src/raw_unsafe.rs", bare),
    ];
    assert!(unsafe_code::check_package(&package("stack", with_unsafe)).is_empty());
}

#[test]
fn unfinished_words_are_found_with_their_line() {
    for word in [
        concat!("FIX", "ME"),
        concat!("TO", "DO: later"),
        concat!("XX", "X"),
    ] {
        assert_eq!(
            say("a.rs", &format!("//! A file.\n// {word}\n")),
            ["unfinished:2"]
        );
    }
    let call = concat!("//! A file.\nfn f() {\n    to", "do!()\n}\n");
    assert_eq!(say("a.rs", call), ["unfinished:3"]);
    assert!(say("a.rs", "//! A file.\n// mktemp /tmp/mst.XXXXXX, AUTODOC\n").is_empty());
}

#[test]
fn file_starts_with_what_it_is_for() {
    assert_eq!(say("a.rs", "use std::io;\n"), ["module-header:1"]);
    assert_eq!(say("a.rs", ""), ["module-header:1"]);
    assert!(say("a.rs", "\n//! A file.\n").is_empty());
}

#[test]
fn broken_file_is_a_finding_and_no_panic() {
    assert_eq!(say("a.rs", "//! A file.\nfn f( {\n"), ["syntax:2"]);
}

#[test]
fn dead_file_is_the_one_that_no_mod_line_reaches() {
    let files = [
        (
            "lib.rs",
            "//! x\nmod a;\nmod b;\n#[path = \"odd/place.rs\"]\nmod odd;\nmod inline { mod deep; }\n",
        ),
        ("a.rs", "//! x\nmod inner;\n"),
        ("a/inner.rs", "//! x\n"),
        ("b/mod.rs", "//! x\nmod child;\n"),
        ("b/child.rs", "//! x\n"),
        ("odd/place.rs", "//! x\n"),
        ("inline/deep.rs", "//! x\n"),
        ("bin/tool.rs", "//! x\n"),
        ("inner.rs", "//! x\n"),
        ("left.rs", "//! x\n"),
    ];
    let sources = files.map(|(path, text)| source(&format!("crates/stack/src/{path}"), text));
    let mut sources = Vec::from(sources);
    sources.push(source(
        "crates/stack/tests/conversation.rs",
        "//! x\nmod common;\n",
    ));
    sources.push(source("crates/stack/tests/common/mod.rs", "//! x\n"));
    let findings = modules::dead_files(&package("stack", sources));
    let dead: Vec<_> = findings
        .iter()
        .map(|finding| finding.file.to_str().unwrap())
        .collect();
    assert_eq!(
        dead,
        ["crates/stack/src/inner.rs", "crates/stack/src/left.rs"]
    );
}

const TABLE: &str = "\
# A page

| crate | uses | its tests also use | from crates.io |
|---|---|---|---|
| `wire` | | | none |
| `tcp` | `wire` | `ring` | none |
| `ring` | | | any |

Words behind it.
";

fn package_of(manifest: &str) -> Package {
    Package {
        directory: "crates/any".into(),
        manifest: Manifest::parse(manifest).unwrap().unwrap(),
        sources: Vec::new(),
    }
}

/// Forbidden dependencies of `tcp`, if its manifest has these tables.
fn breaches(tables: &str) -> Vec<String> {
    breaches_of("tcp", tables)
}

fn breaches_of(name: &str, tables: &str) -> Vec<String> {
    let walls = Walls::parse(TABLE).unwrap();
    let package = package_of(&format!("[package]\nname = \"{name}\"\n{tables}"));
    let findings = walls.check_one(&package).into_iter();
    findings.map(|finding| finding.item).collect()
}

#[test]
fn manifest_has_exactly_the_arrows_of_its_row() {
    let wire = "[dependencies]\nwire.workspace = true\n";
    let tests = "[dev-dependencies]\nring = \"1\"\nproptest = \"1\"\n";
    assert!(breaches(&format!("{wire}{tests}")).is_empty());
    assert_eq!(breaches(tests), ["wire"]);
    assert_eq!(breaches(wire), ["ring"]);
    assert_eq!(breaches(&format!("{wire}ring = \"1\"\n{tests}")), ["ring"]);
    assert_eq!(breaches(&format!("{wire}log = \"0.4\"\n{tests}")), ["log"]);
    let own = format!("{wire}{tests}tcp = \"1\"\n");
    assert!(
        breaches(&own).is_empty(),
        "tests turn features of their crate on"
    );
    assert_eq!(
        breaches_of("wire", "[dev-dependencies]\ntcp = \"1\"\n"),
        ["tcp"]
    );
    let hidden = "[target.'cfg(unix)'.dependencies]\nx = { package = \"ring\", path = \"y\" }\n";
    assert_eq!(breaches(&format!("{wire}{tests}{hidden}")), ["ring"]);
}

#[test]
fn crate_without_row_and_row_without_crate_are_findings() {
    let walls = Walls::parse(TABLE).unwrap();
    let found = |names: &[&str]| -> Vec<String> {
        let package = |name: &&str| package_of(&format!("[package]\nname = \"{name}\"\n"));
        let packages: Vec<Package> = names.iter().map(package).collect();
        let findings = walls.check(&packages).into_iter();
        findings.map(|finding| finding.item).collect()
    };
    assert_eq!(found(&["wire", "ring", "newcomer"]), ["newcomer", "tcp"]);
    assert!(Walls::parse("# A page\n").is_err());
    assert!(Walls::parse(&TABLE.replace("| any |", "| some |")).is_err());
}

#[test]
fn exception_takes_away_what_it_names_and_nothing_else() {
    let text = "[[exception]]\nrule = \"atomics\"\nfile = \"a.rs\"\nreason = \"a reason of some length\"\n";
    let finding = |file: &str| Finding {
        file: file.into(),
        line: 1,
        rule: "atomics",
        item: String::new(),
        cause: String::new(),
    };
    let exceptions = exceptions::parse(text).unwrap();
    let left = exceptions.apply(vec![finding("a.rs"), finding("b.rs")]);
    assert_eq!(left, [finding("b.rs")]);
}

#[test]
fn exception_unused_or_without_reason_is_a_finding() {
    let text = "[[exception]]\nrule = \"atomics\"\nfile = \"a.rs\"\nreason = \"short\"\n";
    let left = exceptions::parse(text).unwrap().apply(Vec::new());
    assert_eq!(left.len(), 2);
    assert!(exceptions::parse("[[exception]]\nrule = \"atomics\"\n").is_err());
}

/// Findings about cycles in a crate `stack` with these files.
fn say_cycles(files: &[(&str, &str)]) -> Vec<String> {
    let sources = files.iter().map(|(file, text)| {
        let path = format!("crates/stack/src/{file}");
        source(&path, text)
    });
    let packages = [package("stack", sources.collect())];
    let findings = cycles::check(&packages);
    findings.into_iter().map(|finding| finding.cause).collect()
}

#[test]
fn modules_that_use_each_other_are_a_cycle_by_any_way_of_writing_it() {
    let root = ("lib.rs", "mod a;\nmod b;\npub use b::Thing;\nmod c;");
    let b = ("b.rs", "use super::a;\npub struct Thing;");
    for a in [
        "use crate::b::Thing;",
        "use crate::{b::{self, Thing as Other}};",
        "fn f() { crate::b::f(); }",
        "use crate::Thing;",
        "use super::*;\nfn f() { macro_of_ours!(super::b::f()); }",
    ] {
        let files = [
            root,
            ("a.rs", a),
            b,
            ("c.rs", "use crate::a; use crate::b;"),
        ];
        let said = say_cycles(&files);
        assert_eq!(
            said,
            ["modules of stack use each other in a circle: a → b, b → a"]
        );
    }
}

#[test]
fn paths_in_tests_comments_and_to_a_parent_make_no_cycle() {
    let root = ("lib.rs", "mod a;\nmod b;\npub struct Thing;");
    let b = ("b.rs", "use crate::a::c;\nuse crate::Thing;");
    for a in [
        "/// See [`crate::b`].\npub mod c;",
        "pub mod c;\n#[cfg(test)]\nmod tests { use crate::b; }",
        "pub mod c;\nuse std::b;\nuse crate::Thing;",
    ] {
        let files = [
            root,
            ("a.rs", a),
            b,
            ("a/c.rs", "use super::Own;\nuse self::b::X;"),
        ];
        assert!(say_cycles(&files).is_empty());
    }
}

#[test]
fn cycle_within_a_folder_is_one_of_the_folder_alone() {
    let files = [
        ("lib.rs", "mod room;"),
        ("room.rs", "mod a;\nmod b;"),
        ("room/a.rs", "use super::b;"),
        ("room/b.rs", "use crate::room::a::X;"),
    ];
    let cause = "modules of stack::room use each other in a circle: a → b, b → a";
    assert_eq!(say_cycles(&files), [cause]);
}

#[test]
fn state_has_one_writer_once_a_function_for_it_exists() {
    let writers = |name: &str, function: &str| {
        let path = format!("crates/{name}/src/a.rs");
        let text = format!(
            "impl Connection {{ fn {function}(&mut self) {{ self.state = State::Open; }} }}\n\
             impl Connection {{ fn close(&mut self) {{ self.state = State::Closed; }} }}\n\
             impl Model {{ fn close(&mut self) {{ self.state = State::Closed; }} }}"
        );
        let package = package(name, vec![source(&path, &text)]);
        let findings = one_writer::check(&package);
        findings
            .iter()
            .map(|finding| finding.line)
            .collect::<Vec<_>>()
    };
    assert_eq!(writers("tcp", "transition_to"), [2]);
    assert!(writers("tcp", "open").is_empty());
    assert!(writers("stack", "transition_to").is_empty());
}
