//! Unsafe code: it stands only in files named `*_unsafe.rs`, and each block has its `SAFETY:`. A
//! crate without such a file forbids it.

use std::path::Path;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::source::{Package, Source};

/// Findings about the unsafe code of a file.
pub fn check(source: &Source, syntax: &syn::File) -> Vec<Finding> {
    let mut visitor = Unsafe {
        source,
        lines: source.text.lines().collect(),
        statement: None,
        findings: Vec::new(),
    };
    visitor.visit_file(syntax);
    visitor.findings
}

/// Findings about libraries and programs without an unsafe file whose root lacks
/// `#![forbid(unsafe_code)]`.
pub fn check_package(package: &Package) -> Vec<Finding> {
    let in_src = |source: &&Source| source.path.starts_with(package.directory.join("src"));
    if package
        .sources
        .iter()
        .filter(in_src)
        .any(Source::is_unsafe_file)
    {
        return Vec::new();
    }
    let is_root = |source: &&Source| {
        let relative = source.path.strip_prefix(&package.directory);
        relative
            .is_ok_and(|path| path == Path::new("src/lib.rs") || path == Path::new("src/main.rs"))
    };
    let roots = package.sources.iter().filter(is_root);
    roots
        .filter(|source| !forbids_unsafe(source))
        .map(|source| {
            let cause = "no *_unsafe.rs in this crate, so its root says #![forbid(unsafe_code)]";
            source.finding("forbid-unsafe", 1, "", cause.to_owned())
        })
        .collect()
}

fn forbids_unsafe(source: &Source) -> bool {
    let Ok(syntax) = &source.syntax else {
        return true;
    };
    syntax.attrs.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        list.path.is_ident("forbid") && mentions(&list.tokens, "unsafe_code").is_some()
    })
}

/// The first place of an identifier in a token stream, at any depth.
fn mentions(tokens: &TokenStream, name: &str) -> Option<Span> {
    tokens.clone().into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if ident == name => Some(ident.span()),
        TokenTree::Group(group) => mentions(&group.stream(), name),
        _ => None,
    })
}

struct Unsafe<'a> {
    source: &'a Source,
    lines: Vec<&'a str>,
    /// First line of the innermost statement around the current place.
    statement: Option<usize>,
    findings: Vec<Finding>,
}

impl Unsafe<'_> {
    fn meet(&mut self, span: Span, what: &str) {
        if self.source.is_unsafe_file() {
            return;
        }
        let cause = format!("{what} outside of a file called *_unsafe.rs");
        self.find("unsafe-file", span.start().line, cause);
    }

    /// Checks a block or impl that needs a `SAFETY:` comment.
    fn meet_with_reason(&mut self, span: Span, what: &str) {
        self.meet(span, what);
        let line = span.start().line;
        let above = |line: usize| self.comment_above(line).contains("SAFETY:");
        let told = above(line) || self.statement.is_some_and(above) || self.told_inside(line);
        if !told {
            self.find(
                "safety-comment",
                line,
                format!("{what} without a SAFETY: comment above it"),
            );
        }
    }

    fn find(&mut self, rule: &'static str, line: usize, cause: String) {
        self.findings
            .push(self.source.finding(rule, line, "", cause));
    }

    /// Comment and attribute lines right above a line (counted from 1).
    fn comment_above(&self, line: usize) -> String {
        let above = self.lines.iter().take(line - 1).rev();
        let is_comment = |text: &&&str| {
            let text = text.trim_start();
            text.starts_with("//") || text.starts_with("#[")
        };
        above
            .take_while(is_comment)
            .copied()
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Whether `SAFETY:` stands on the line itself, or on the first line within the braces.
    fn told_inside(&self, line: usize) -> bool {
        let tells = |line: usize| {
            self.lines
                .get(line - 1)
                .is_some_and(|text| text.contains("// SAFETY:"))
        };
        tells(line)
            || tells(line + 1)
                && self
                    .lines
                    .get(line - 1)
                    .is_some_and(|text| text.trim_end().ends_with('{'))
    }
}

impl<'ast> Visit<'ast> for Unsafe<'_> {
    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        let outer = self.statement.replace(statement.span().start().line);
        visit::visit_stmt(self, statement);
        self.statement = outer;
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.meet_with_reason(block.unsafe_token.span, "unsafe block");
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = &item.unsafety {
            self.meet_with_reason(token.span, "unsafe impl");
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if let Some(token) = &item.unsafety {
            self.meet(token.span, "unsafe trait");
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if let syn::Safety::Unsafe(token) = &signature.safety {
            self.meet(token.span, "unsafe fn");
        }
        visit::visit_signature(self, signature);
    }

    fn visit_item_foreign_mod(&mut self, item: &'ast syn::ItemForeignMod) {
        self.meet(item.abi.extern_token.span, "extern block");
        visit::visit_item_foreign_mod(self, item);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if attribute.path().is_ident("unsafe") {
            self.meet(attribute.span(), "unsafe attribute");
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if let Some(span) = mentions(&call.tokens, "unsafe") {
            self.meet(span, "unsafe in a macro");
        }
        visit::visit_macro(self, call);
    }
}
