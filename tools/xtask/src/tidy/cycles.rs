//! Cycles of `use` between the modules of a product crate, outside tests.
//!
//! The children of a module (the files of `src`, or of a folder) form a graph. Child A has an edge
//! to child B if a path anywhere below A names an item below B. Re-exported names are followed to
//! the module that defines them. Paths between a module and its own children are no edges.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::Finding;
use super::modules;
use super::source::{Package, Source};

/// Product crates stand below this directory.
const PRODUCT: &str = "crates";
/// Longest chain of re-exports that is followed.
const ALIASES_MAX: usize = 8;

/// Cycles of modules, in all product crates.
pub fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let product = packages
        .iter()
        .filter(|package| package.directory.starts_with(PRODUCT));
    for package in product {
        for root in ["src/lib.rs", "src/main.rs"] {
            let path = package.directory.join(root);
            if let Some(source) = package.sources.iter().find(|one| one.path == path) {
                let crate_modules = Modules::of(package, source);
                findings.extend(crate_modules.check(&package.manifest.name));
            }
        }
    }
    findings
}

fn finding(file: PathBuf, item: &str, cause: String) -> Finding {
    Finding {
        file,
        line: 0,
        rule: "module-cycle",
        item: item.to_owned(),
        cause,
    }
}

/// A module of a crate, in its own file or inline.
struct Module {
    /// The file that holds the module's items.
    file: PathBuf,
    /// Path from the crate's root, whose own path is empty.
    path: Vec<String>,
    /// Its child modules by name, as indexes of [`Modules::list`].
    children: BTreeMap<String, usize>,
    /// Names that its `use` lines introduce, with the paths that they stand for.
    aliases: HashMap<String, Vec<String>>,
    /// Paths that its code names.
    paths: Vec<Vec<String>>,
}

/// All modules of a crate except tests; the root comes first.
struct Modules {
    list: Vec<Module>,
}

impl Modules {
    fn of(package: &Package, root: &Source) -> Self {
        let mut modules = Self { list: Vec::new() };
        if let Ok(syntax) = &root.syntax {
            let children = root.path.parent().unwrap_or(Path::new(""));
            modules.add(package, root, &syntax.items, children, Vec::new());
        }
        modules
    }

    /// Adds a module and those below it, and returns its index.
    fn add(
        &mut self,
        package: &Package,
        source: &Source,
        items: &[syn::Item],
        children: &Path,
        path: Vec<String>,
    ) -> usize {
        let mut words = Words::default();
        for item in items {
            words.visit_item(item);
        }
        let index = self.list.len();
        self.list.push(Module {
            file: source.path.clone(),
            path: path.clone(),
            children: BTreeMap::new(),
            aliases: words.aliases,
            paths: words.paths,
        });
        for item in items {
            let syn::Item::Mod(module) = item else {
                continue;
            };
            if is_test(&module.attrs) {
                continue;
            }
            let name = modules::name(module);
            let below: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
            let child = if let Some((_, items)) = &module.content {
                self.add(package, source, items, &children.join(&name), below)
            } else {
                let found = modules::file_of(package, source, children, module);
                let Some((file, next)) = found else { continue };
                let Ok(syntax) = &file.syntax else { continue };
                self.add(package, file, &syntax.items, &next, below)
            };
            self.list[index].children.insert(name, child);
        }
        index
    }

    /// The findings in this crate.
    fn check(&self, name: &str) -> Vec<Finding> {
        let edges = self.edges();
        let mut findings = Vec::new();
        for parent in &self.list {
            let parts = [name]
                .into_iter()
                .chain(parent.path.iter().map(String::as_str));
            let key = parts.collect::<Vec<_>>().join("::");
            let between: BTreeSet<(usize, usize)> = parent
                .children
                .values()
                .flat_map(|from| parent.children.values().map(move |to| (*from, *to)))
                .filter(|edge| edges.contains(edge))
                .collect();
            for cycle in cycles(&between) {
                let is_within = |edge: &&(usize, usize)| {
                    edge.0 != edge.1 && cycle.contains(&edge.0) && cycle.contains(&edge.1)
                };
                let arrow = |edge: &(usize, usize)| {
                    format!("{} → {}", self.name_of(edge.0), self.name_of(edge.1))
                };
                let arrows: Vec<String> = between.iter().filter(is_within).map(arrow).collect();
                let all = arrows.join(", ");
                let cause = format!("modules of {key} use each other in a circle: {all}");
                findings.push(finding(parent.file.clone(), &key, cause));
            }
        }
        findings
    }

    fn name_of(&self, index: usize) -> &str {
        self.list[index].path.last().map_or("", String::as_str)
    }

    /// Pairs of sibling modules of which the first names an item of the second.
    fn edges(&self) -> BTreeSet<(usize, usize)> {
        let mut edges = BTreeSet::new();
        for (index, module) in self.list.iter().enumerate() {
            let aliased = module.aliases.values();
            for path in module.paths.iter().chain(aliased) {
                if let Some(target) = self.resolve(index, path, ALIASES_MAX) {
                    edges.extend(self.branches(index, target));
                }
            }
        }
        edges
    }

    /// The siblings at which the ways from the root to two modules part.
    fn branches(&self, from: usize, to: usize) -> Option<(usize, usize)> {
        let (from, to) = (&self.list[from].path, &self.list[to].path);
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let (from, to) = (from.get(..=common)?, to.get(..=common)?);
        Some((self.at(from)?, self.at(to)?))
    }

    fn at(&self, path: &[String]) -> Option<usize> {
        path.iter().try_fold(0, |index, name| {
            self.list[index].children.get(name).copied()
        })
    }

    /// The module that contains the item of a path, seen from module `from`; `None` for another
    /// crate's item.
    fn resolve(&self, from: usize, path: &[String], aliases_left: usize) -> Option<usize> {
        let (mut index, mut rest) = match path.first()?.as_str() {
            "crate" => (0, &path[1..]),
            "self" => (from, &path[1..]),
            "super" => (from, path),
            name => {
                let module = &self.list[from];
                let is_own = module.children.contains_key(name);
                let is_alias = module.aliases.contains_key(name);
                if !is_own && !is_alias {
                    return None;
                }
                (from, path)
            }
        };
        while let Some((name, after)) = rest.split_first() {
            let module = &self.list[index];
            if name == "super" {
                index = self.at(&module.path[..module.path.len().checked_sub(1)?])?;
            } else if let Some(child) = module.children.get(name) {
                index = *child;
            } else {
                let alias = module.aliases.get(name);
                let alias = alias.filter(|alias| alias.as_slice() != path || index != from);
                let Some(alias) = alias.filter(|_| aliases_left > 0) else {
                    return Some(index);
                };
                let whole: Vec<String> = alias.iter().chain(after).cloned().collect();
                // A name that our module re-exports from another crate belongs to that module.
                let target = self.resolve(index, &whole, aliases_left - 1);
                return target.or((index != from).then_some(index));
            }
            rest = after;
        }
        Some(index)
    }
}

/// Strongly connected parts of a graph that have more than one node, each sorted.
fn cycles(edges: &BTreeSet<(usize, usize)>) -> Vec<Vec<usize>> {
    let nodes: BTreeSet<usize> = edges.iter().map(|edge| edge.0).collect();
    let reached: BTreeMap<usize, BTreeSet<usize>> = nodes
        .iter()
        .map(|node| (*node, reachable(*node, edges)))
        .collect();
    let is_mutual = |a: usize, b: usize| {
        let reaches =
            |from: usize, to: usize| reached.get(&from).is_some_and(|set| set.contains(&to));
        a != b && reaches(a, b) && reaches(b, a)
    };
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    let mut cycles = Vec::new();
    for node in &nodes {
        if seen.contains(node) {
            continue;
        }
        let with = nodes.iter().filter(|other| is_mutual(*node, **other));
        let cycle: BTreeSet<usize> = with.copied().chain([*node]).collect();
        seen.extend(&cycle);
        if cycle.len() > 1 {
            cycles.push(cycle.into_iter().collect());
        }
    }
    cycles
}

fn reachable(from: usize, edges: &BTreeSet<(usize, usize)>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for (_, next) in edges.range((node, 0)..=(node, usize::MAX)) {
            if found.insert(*next) {
                open.push(*next);
            }
        }
    }
    found
}

/// Paths that the items of a module name, without those in modules below it.
#[derive(Default)]
struct Words {
    aliases: HashMap<String, Vec<String>>,
    paths: Vec<Vec<String>>,
}

impl Words {
    fn import(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect();
        match tree {
            syn::UseTree::Path(path) => {
                let path_so_far: Vec<String> = with(&path.ident);
                self.import(&path_so_far, &path.tree);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(before, tree);
                }
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = before.last() {
                    self.aliases.insert(last.clone(), before.to_vec());
                }
            }
            syn::UseTree::Name(name) => {
                self.aliases
                    .insert(name.ident.to_string(), with(&name.ident));
            }
            syn::UseTree::Rename(rename) => {
                self.aliases
                    .insert(rename.rename.to_string(), with(&rename.ident));
            }
            syn::UseTree::Glob(_) => self.paths.push(before.to_vec()),
        }
    }

    /// Records chains of names joined by `::` in a macro's arguments.
    fn chains(&mut self, tokens: TokenStream) {
        let mut chain: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.paths.push(std::mem::take(&mut chain));
                    }
                    chain.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' => colons += 1,
                other => {
                    self.paths.push(std::mem::take(&mut chain));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.chains(group.stream());
                    }
                }
            }
        }
        self.paths.push(chain);
    }
}

impl<'ast> Visit<'ast> for Words {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Mod(_) => {}
            syn::Item::Fn(function) if is_test(&function.attrs) => {}
            syn::Item::Impl(block) if is_test(&block.attrs) => {}
            syn::Item::Use(line) if is_test(&line.attrs) => {}
            syn::Item::Use(line) => self.import(&[], &line.tree),
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|part| part.ident.to_string());
        self.paths.push(names.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.chains(item.tokens.clone());
        visit::visit_macro(self, item);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// Whether the attributes contain `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        let words = list.tokens.to_string().replace(' ', "");
        list.path.is_ident("cfg") && (words == "test" || words.starts_with("all(test,"))
    })
}
