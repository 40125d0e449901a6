//! Tokens of texts with more than one reading.

use super::{Kind, tokens};

fn cut(text: &str) -> Vec<(Kind, String)> {
    let mut tokens = tokens(text).expect("tokens");
    assert_eq!(tokens.pop().map(|end| end.kind), Some(Kind::End));
    tokens.into_iter().map(|t| (t.kind, t.text)).collect()
}

fn kinds(text: &str) -> Vec<Kind> {
    cut(text).into_iter().map(|(kind, _)| kind).collect()
}

#[test]
fn numbers_addresses_and_ellipses_are_told_apart() {
    use Kind::{Ellipsis, Float, Hex, Int, Ipv4, Ipv6, Sign, Word};
    assert_eq!(kinds("+.1...0.200"), [Sign, Float, Ellipsis, Float]);
    assert_eq!(kinds("+0...0.000"), [Sign, Int, Ellipsis, Float]);
    assert_eq!(kinds("1:1001(1000)"), [Int, Sign, Int, Sign, Int, Sign]);
    assert_eq!(kinds("192.0.2.1 1.5 0x1f -1"), [Ipv4, Float, Hex, Int]);
    assert_eq!(kinds("2001:db8::1 ::"), [Ipv6, Ipv6]);
    assert_eq!(kinds("S. P.5 . SEW"), [Word, Sign, Word, Float, Sign, Word]);
    assert_eq!(kinds("1234abcd 000000"), [Word, Int]);
}

#[test]
fn quoted_text_keeps_what_looks_like_a_comment() {
    let cut = cut("`echo // a` \"b\\\"c\" %{ assert 1 == 1 }% // d\n/* e\n * f */ g");
    assert_eq!(
        cut,
        [
            (Kind::Shell, "echo // a".to_owned()),
            (Kind::Text, "b\\\"c".to_owned()),
            (Kind::Code, "assert 1 == 1".to_owned()),
            (Kind::Word, "g".to_owned()),
        ]
    );
}

#[test]
fn lines_are_counted_through_comments_and_quotes() {
    let tokens = tokens("// one\n`two\nthree`\n/* four\n*/ six").expect("tokens");
    let lines: Vec<u32> = tokens.iter().map(|t| t.line).collect();
    assert_eq!(lines, [2, 5, 5]);
}

#[test]
fn what_has_no_end_is_refused() {
    for text in ["`ls", "\"a", "%{ a", "/* a"] {
        assert!(tokens(text).is_err(), "{text}");
    }
}
