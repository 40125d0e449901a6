//! Lookup of the places and tests that rows name. Owns the sources read so far.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// The items of one source.
#[derive(Default)]
struct Items {
    /// Functions, methods, types, constants, fields, variants, modules and macros.
    names: Vec<String>,
    /// Functions with a `test` attribute that run.
    tests: Vec<String>,
}

/// Sources below a root, each parsed once.
pub struct Sources<'a> {
    root: &'a Path,
    parsed: HashMap<PathBuf, Result<Items, String>>,
}

impl<'a> Sources<'a> {
    pub fn new(root: &'a Path) -> Self {
        Self {
            root,
            parsed: HashMap::new(),
        }
    }

    /// The reason why the place does not exist; `None` when it exists.
    pub fn place(&mut self, reference: &str) -> Option<String> {
        let Some((path, item)) = reference.split_once('#') else {
            return self.file(reference).err();
        };
        match self.items(path) {
            Err(cause) => Some(cause),
            Ok(items) if items.names.iter().any(|name| name == item) => None,
            Ok(_) => Some(format!("{path} has no item {item}")),
        }
    }

    /// The reason why the test does not exist; `None` when it exists.
    pub fn test(&mut self, reference: &str) -> Option<String> {
        if reference.ends_with(".pkt") {
            return self.file(reference).err();
        }
        let Some((path, function)) = reference.split_once('#') else {
            return Some(format!("{reference}: neither file#function nor a script"));
        };
        match self.items(path) {
            Err(cause) => Some(cause),
            Ok(items) if items.tests.iter().any(|name| name == function) => None,
            Ok(_) => Some(format!("{path} has no test {function} that runs")),
        }
    }

    /// The file of a path below `crates/`, `tools/` or the root.
    fn file(&self, path: &str) -> Result<PathBuf, String> {
        ["crates", "tools", ""]
            .into_iter()
            .map(|wing| self.root.join(wing).join(path))
            .find(|path| path.is_file())
            .ok_or_else(|| format!("{path}: no such file"))
    }

    fn items(&mut self, path: &str) -> Result<&Items, String> {
        let file = self.file(path)?;
        let items = match self.parsed.entry(file) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let items = parse(entry.key());
                entry.insert(items)
            }
        };
        items.as_ref().map_err(Clone::clone)
    }
}

fn parse(file: &Path) -> Result<Items, String> {
    let named = |cause: String| format!("{}: {cause}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| named(error.to_string()))?;
    let syntax = syn::parse_file(&text).map_err(|error| named(error.to_string()))?;
    let mut items = Items::default();
    items.visit_file(&syntax);
    Ok(items)
}

impl Items {
    fn function(&mut self, attributes: &[syn::Attribute], name: &syn::Ident) {
        let has = |wanted: &str| {
            attributes.iter().any(|attribute| {
                let last = attribute.path().segments.last();
                last.is_some_and(|segment| segment.ident == wanted)
            })
        };
        self.names.push(name.to_string());
        if has("test") && !has("ignore") {
            self.tests.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig.ident);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig.ident);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.function(&item.attrs, &item.sig.ident);
        visit::visit_trait_item_fn(self, item);
    }

    /// Records types, constants, fields and other items by their bare identifiers.
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let name = match item {
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Macro(item) => item.ident.as_ref(),
            syn::Item::Mod(item) => Some(&item.ident),
            syn::Item::Static(item) => Some(&item.ident),
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            _ => None,
        };
        self.names.extend(name.map(ToString::to_string));
        visit::visit_item(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.names.push(item.ident.to_string());
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.names
            .extend(field.ident.as_ref().map(ToString::to_string));
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.names.push(variant.ident.to_string());
        visit::visit_variant(self, variant);
    }

    /// Reads the functions in `proptest!`, which the parser does not see.
    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        let is_proptest = item
            .path
            .segments
            .last()
            .is_some_and(|segment| segment.ident == "proptest");
        if !is_proptest {
            return;
        }
        let mut after_fn = false;
        for token in item.tokens.clone() {
            let token = token.to_string();
            if after_fn {
                self.names.push(token.clone());
                self.tests.push(token.clone());
            }
            after_fn = token == "fn";
        }
    }
}
