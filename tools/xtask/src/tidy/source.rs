//! The packages and sources that the rules check. Owns their text and syntax trees.

use std::fs;
use std::path::{Path, PathBuf};

use super::Finding;
use super::manifest::Manifest;

/// Directories without sources of ours.
const SKIPPED: &[&str] = &["target", ".git", "corpus", "artifacts", "node_modules"];

/// One Cargo package.
pub struct Package {
    /// Path relative to the workspace's root.
    pub directory: PathBuf,
    pub manifest: Manifest,
    pub sources: Vec<Source>,
}

/// One Rust file.
pub struct Source {
    /// Path relative to the workspace's root.
    pub path: PathBuf,
    pub text: String,
    /// The syntax tree, or the line and cause of the error.
    pub syntax: Result<syn::File, (usize, String)>,
}

impl Source {
    /// Parses the text.
    pub fn new(path: PathBuf, text: String) -> Self {
        let syntax =
            syn::parse_file(&text).map_err(|error| (error.span().start().line, error.to_string()));
        Self { path, text, syntax }
    }

    /// A finding in this file.
    pub fn finding(&self, rule: &'static str, line: usize, item: &str, cause: String) -> Finding {
        Finding {
            file: self.path.clone(),
            line,
            rule,
            item: item.to_owned(),
            cause,
        }
    }

    /// Whether this file may hold `unsafe`, by its name.
    pub fn is_unsafe_file(&self) -> bool {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.ends_with("_unsafe.rs"))
    }
}

/// All packages below the root, with their sources.
pub fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let mut files = Vec::new();
    walk(root, &mut files)?;
    let manifests = files.iter().filter(|path| path.ends_with("Cargo.toml"));
    let mut packages = Vec::new();
    for path in manifests {
        let text = read(root, path)?;
        let manifest = Manifest::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let Some(manifest) = manifest else { continue };
        let directory = path.parent().unwrap_or(Path::new("")).to_path_buf();
        packages.push(Package {
            directory,
            manifest,
            sources: Vec::new(),
        });
    }
    // Inner packages come first, so that each file goes to the innermost one.
    packages.sort_by_key(|package| std::cmp::Reverse(package.directory.components().count()));
    for path in files {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let owner = packages
            .iter_mut()
            .find(|package| path.starts_with(&package.directory));
        let owner = owner.ok_or_else(|| format!("{}: belongs to no package", path.display()))?;
        let text = read(root, &path)?;
        owner.sources.push(Source::new(path, text));
    }
    Ok(packages)
}

/// Adds all files below the root that may be ours, with relative paths, sorted.
pub fn walk(root: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    walk_below(root, Path::new(""), files)?;
    files.sort();
    Ok(())
}

fn walk_below(root: &Path, directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let absolute = root.join(directory);
    let entries =
        fs::read_dir(&absolute).map_err(|error| format!("{}: {error}", absolute.display()))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let path = directory.join(&name);
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => {
                let skip = SKIPPED.iter().any(|skipped| name == *skipped);
                if !skip {
                    walk_below(root, &path, files)?;
                }
            }
            Ok(kind) if kind.is_file() => files.push(path),
            _ => {}
        }
    }
    Ok(())
}

/// The text of a file below the root.
pub fn read(root: &Path, path: &Path) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("{}: {error}", path.display()))
}
