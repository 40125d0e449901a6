//! `cargo xtask path`: counts the functions and files that a segment passes on its way in or out.
//!
//! The loads of `tools/world/src/bin/segment_path.rs` run under callgrind, in a build without
//! inlining and assertions. Two runs differ in the number of segments. A function is on the path if
//! each additional segment calls it at least once more, between the doors of its way ([`WAYS`]).
//! Only sources of the product count, without the port, which differs between wires.
//!
//! A short function names a value or a small step, and is read where it is called. The chore
//! therefore counts functions of more than [`LINES_SHORT`] lines, with their files. It also prints
//! the number of all functions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::run;

/// Most lines of code in the body of a short function.
const LINES_SHORT: usize = 10;
/// Segments of the shorter run. Slow start is over by then, and tables have their size.
const SEGMENTS_FIRST: u64 = 100;
/// Additional segments of the longer run.
const SEGMENTS_MORE: u64 = 50;

/// The crates that a segment passes.
const CRATES: [&str; 6] = ["wire", "tcp", "ring", "packetio", "stack", "millstream"];
/// The port that the loads use, which is not counted.
const PORT: &str = "crates/packetio/src/ip_wire.rs";

/// A way through the product, from the public functions at which it begins.
struct Way {
    /// Name of the load in `segment_path`.
    load: &'static str,
    what: &'static str,
    /// Functions at which counting begins, by callgrind's names.
    doors: &'static [&'static str],
}

const WAYS: [Way; 2] = [
    Way {
        load: "receive",
        what: "a received segment, from `Port::receive` to the event of a poll",
        doors: &[
            "stack::ports::Ports::receive",
            "stack::stack::Stack::event_queue",
            "millstream::state::State::drain_events",
            "millstream::poll::Poll::collect",
        ],
    },
    Way {
        load: "write",
        what: "a written segment, from `TcpStream::write` to `Port::send`",
        doors: &[
            "<millstream::stream::TcpStream as std::io::Write>::write",
            "stack::requests::job_queue::<impl stack::requests::AppRequests>::job_queue",
            "stack::ports::Ports::send",
        ],
    },
];

/// A function of the sources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    file: PathBuf,
    line: usize,
    name: String,
    /// Lines of code between the braces of the body.
    lines: usize,
}

/// The chore.
pub fn path(root: &Path) -> Result<bool, String> {
    let program = build(root)?;
    for way in &WAYS {
        let found = passed(root, &program, way)?;
        let steps = || (found.iter()).filter(|function| function.lines > LINES_SHORT);
        println!("{}:", way.what);
        for file in files(steps()) {
            let names: Vec<&str> = steps()
                .filter(|function| function.file == *file)
                .map(|function| function.name.as_str())
                .collect();
            println!("  {}: {}", file.display(), names.join(", "));
        }
        println!(
            "  {} functions of more than {LINES_SHORT} lines in {} files; {} in {} with all others",
            steps().count(),
            files(steps()).len(),
            found.len(),
            files(found.iter()).len(),
        );
    }
    Ok(true)
}

fn files<'a>(functions: impl Iterator<Item = &'a Function>) -> BTreeSet<&'a PathBuf> {
    functions.map(|function| &function.file).collect()
}

/// Builds the loads without inlining; a debug build would still inline `#[inline(always)]`.
/// Assertions are off, since what they compute is not on the path.
fn build(root: &Path) -> Result<PathBuf, String> {
    let target = run::target(root).join("path");
    let mut cargo = run::cargo();
    cargo.args(["build", "--package", "world", "--bin", "segment_path"]);
    cargo.env("CARGO_TARGET_DIR", &target);
    cargo.env("RUSTFLAGS", "-C no-prepopulate-passes");
    cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    cargo.env("CARGO_PROFILE_DEV_DEBUG_ASSERTIONS", "false");
    run::run(&mut cargo)?;
    Ok(target.join("debug/segment_path"))
}

/// Functions of the product that each segment of this way passes.
fn passed(root: &Path, program: &Path, way: &Way) -> Result<BTreeSet<Function>, String> {
    let short = Profile::of(program, way, SEGMENTS_FIRST)?;
    let long = Profile::of(program, way, SEGMENTS_FIRST + SEGMENTS_MORE)?;
    let mut sources = Sources::new(root);
    let mut found = BTreeSet::new();
    for (name, seen) in &long.functions {
        let is_door = way.doors.contains(&name.as_str());
        let before = short.functions.get(name).map_or(0, |seen| seen.calls);
        if !is_door && seen.calls < before + SEGMENTS_MORE {
            continue;
        }
        if let Some(function) = sources.at(&seen.file, seen.line)? {
            found.insert(function);
        }
    }
    match found.is_empty() {
        true => Err(format!("{}: callgrind saw nothing", way.load)),
        false => Ok(found),
    }
}

/// A function in callgrind's profile.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    file: String,
    /// Number of one of its lines that was executed.
    line: usize,
    calls: u64,
}

/// The profile of a run, by names of functions.
#[derive(Default)]
struct Profile {
    functions: HashMap<String, Seen>,
}

impl Profile {
    fn of(program: &Path, way: &Way, segments: u64) -> Result<Self, String> {
        let out = crate::cleanup::temporary_directory()?.join("segment-path.callgrind");
        let mut valgrind = run::command("valgrind");
        valgrind.args(["-q", "--tool=callgrind", "--dump-line=yes"]);
        valgrind.args(["--compress-strings=no", "--compress-pos=no"]);
        valgrind.arg(format!("--callgrind-out-file={}", out.display()));
        for door in way.doors {
            valgrind.arg(format!("--toggle-collect={door}"));
        }
        valgrind.arg(program).arg(way.load);
        run::run(valgrind.arg(segments.to_string()))?;
        let text = std::fs::read_to_string(&out);
        Ok(Self::parse(
            &text.map_err(|error| format!("{}: {error}", out.display()))?,
        ))
    }

    /// Parses callgrind's format. A function's lines are `LINE COST`. The line after `calls=` is
    /// the callee's cost at the caller's line.
    fn parse(text: &str) -> Self {
        let mut profile = Self::default();
        let (mut file, mut own_file, mut name, mut callee) = ("", "", "", "");
        let mut is_call = false;
        for line in text.lines() {
            if let Some(path) = line.strip_prefix("fl=") {
                (file, own_file) = (path, path);
            } else if let Some(path) = line
                .strip_prefix("fi=")
                .or_else(|| line.strip_prefix("fe="))
            {
                file = path;
            } else if let Some(function) = line.strip_prefix("fn=") {
                (name, file) = (function, own_file);
            } else if let Some(function) = line.strip_prefix("cfn=") {
                callee = function;
            } else if let Some(calls) = line.strip_prefix("calls=") {
                is_call = true;
                if own_file.ends_with(PORT) {
                    continue;
                }
                let count = calls.split(' ').next().and_then(|count| count.parse().ok());
                let seen = profile.functions.entry(callee.to_owned()).or_default();
                seen.calls += count.unwrap_or(0);
            } else if line.starts_with(|first: char| first.is_ascii_digit())
                && !std::mem::take(&mut is_call)
                && file == own_file
            {
                let at = line.split(' ').next().and_then(|at| at.parse().ok());
                let seen = profile.functions.entry(name.to_owned()).or_default();
                if seen.line == 0 {
                    (seen.file, seen.line) = (own_file.to_owned(), at.unwrap_or(0));
                }
            }
        }
        profile
    }
}

/// The product's sources, each read when first needed.
struct Sources<'a> {
    root: &'a Path,
    files: BTreeMap<PathBuf, Vec<(Function, usize)>>,
}

impl<'a> Sources<'a> {
    fn new(root: &'a Path) -> Self {
        Self {
            root,
            files: BTreeMap::new(),
        }
    }

    /// The innermost function around a line; `None`: the file is not of the product.
    fn at(&mut self, file: &str, line: usize) -> Result<Option<Function>, String> {
        let file = Path::new(file);
        let relative = file.strip_prefix(self.root).unwrap_or(file);
        let is_ours = CRATES
            .iter()
            .any(|name| relative.starts_with(Path::new("crates").join(name).join("src")));
        if !is_ours || relative == Path::new(PORT) {
            return Ok(None);
        }
        if !self.files.contains_key(relative) {
            let functions = functions(self.root, relative)?;
            self.files.insert(relative.to_path_buf(), functions);
        }
        let around = self.files[relative]
            .iter()
            .filter(|(function, end)| (function.line..=*end).contains(&line));
        Ok(around
            .max_by_key(|(function, _)| function.line)
            .map(|(function, _)| function.clone()))
    }
}

/// The functions of a file, each with its last line.
fn functions(root: &Path, file: &Path) -> Result<Vec<(Function, usize)>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = std::fs::read_to_string(root.join(file)).map_err(|error| failed(&error))?;
    let syntax = syn::parse_file(&text).map_err(|error| failed(&error))?;
    let mut found = Found {
        file,
        text: text.lines().collect(),
        functions: Vec::new(),
    };
    found.visit_file(&syntax);
    Ok(found.functions)
}

struct Found<'a> {
    file: &'a Path,
    text: Vec<&'a str>,
    functions: Vec<(Function, usize)>,
}

impl Found<'_> {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let function = Function {
            file: self.file.to_path_buf(),
            line: signature.fn_token.span.start().line,
            name: signature.ident.to_string(),
            lines: self.lines_within(block),
        };
        self.functions.push((function, block.span().end().line));
    }
}

impl Found<'_> {
    /// Number of lines between a block's braces that are neither blank nor comments.
    fn lines_within(&self, block: &syn::Block) -> usize {
        let (first, last) = (block.span().start().line, block.span().end().line);
        let inner = self.text.get(first..last.saturating_sub(1)).unwrap_or(&[]);
        let is_code = |line: &&&str| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("//")
        };
        inner.iter().filter(is_code).count()
    }
}

impl<'ast> Visit<'ast> for Found<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_knows_calls_and_a_line_of_each_function() {
        let text = "events: Ir\nfl=/a.rs\nfn=outer\n10 5\nfi=/b.rs\n99 1\nfe=/a.rs\n11 7\n\
                    cfi=/c.rs\ncfn=inner\ncalls=3 20\n12 100\n\nfl=/c.rs\nfn=inner\n20 90\n";
        let profile = Profile::parse(text);
        let seen = |file: &str, line, calls| Seen {
            file: file.to_owned(),
            line,
            calls,
        };
        assert_eq!(profile.functions["outer"], seen("/a.rs", 10, 0));
        assert_eq!(profile.functions["inner"], seen("/c.rs", 20, 3));
    }

    #[test]
    fn calls_of_the_port_are_left_out() {
        let text = format!("fl=/root/{PORT}\nfn=receive\n10 5\ncfn=inner\ncalls=3 20\n12 100\n");
        assert!(!Profile::parse(&text).functions.contains_key("inner"));
    }

    #[test]
    fn body_is_counted_without_comments_and_blank_lines() {
        let text = "fn f() -> u32 {\n    // Why.\n    let a = 1;\n\n    a\n}\nfn g() {}\n";
        let mut found = Found {
            file: Path::new("f.rs"),
            text: text.lines().collect(),
            functions: Vec::new(),
        };
        found.visit_file(&syn::parse_file(text).expect("Rust"));
        let lines: Vec<_> = found.functions.iter().map(|(one, _)| one.lines).collect();
        assert_eq!(lines, [2, 0]);
    }
}
