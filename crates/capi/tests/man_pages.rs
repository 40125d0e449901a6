//! Every exported call has a manual page and vice versa, the headers declare all of them, and the
//! formatter reports no errors in the pages.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

type Names = BTreeSet<String>;

/// Functions of mTCP's `cpu.h`, which programs declare themselves; they are not part of the API.
const UNPUBLISHED: [&str; 2] = ["CoreAffinitize", "GetNumCPUs"];

fn man_directory(section: u32) -> PathBuf {
    let crates = common::crate_directory();
    crates.join(format!("../../docs/man/man{section}"))
}

/// The functions that the library exports.
fn exported() -> Names {
    let library = common::library_directory().join("libmtcp.so");
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library)
        .output()
        .unwrap();
    assert!(output.status.success(), "nm {}", library.display());
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let functions = words.filter_map(|words| match words[..] {
        [_, "T", name] if !UNPUBLISHED.contains(&name) => Some(name.to_owned()),
        _ => None,
    });
    functions.collect()
}

/// Names in the headers that precede a parenthesis and have one of our prefixes.
fn declared() -> Names {
    let include = common::crate_directory().join("include");
    let texts = common::files(&include, "h")
        .into_iter()
        .map(|path| fs::read_to_string(path).unwrap());
    let mut names = Names::new();
    for line in texts.collect::<String>().lines() {
        if line.starts_with([' ', '*', '/', '#']) || line.starts_with("typedef") {
            continue;
        }
        if let Some((before, _)) = line.split_once('(') {
            let name = before.rsplit([' ', '*']).next().unwrap();
            names.insert(name.to_owned());
        }
    }
    names
}

fn pages() -> Vec<PathBuf> {
    common::files(&man_directory(3), "3")
}

fn documented() -> Names {
    let stems = pages()
        .into_iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    stems.collect()
}

#[test]
fn calls_pages_and_headers_are_the_same_names() {
    let (exported, declared, documented) = (exported(), declared(), documented());
    assert!(declared.contains("mtcp_epoll_wait"), "{declared:?}");
    let missing = |from: &Names, of: &Names| of.difference(from).cloned().collect::<Vec<_>>();
    assert_eq!(missing(&exported, &declared), [""; 0], "not exported");
    assert_eq!(missing(&declared, &exported), [""; 0], "not declared");
    assert_eq!(missing(&documented, &exported), [""; 0], "without a page");
    assert_eq!(missing(&exported, &documented), [""; 0], "page of no call");
}

/// A page that stands for another is one line. Other pages contain their own name and how it is
/// called.
#[test]
fn page_names_its_calls() {
    for path in pages() {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let target = match text.strip_prefix(".so ") {
            Some(target) => man_directory(3).join("..").join(target.trim()),
            None => path.clone(),
        };
        let text = fs::read_to_string(&target).unwrap();
        let (head, rest) = text.split_once(".SH SYNOPSIS").expect(name);
        assert!(head.contains(name), "{name}: not in NAME");
        assert!(rest.contains(&format!("{name}(")), "{name}: no synopsis");
        for section in ["DESCRIPTION", "RETURN VALUE", "SEE ALSO"] {
            assert!(
                rest.contains(&format!(".SH {section}\n")),
                "{name}: {section}"
            );
        }
    }
}

/// References to our own pages lead to existing ones.
#[test]
fn pages_refer_to_pages() {
    let known = documented();
    for path in pages() {
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| line.starts_with(".BR mtcp_")) {
            let name = line.split_whitespace().nth(1).unwrap();
            assert!(known.contains(name), "{}: {line}", path.display());
        }
    }
}

#[test]
fn formatter_is_silent() {
    let mut all = pages();
    all.extend(common::files(&man_directory(7), "7"));
    for path in all {
        let output = Command::new("groff")
            .args(["-man", "-ww", "-z", "-Tutf8"])
            .arg(&path)
            .current_dir(man_directory(3).join(".."))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}
