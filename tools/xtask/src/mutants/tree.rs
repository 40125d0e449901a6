//! A copy of the workspace for mutants: `target/mutants/tree`.
//!
//! A file is written only if its text differs, so that cargo rebuilds only what a mutant changed.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::run;

pub struct Tree {
    /// The workspace that was copied.
    origin: PathBuf,
    root: PathBuf,
    /// The copied files, sorted.
    files: Vec<String>,
}

impl Tree {
    /// Brings the copy up to date with the work tree of `origin`: the files that git tracks or
    /// would add. Those in `switched` are left to the caller.
    pub fn copy_of(origin: &Path, switched: &BTreeSet<String>) -> Result<Tree, String> {
        let mut tree = Tree {
            origin: origin.to_owned(),
            root: run::target(origin).join("mutants/tree"),
            files: Vec::new(),
        };
        let listed = run::output(
            run::command("git")
                .arg("-C")
                .arg(origin)
                .args(["ls-files", "-z", "--cached", "--others"])
                .arg("--exclude-standard"),
        )?;
        let files: HashSet<&str> = listed
            .split('\0')
            .filter(|name| origin.join(name).is_file())
            .collect();
        for name in files.iter().filter(|name| !switched.contains(**name)) {
            tree.copy(name)?;
        }
        tree.remove_others(&tree.root, &files)?;
        tree.files = files.into_iter().map(str::to_owned).collect();
        tree.files.sort_unstable();
        Ok(tree)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The text of a file in the workspace.
    pub fn source(&self, file: &str) -> Result<String, String> {
        let path = self.origin.join(file);
        fs::read_to_string(&path).map_err(|error| told(&path, &error))
    }

    /// The text of a file in the copy.
    pub fn text(&self, file: &str) -> Result<String, String> {
        let path = self.root.join(file);
        fs::read_to_string(&path).map_err(|error| told(&path, &error))
    }

    /// A hash of product, tests and tools, which changes with their text.
    pub fn state(&self) -> Result<String, String> {
        let mut hasher = DefaultHasher::new();
        for file in &self.files {
            if file.ends_with(".md") || file.starts_with("tools/xtask/") {
                continue;
            }
            let path = self.origin.join(file);
            let text = fs::read(&path).map_err(|error| told(&path, &error))?;
            (file, text).hash(&mut hasher);
        }
        Ok(format!("{:016x}", hasher.finish()))
    }

    /// Writes `text` to the file, if it differs.
    pub fn write(&self, file: &str, text: &[u8]) -> Result<(), String> {
        let path = self.root.join(file);
        if fs::read(&path).is_ok_and(|old| old == text) {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(parent).map_err(|error| told(parent, &error))?;
        fs::write(&path, text).map_err(|error| told(&path, &error))
    }

    fn copy(&self, name: &str) -> Result<(), String> {
        let (from, to) = (self.origin.join(name), self.root.join(name));
        let text = fs::read(&from).map_err(|error| told(&from, &error))?;
        self.write(name, &text)?;
        // Keep executable files among the tests executable.
        let mode = fs::metadata(&from).map_err(|error| told(&from, &error))?;
        fs::set_permissions(&to, mode.permissions()).map_err(|error| told(&to, &error))
    }

    /// Removes files that the workspace no longer has.
    fn remove_others(&self, directory: &Path, files: &HashSet<&str>) -> Result<(), String> {
        let entries = fs::read_dir(directory).map_err(|error| told(directory, &error))?;
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.remove_others(&path, files)?;
                continue;
            }
            let name = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
            if name.is_none_or(|name| !files.contains(name)) {
                fs::remove_file(&path).map_err(|error| told(&path, &error))?;
            }
        }
        Ok(())
    }
}

fn told(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
