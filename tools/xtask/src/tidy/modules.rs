//! Modules: each file starts with `//!`, and is reached from a root of its package.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use super::Finding;
use super::source::{Package, Source};

/// A finding if the file does not start with a module comment.
pub fn header(source: &Source) -> Option<Finding> {
    let first = source.text.lines().find(|line| !line.trim().is_empty());
    if first.is_some_and(|line| line.trim_start().starts_with("//!")) {
        return None;
    }
    let cause = "starts without `//!`: what it is for, what it owns, who calls it".to_owned();
    Some(source.finding("module-header", 1, "", cause))
}

/// Files that no `mod` line and no target reaches.
pub fn dead_files(package: &Package) -> Vec<Finding> {
    let mut alive = HashSet::new();
    for source in &package.sources {
        if is_root(package, source) {
            reach(
                package,
                source,
                &children_directory_of_root(source),
                &mut alive,
            );
        }
    }
    let dead = package
        .sources
        .iter()
        .filter(|source| !alive.contains(&source.path));
    dead.map(|source| {
        let cause = "dead file: no `mod` line and no target reaches it".to_owned();
        source.finding("dead-file", 0, "", cause)
    })
    .collect()
}

/// Whether the file is the root of a target, by cargo's conventions or by the manifest.
fn is_root(package: &Package, source: &Source) -> bool {
    let Ok(path) = source.path.strip_prefix(&package.directory) else {
        return false;
    };
    if package.manifest.roots.iter().any(|root| root == path) {
        return true;
    }
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    matches!(
        parts.as_slice(),
        ["build.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["src", "bin", _]
            | ["src", "bin", _, "main.rs"]
            | ["tests" | "benches" | "examples", _]
            | ["tests" | "benches" | "examples", _, "main.rs"]
    )
}

fn children_directory_of_root(source: &Source) -> PathBuf {
    source.path.parent().unwrap_or(Path::new("")).to_path_buf()
}

fn reach(package: &Package, source: &Source, children: &Path, alive: &mut HashSet<PathBuf>) {
    if !alive.insert(source.path.clone()) {
        return;
    }
    let Ok(syntax) = &source.syntax else { return };
    reach_items(package, source, &syntax.items, children, alive);
}

fn reach_items(
    package: &Package,
    source: &Source,
    items: &[syn::Item],
    children: &Path,
    alive: &mut HashSet<PathBuf>,
) {
    for item in items {
        let syn::Item::Mod(module) = item else {
            continue;
        };
        if let Some((_, items)) = &module.content {
            let below = children.join(name(module));
            reach_items(package, source, items, &below, alive);
        } else if let Some((found, next)) = file_of(package, source, children, module) {
            reach(package, found, &next, alive);
        }
    }
}

/// The name of a module as paths have it, without `r#`.
pub fn name(module: &syn::ItemMod) -> String {
    let name = module.ident.to_string();
    name.trim_start_matches("r#").to_owned()
}

/// The file to which a `mod` line leads, and the directory of that file's own modules.
pub fn file_of<'a>(
    package: &'a Package,
    source: &Source,
    children: &Path,
    module: &syn::ItemMod,
) -> Option<(&'a Source, PathBuf)> {
    let name = name(module);
    let named = path_attribute(&module.attrs);
    let candidates = match &named {
        Some(path) => vec![normal(
            &source.path.parent().unwrap_or(Path::new("")).join(path),
        )],
        None => vec![
            children.join(format!("{name}.rs")),
            children.join(&name).join("mod.rs"),
        ],
    };
    let mut sources = package.sources.iter();
    let found = sources.find(|other| candidates.contains(&normal(&other.path)))?;
    let owns_directory = named.is_some() || found.path.ends_with("mod.rs");
    let next = match owns_directory {
        true => children_directory_of_root(found),
        false => children.join(name),
    };
    Some((found, next))
}

/// The path without `.`, and with each `..` resolved.
fn normal(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir => {}
            part => whole.push(part),
        }
    }
    whole
}

/// The value of `#[path = "…"]`.
fn path_attribute(attributes: &[syn::Attribute]) -> Option<PathBuf> {
    attributes.iter().find_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        let syn::Expr::Lit(literal) = &pair.value else {
            return None;
        };
        match &literal.lit {
            syn::Lit::Str(text) if pair.path.is_ident("path") => Some(text.value().into()),
            _ => None,
        }
    })
}
