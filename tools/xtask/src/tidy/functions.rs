//! Lengths: a function has at most 70 lines, a file at most 600 lines of code.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use super::source::Source;

/// Most lines of a function, from the line of `fn` to that of the closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;
/// Most lines of a file that are neither blank nor a comment.
pub const FILE_LINES_MAX: usize = 600;

/// Functions of a file that are too long.
pub fn function_lengths(source: &Source, syntax: &syn::File) -> Vec<Finding> {
    let mut visitor = Lengths {
        source,
        findings: Vec::new(),
    };
    visitor.visit_file(syntax);
    visitor.findings
}

/// A finding if the file is too long.
pub fn file_length(source: &Source) -> Option<Finding> {
    let lines = lines_of_code(&source.text);
    if lines <= FILE_LINES_MAX {
        return None;
    }
    let cause = format!("{lines} lines of code, more than {FILE_LINES_MAX}");
    Some(source.finding("file-length", 0, "", cause))
}

/// Number of lines that are neither blank nor only a comment.
pub fn lines_of_code(text: &str) -> usize {
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
    text.lines().map(str::trim).filter(is_code).count()
}

struct Lengths<'a> {
    source: &'a Source,
    findings: Vec<Finding>,
}

impl Lengths<'_> {
    fn check(&mut self, signature: &syn::Signature, end: Span) {
        self.measure(&signature.ident, signature.fn_token.span, end);
    }

    fn measure(&mut self, name: &Ident, start: Span, end: Span) {
        let start = start.start().line;
        let lines = end.end().line + 1 - start;
        if lines <= FUNCTION_LINES_MAX {
            return;
        }
        let name = name.to_string();
        let cause = format!("fn {name} has {lines} lines, more than {FUNCTION_LINES_MAX}");
        let finding = self.source.finding("function-length", start, &name, cause);
        self.findings.push(finding);
    }

    /// Checks functions in a macro's arguments, mainly of `proptest!`: `fn`, a name, and the next
    /// braces.
    fn check_words(&mut self, words: TokenStream) {
        let mut begun: Option<(Ident, Span)> = None;
        let mut before: Option<Ident> = None;
        for word in words {
            match word {
                TokenTree::Group(group) => {
                    if let Some((name, start)) = begun.take_if(|_| is_body(&group)) {
                        self.measure(&name, start, group.span_close());
                    }
                    self.check_words(group.stream());
                    before = None;
                }
                TokenTree::Ident(ident) => {
                    if let Some(keyword) = before.take_if(|word| word == "fn") {
                        begun = Some((ident.clone(), keyword.span()));
                    }
                    before = Some(ident);
                }
                TokenTree::Punct(sign) => {
                    if sign.as_char() == ';' {
                        begun = None;
                    }
                    before = None;
                }
                TokenTree::Literal(_) => before = None,
            }
        }
    }
}

fn is_body(group: &Group) -> bool {
    group.delimiter() == Delimiter::Brace
}

impl<'ast> Visit<'ast> for Lengths<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.check(&item.sig, item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check(&item.sig, item.block.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.check_words(item.tokens.clone());
        visit::visit_macro(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.check(&item.sig, block.span());
        }
        visit::visit_trait_item_fn(self, item);
    }
}
