//! `cargo xtask tidy`: the executed part of STYLE.md.
//!
//! Reads every Rust source and Cargo.toml of the workspace, applies the rules, removes the listed
//! exceptions, and prints `file:line: cause`. Each rule is a file beside this one.

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
    /// Path relative to the workspace's root.
    pub file: PathBuf,
    /// Line from 1; 0 stands for the whole file.
    pub line: usize,
    /// The rule's name, as the exceptions list writes it.
    pub rule: &'static str,
    /// The function or dependency for an exception; empty for the whole file.
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

/// Prints all findings. The error is their number.
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

/// The findings of all rules in all packages, without exceptions.
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
