//! One writer of the state: in `tcp`, only `transition_to` assigns the field `state` of its type.

use std::collections::BTreeSet;

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::source::{Package, Source};

const CRATE: &str = "tcp";
const WRITER: &str = "transition_to";
const FIELD: &str = "state";

/// Assignments to the field by other functions of its type, outside tests.
pub fn check(package: &Package) -> Vec<Finding> {
    if package.manifest.name != CRATE {
        return Vec::new();
    }
    let sources = package.sources.iter();
    let sources: Vec<(&Source, &syn::File)> = sources
        .filter(|source| !source.path.to_string_lossy().contains("tests"))
        .filter_map(|source| Some((source, source.syntax.as_ref().ok()?)))
        .collect();
    let blocks = |syntax: &'_ syn::File| -> Vec<syn::ItemImpl> {
        let impls = syntax.items.iter().filter_map(|item| match item {
            syn::Item::Impl(block) => Some(block.clone()),
            _ => None,
        });
        impls.collect()
    };
    let owners: BTreeSet<String> = sources
        .iter()
        .flat_map(|(_, syntax)| blocks(syntax))
        .filter(|block| methods(block).any(|method| method.sig.ident == WRITER))
        .map(|block| type_name(&block))
        .collect();
    let mut findings = Vec::new();
    for (source, syntax) in &sources {
        for block in blocks(syntax) {
            if owners.contains(&type_name(&block)) {
                let others = methods(&block).filter(|method| method.sig.ident != WRITER);
                let mut writes = Writes(Vec::new());
                others.for_each(|method| writes.visit_impl_item_fn(method));
                findings.extend(writes.0.iter().map(|line| {
                    let cause = format!("only {WRITER} assigns the field `{FIELD}`");
                    source.finding("one-writer", *line, "", cause)
                }));
            }
        }
    }
    findings
}

/// The name of an `impl` block's type, without generics.
fn type_name(block: &syn::ItemImpl) -> String {
    match block.self_ty.as_ref() {
        syn::Type::Path(path) => {
            let last = path.path.segments.last();
            last.map_or(String::new(), |part| part.ident.to_string())
        }
        other => other.to_token_stream().to_string(),
    }
}

fn methods(block: &syn::ItemImpl) -> impl Iterator<Item = &syn::ImplItemFn> {
    block.items.iter().filter_map(|item| match item {
        syn::ImplItem::Fn(method) => Some(method),
        _ => None,
    })
}

/// Lines with an assignment.
struct Writes(Vec<usize>);

impl<'ast> Visit<'ast> for Writes {
    fn visit_expr_assign(&mut self, assign: &'ast syn::ExprAssign) {
        if let syn::Expr::Field(field) = assign.left.as_ref()
            && matches!(&field.member, syn::Member::Named(name) if name == FIELD)
        {
            self.0.push(assign.span().start().line);
        }
        visit::visit_expr_assign(self, assign);
    }
}
