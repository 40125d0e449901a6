//! `cargo xtask tidy`: the executed part of STYLE.md.
//!
//! Reads every Rust source and Cargo.toml of the workspace, applies the rules, takes away what the
//! exceptions list names, and prints `file:line: cause`. Owns no rule itself: each is a file beside
//! this one.

mod cycles;
mod exceptions;
mod functions;
mod links;
mod manifest;
mod modules;
mod one_writer;
mod source;
mod unsafe_code;
mod walls;
mod words;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use source::{Package, Source};
use walls::Walls;

/// One breach of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Relative to the workspace's root.
    pub file: PathBuf,
    /// From 1; 0 means the file as a whole.
    pub line: usize,
    /// The rule's name, as the exceptions list writes it.
    pub rule: &'static str,
    /// The item of the exception: a function, a dependency; empty for the file as a whole.
    pub item: String,
    pub cause: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            rule,
            cause,
            ..
        } = self;
        let file = file.display();
        match line {
            0 => write!(formatter, "{file}: {cause} [{rule}]"),
            line => write!(formatter, "{file}:{line}: {cause} [{rule}]"),
        }
    }
}

/// The chore.
pub fn tidy(root: &Path) -> Result<bool, String> {
    check(root)?;
    println!("tidy");
    Ok(true)
}

/// Prints what is wrong; the error is how much.
pub fn check(root: &Path) -> Result<(), String> {
    let findings = findings(root)?;
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("tidy: {count} findings")),
    }
}

/// All rules over all packages, less the exceptions.
fn findings(root: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    let packages = source::packages(root)?;
    findings.extend(Walls::read(root)?.check(&packages));
    for package in &packages {
        findings.extend(of_package(package));
        findings.extend(links::check_sources(root, package));
    }
    findings.extend(cycles::check(&packages));
    findings.extend(words::check_other_files(root)?);
    findings.extend(links::check(root)?);
    let exceptions = exceptions::read(root)?;
    let mut findings = exceptions.apply(findings);
    findings.sort();
    Ok(findings)
}

fn of_package(package: &Package) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &package.sources {
        findings.extend(of_source(source));
    }
    findings.extend(unsafe_code::check_package(package));
    findings.extend(modules::dead_files(package));
    findings.extend(one_writer::check(package));
    findings
}

fn of_source(source: &Source) -> Vec<Finding> {
    let mut findings = words::check(source);
    findings.extend(modules::header(source));
    findings.extend(functions::file_length(source));
    match &source.syntax {
        Err((line, cause)) => findings.push(source.finding("syntax", *line, "", cause.clone())),
        Ok(syntax) => {
            findings.extend(functions::function_lengths(source, syntax));
            findings.extend(unsafe_code::check(source, syntax));
        }
    }
    findings
}
