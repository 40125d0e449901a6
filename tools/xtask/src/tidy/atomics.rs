//! Atomics: `std::sync::atomic` and its types are named in `crates/ring` alone.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;

use super::Finding;
use super::source::{Package, Source};

/// The one crate that may name them.
const HOME: &str = "ring";

/// Every place where a file names an atomic.
pub fn check(package: &Package, source: &Source, syntax: &syn::File) -> Vec<Finding> {
    if package.manifest.name == HOME {
        return Vec::new();
    }
    let mut spans = Vec::new();
    collect(syntax.to_token_stream(), &mut spans);
    let mut lines: Vec<usize> = spans.iter().map(|span| span.start().line).collect();
    lines.sort_unstable();
    lines.dedup();
    let cause = "atomics live in crates/ring; use one of its types";
    lines
        .into_iter()
        .map(|line| source.finding("atomics", line, "", cause.to_owned()))
        .collect()
}

fn collect(tokens: TokenStream, spans: &mut Vec<Span>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect(group.stream(), spans),
            TokenTree::Ident(ident) if is_atomic(&ident.to_string()) => spans.push(ident.span()),
            _ => {}
        }
    }
}

/// The module `atomic`, and types such as `AtomicU32`, `AtomicBool`, `AtomicPtr`.
fn is_atomic(name: &str) -> bool {
    if name == "atomic" {
        return true;
    }
    let Some(kind) = name.strip_prefix("Atomic") else {
        return false;
    };
    matches!(kind, "Bool" | "Ptr" | "Usize" | "Isize")
        || kind
            .strip_prefix(['U', 'I'])
            .is_some_and(|bits| bits.parse::<u8>().is_ok())
}
