//! Many mutants in one build: each mutated place tests at run time whether its mutant is on.
//!
//! ```text
//! a < b            (if crate::mutant_switch::is_on(7) { (a) <= (b) } else { (a) < (b) })
//! fn f() { BODY }  fn f() { if crate::mutant_switch::is_on(8) { return VALUE; } BODY }
//! ```
//!
//! A build takes a minute and a test run takes seconds, so only a common build makes hundreds of
//! mutants affordable. Operators keep the grouping of their expression. The compiler refuses some
//! switches, such as a call in a constant. Comments around each mutant tell which one an error is
//! about.

use std::collections::HashMap;
use std::ops::Range;

use proc_macro2::LineColumn;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::list::{Genre, Mutant, Place};

/// The environment variable that chooses the mutant.
pub const VARIABLE: &str = "MILLSTREAM_MUTANT";
/// The variable's value with which no mutant is on, and reached ones are noted in a file.
pub const REACHES: &str = "reaches";
/// The environment variable that names that file. Its lines are `MUTANT THREAD`; a thread of a test
/// program is named after its test.
pub const REACH_VARIABLE: &str = "MILLSTREAM_MUTANT_REACHES";

/// The module appended to the root of every mutated crate.
pub const SWITCH: &str = r#"
#[doc(hidden)]
#[allow(missing_docs, dead_code, unused_extern_crates)]
pub mod mutant_switch {
    extern crate std;
    use self::std::cell::RefCell;
    use self::std::env::var;
    use self::std::fs::{File, OpenOptions};
    use self::std::io::Write;
    use self::std::string::String;
    use self::std::sync::LazyLock;
    use self::std::vec::Vec;
    const NONE: u32 = u32::MAX;
    const REACHES: u32 = u32::MAX - 1;
    static CHOSEN: LazyLock<u32> = LazyLock::new(|| match var("MILLSTREAM_MUTANT").as_deref() {
        Ok("reaches") => REACHES,
        Ok(number) => number.parse().unwrap_or(NONE),
        Err(_) => NONE,
    });
    static NOTES: LazyLock<Option<File>> = LazyLock::new(|| {
        let path = var("MILLSTREAM_MUTANT_REACHES").ok()?;
        OpenOptions::new().append(true).open(path).ok()
    });
    self::std::thread_local! {
        static REACHED: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
    }
    #[inline(always)]
    pub fn is_on(id: u32) -> bool {
        let chosen = *CHOSEN;
        if chosen == REACHES {
            note(id);
        }
        chosen == id
    }
    #[cold]
    fn note(id: u32) {
        let is_new = REACHED.try_with(|reached| {
            let mut reached = reached.borrow_mut();
            let at = id as usize;
            if reached.len() <= at {
                reached.resize(at + 1, false);
            }
            !self::std::mem::replace(&mut reached[at], true)
        });
        if let (Ok(true), Some(mut file)) = (is_new, NOTES.as_ref()) {
            let thread = self::std::thread::current();
            let mut line = String::new();
            let _ = self::std::fmt::Write::write_fmt(
                &mut line,
                format_args!("{id} {}\n", thread.name().unwrap_or("?")),
            );
            let _ = file.write_all(line.as_bytes());
        }
    }
}
"#;

/// A mutant and its number.
pub type Numbered<'a> = (usize, &'a Mutant);

/// The rewritten text of a file.
pub struct Switched {
    pub text: String,
    /// Mutants whose place was not found, or where no switch can stand.
    pub left_out: Vec<usize>,
}

/// The form of a mutated place.
enum Kind {
    /// A function's body; the switch comes before its first statement.
    Body,
    /// `left op right`
    Binary {
        left: Range<usize>,
        op: String,
        right: Range<usize>,
    },
    /// `op operand`
    Unary { op: String, operand: Range<usize> },
    /// A match arm; the switch comes behind its pattern.
    Arm,
    /// The expression of an arm's guard.
    Guard,
    /// A struct literal with a base. For each mutant's number it has the range of the field that is
    /// left out.
    Literal(Vec<(usize, Range<usize>)>),
}

/// A place with mutants.
struct Site {
    range: Range<usize>,
    kind: Kind,
    /// Numbers and replacements.
    mutants: Vec<(usize, String)>,
}

/// Rewrites `source` so that it contains all of `mutants`.
pub fn switch(source: &str, mutants: &[Numbered<'_>]) -> Result<Switched, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut wanted: HashMap<(Genre, Place), Vec<(usize, String)>> = HashMap::new();
    for (number, mutant) in mutants {
        let key = (mutant.genre, mutant.span.start);
        let entry = (*number, mutant.replacement.clone());
        wanted.entry(key).or_default().push(entry);
    }
    let mut finder = Finder {
        wanted,
        sites: Vec::new(),
    };
    finder.visit_file(&file);
    let left_out = finder.wanted.into_values().flatten().map(|(n, _)| n);
    let left_out = left_out.collect();
    let mut sites = finder.sites;
    // Outer places come first. An insertion comes before a place that begins at the same byte.
    sites.sort_by_key(|site| {
        let is_insertion = site.range.is_empty();
        (site.range.start, !is_insertion, usize::MAX - site.range.end)
    });
    let writer = Writer { source, sites };
    Ok(Switched {
        text: writer.text(0..source.len(), None),
        left_out,
    })
}

/// `source` with this mutant in it, as cargo-mutants writes it.
pub fn replace(source: &str, mutant: &Mutant) -> String {
    let start = offset(source, mutant.span.start);
    let end = offset(source, mutant.span.end);
    let (head, tail) = (&source[..start], &source[end..]);
    format!("{head}{} {tail}", mutant.replacement)
}

/// The mutants around the text at `range` of a rewritten file, the innermost first.
pub fn mutants_at(text: &str, range: Range<usize>) -> Vec<usize> {
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut found = Vec::new();
    for (at, _) in text.match_indices("/*mutant ") {
        let word = &text[at + "/*mutant ".len()..];
        let Some((word, _)) = word.split_once("*/") else {
            continue;
        };
        match word.strip_prefix("end ") {
            None => open.extend(word.parse().map(|number: usize| (number, at))),
            Some(_) => {
                let Some((number, start)) = open.pop() else {
                    continue;
                };
                if start < range.end && at > range.start {
                    found.push((at - start, number));
                }
            }
        }
    }
    // The innermost mutant has the shortest text.
    found.sort_unstable();
    found.into_iter().map(|(_, number)| number).collect()
}

/// The first mutant whose switch a message of the compiler quotes.
pub fn mutant_in(message: &str) -> Option<usize> {
    let (_, word) = message.split_once("switch::is_on(")?;
    word.split_once(')')?.0.parse().ok()
}

/// The mutant whose switch is nearest to a place in a rewritten file.
pub fn mutant_near(text: &str, at: usize) -> Option<usize> {
    let questions = text.match_indices("switch::is_on(");
    let (nearest, _) = questions.min_by_key(|(start, _)| start.abs_diff(at))?;
    mutant_in(&text[nearest..])
}

/// The text of a mutant between comments with its number.
fn marked(number: usize, text: &str) -> String {
    format!("/*mutant {number}*/{text}/*mutant end {number}*/")
}

fn is_on(number: usize) -> String {
    format!("crate::mutant_switch::is_on({number})")
}

struct Writer<'a> {
    source: &'a str,
    sites: Vec<Site>,
}

impl Writer<'_> {
    /// The text of `range` with all places in it rewritten, except `outer` and the places around
    /// that.
    fn text(&self, range: Range<usize>, outer: Option<usize>) -> String {
        let mut text = String::new();
        let mut at = range.start;
        let first = outer.map_or(0, |outer| outer + 1);
        for (index, site) in self.sites.iter().enumerate().skip(first) {
            if site.range.start >= range.end {
                break;
            }
            if site.range.start < at || site.range.end > range.end {
                continue;
            }
            text += &self.source[at..site.range.start];
            text += &self.site(index, site);
            at = site.range.end;
        }
        text += &self.source[at..range.end];
        text
    }

    fn site(&self, index: usize, site: &Site) -> String {
        let inner = |range: &Range<usize>| self.text(range.clone(), Some(index));
        match &site.kind {
            Kind::Body => {
                let one = |(number, value): &(usize, String)| {
                    let body = format!("if {} {{ return {value}; }} ", is_on(*number));
                    marked(*number, &body)
                };
                site.mutants.iter().map(one).collect()
            }
            Kind::Binary { left, op, right } => {
                let (left, right) = (inner(left), inner(right));
                self.choice(site, &format!("({left}) {op} ({right})"), |other| {
                    format!("({left}) {other} ({right})")
                })
            }
            Kind::Unary { op, operand } => {
                let operand = inner(operand);
                self.choice(site, &format!("{op}({operand})"), |_| {
                    format!("({operand})")
                })
            }
            Kind::Arm => {
                let one = |(number, _): &(usize, String)| {
                    marked(*number, &format!(" if !{} ", is_on(*number)))
                };
                site.mutants.iter().map(one).collect()
            }
            Kind::Guard => {
                let guard = inner(&site.range);
                self.choice(site, &format!("({guard})"), str::to_owned)
            }
            Kind::Literal(fields) => {
                let whole = inner(&site.range);
                let one = |(number, field): &(usize, Range<usize>)| {
                    let head = self.text(site.range.start..field.start, Some(index));
                    let tail = self.text(field.end..site.range.end, Some(index));
                    let chosen = marked(
                        *number,
                        &format!("if {} {{ {head}{tail} }}", is_on(*number)),
                    );
                    format!("{chosen} else ")
                };
                let choices: String = fields.iter().map(one).collect();
                format!("({choices}{{ {whole} }})")
            }
        }
    }

    /// An expression that is `usual` unless one of the place's mutants is on.
    fn choice(&self, site: &Site, usual: &str, mutated: impl Fn(&str) -> String) -> String {
        let mut text = String::from("(");
        for (number, replacement) in &site.mutants {
            let body = format!("if {} {{ {} }}", is_on(*number), mutated(replacement));
            text += &marked(*number, &body);
            text += " else ";
        }
        text + "{ " + usual + " })"
    }
}

/// Finds the places of the wanted mutants.
struct Finder {
    wanted: HashMap<(Genre, Place), Vec<(usize, String)>>,
    sites: Vec<Site>,
}

fn place(at: LineColumn) -> Place {
    Place {
        line: at.line,
        column: at.column + 1,
    }
}

/// The byte range of a syntax node.
fn range_of(node: &impl ToTokens) -> Range<usize> {
    node.span().byte_range()
}

impl Finder {
    fn take(&mut self, genre: Genre, at: LineColumn) -> Option<Vec<(usize, String)>> {
        self.wanted.remove(&(genre, place(at)))
    }

    fn site(&mut self, range: Range<usize>, kind: Kind, mutants: Vec<(usize, String)>) {
        self.sites.push(Site {
            range,
            kind,
            mutants,
        });
    }

    fn body(&mut self, block: &syn::Block) {
        let Some(first) = block.stmts.first() else {
            return;
        };
        if let Some(mutants) = self.take(Genre::FnValue, first.span().start()) {
            let start = range_of(first).start;
            self.site(start..start, Kind::Body, mutants);
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        self.body(&node.block);
        visit::visit_item_fn(self, node);
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.body(&node.block);
        visit::visit_impl_item_fn(self, node);
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        if let Some(block) = &node.default {
            self.body(block);
        }
        visit::visit_trait_item_fn(self, node);
    }

    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        let can_ask = !binds(&node.left) && !binds(&node.right);
        if can_ask && let Some(mutants) = self.take(Genre::BinaryOperator, node.op.span().start()) {
            let kind = Kind::Binary {
                left: range_of(&node.left),
                op: node.op.to_token_stream().to_string(),
                right: range_of(&node.right),
            };
            self.site(range_of(node), kind, mutants);
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        if let Some(mutants) = self.take(Genre::UnaryOperator, node.op.span().start()) {
            let kind = Kind::Unary {
                op: node.op.to_token_stream().to_string(),
                operand: range_of(&node.expr),
            };
            self.site(range_of(node), kind, mutants);
        }
        visit::visit_expr_unary(self, node);
    }

    fn visit_arm(&mut self, node: &'ast syn::Arm) {
        if let Some(mutants) = self.take(Genre::MatchArm, node.span().start()) {
            let end = range_of(&node.pat).end;
            self.site(end..end, Kind::Arm, mutants);
        }
        if let syn::Pat::Guard(syn::PatGuard { guard, .. }) = &node.pat
            && let Some(mutants) = self.take(Genre::MatchArmGuard, guard.span().start())
        {
            self.site(range_of(guard), Kind::Guard, mutants);
        }
        visit::visit_arm(self, node);
    }

    fn visit_expr_struct(&mut self, node: &'ast syn::ExprStruct) {
        let mut fields = Vec::new();
        for pair in node.fields.pairs() {
            let mut range = range_of(pair.value());
            let start = pair.value().span().start();
            if let Some(comma) = pair.punct() {
                range.end = range_of(comma).end;
            }
            let mutants = self.take(Genre::StructField, start).unwrap_or_default();
            fields.extend(
                mutants
                    .into_iter()
                    .map(|(number, _)| (number, range.clone())),
            );
        }
        if !fields.is_empty() {
            self.site(range_of(node), Kind::Literal(fields), Vec::new());
        }
        visit::visit_expr_struct(self, node);
    }
}

/// Whether the expression is part of a let chain, which can stand in no other expression.
fn binds(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(node) if matches!(node.op, syn::BinOp::And(_)) => {
            binds(&node.left) || binds(&node.right)
        }
        _ => false,
    }
}

/// The byte offset of a place.
fn offset(source: &str, place: Place) -> usize {
    let mut start = 0;
    for line in source.split_inclusive('\n').take(place.line - 1) {
        start += line.len();
    }
    let line = source[start..].lines().next().unwrap_or_default();
    let column = line.char_indices().nth(place.column - 1);
    start + column.map_or(line.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::super::list::Span;
    use super::*;

    fn mutant(genre: Genre, start: (usize, usize), end: (usize, usize), text: &str) -> Mutant {
        let place = |(line, column)| Place { line, column };
        Mutant {
            name: String::new(),
            package: String::new(),
            file: String::new(),
            span: Span {
                start: place(start),
                end: place(end),
            },
            genre,
            replacement: text.to_owned(),
        }
    }

    fn switched(source: &str, mutants: &[Mutant]) -> Switched {
        let numbered: Vec<_> = mutants.iter().enumerate().collect();
        switch(source, &numbered).unwrap()
    }

    /// The text without the comments that name mutants, and with `on` for the switch.
    fn plain(text: &str) -> String {
        let mut text = text.replace("crate::mutant_switch::is_on", "on");
        while let Some(start) = text.find("/*") {
            let end = text[start..].find("*/").unwrap() + start + 2;
            text.replace_range(start..end, "");
        }
        text
    }

    #[test]
    fn operators_within_each_other_are_switched_each() {
        let source = "fn f() -> bool { a + b < c }\n";
        let mutants = [
            mutant(Genre::BinaryOperator, (1, 24), (1, 25), "<="),
            mutant(Genre::BinaryOperator, (1, 20), (1, 21), "-"),
            mutant(Genre::FnValue, (1, 18), (1, 27), "true"),
        ];
        let switched = switched(source, &mutants);
        assert!(switched.left_out.is_empty());
        let sum = "(if on(1) { (a) - (b) } else { (a) + (b) })";
        assert_eq!(
            plain(&switched.text),
            format!(
                "fn f() -> bool {{ if on(2) {{ return true; }} \
                 (if on(0) {{ ({sum}) <= (c) }} else {{ ({sum}) < (c) }}) }}\n"
            )
        );
    }

    #[test]
    fn arms_guards_and_fields_are_switched() {
        let source =
            "fn f() { match a {\n1 => b(),\nn if n > 2 => c(S { x: 1, ..D }),\n_ => {}\n} }";
        let mutants = [
            mutant(Genre::MatchArm, (2, 1), (2, 10), ""),
            mutant(Genre::MatchArmGuard, (3, 6), (3, 11), "true"),
            mutant(Genre::StructField, (3, 21), (3, 26), ""),
        ];
        let switched = switched(source, &mutants);
        assert!(switched.left_out.is_empty());
        assert_eq!(
            plain(&switched.text),
            "fn f() { match a {\n1 if !on(0)  => b(),\n\
             n if (if on(1) { true } else { (n > 2) }) => \
             c((if on(2) { S {  ..D } } else { S { x: 1, ..D } })),\n_ => {}\n} }"
        );
    }

    #[test]
    fn let_chains_are_left_out() {
        let source = "fn f() { if let Some(x) = y && x { g() } }";
        let mutants = [mutant(Genre::BinaryOperator, (1, 29), (1, 31), "||")];
        assert_eq!(switched(source, &mutants).left_out, [0]);
        assert!(replace(source, &mutants[0]).contains("= y ||  x"));
    }

    #[test]
    fn an_error_is_about_the_innermost_mutant() {
        let text = "/*mutant 1*/ a /*mutant 2*/ b /*mutant end 2*/ c /*mutant end 1*/ d";
        let at = |word: &str| text.find(word).map(|at| at..at + 1).unwrap();
        assert_eq!(mutants_at(text, at("b")), [2, 1]);
        assert_eq!(mutants_at(text, at("c")), [1]);
        assert!(mutants_at(text, at(" d").end..text.len()).is_empty());
    }
}
