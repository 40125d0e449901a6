//! Assertions as scripts write them.

use super::{Python, Value};

fn python() -> Python {
    let mut python = Python::default();
    python.set("cwnd", Value::Int(10));
    python.set("opts", Value::Int(0x26));
    python
}

fn holds(code: &str) {
    if let Err(fault) = python().run(1, code) {
        panic!("{code}: {fault:?}");
    }
}

fn fails(code: &str) -> (u32, String) {
    match python().run(1, code) {
        Err(fault) => (fault.line, fault.cause),
        Ok(()) => panic!("{code} holds"),
    }
}

#[test]
fn comparisons_and_arithmetic() {
    holds("assert cwnd == 10, cwnd");
    holds("assert 9 <= cwnd <= 10 < 11");
    holds("assert (opts & 0x20) != 0 and not opts & 1, opts");
    holds(
        "assert 7 // 2 == 3 and -7 // 2 == -4 and -7 % 3 == 2 and 7 % -3 == -2 and 7 // -2 == -4",
    );
    holds("assert 7 / 2 == 3.5 and 2 ** 10 == 1024 and 1 << 4 | 1 == 17 and -2 ** 2 == -4");
    holds("assert cwnd in (9, 10); assert 'a' in 'cat'; assert cwnd == 10.0");
    holds("assert (1 if cwnd > 9 else 2) == 1");
    holds("assert min(3, 2) == 2 and max((1, 5)) == 5 and abs(-3) == 3 and int(3.9) == 3");
}

#[test]
fn a_failed_assertion_says_the_values() {
    assert_eq!(
        fails("\nassert cwnd == 11, cwnd"),
        (2, "assertion failed: 10 == 11 (10)".into())
    );
    assert_eq!(
        fails("assert False, 'cwnd is %d' % cwnd").1,
        "assertion failed (cwnd is 10)"
    );
    assert_eq!(
        fails("assert cwnd == 9 or nothing").1,
        "name 'nothing' is not defined"
    );
}

#[test]
fn lines_are_joined_and_cut() {
    holds("assert cwnd == 10, cwnd; \\\n   assert opts == 38");
    holds("assert cwnd == 10;\\\n");
    holds("\n  assert (cwnd ==\n 10)\n  assert opts # and so on\n");
}

#[test]
fn blocks_are_told_by_their_indentation() {
    holds(
        "if cwnd == 9:\n    assert 0\nelif cwnd == 10:\n    a = 1\n    a += 2\nelse:\n  assert 0\nassert a == 3",
    );
    holds("if cwnd != 10: assert 0\nelse: b = 1\nassert b");
    fails("if cwnd:\nassert 1");
    fails("if cwnd:\n  a = 1\n    b = 1");
}

#[test]
fn names_live_from_one_piece_to_the_next() {
    let mut python = python();
    python.run(1, "LIMIT = 0x7fffffff").expect("assignment");
    python
        .run(2, "assert LIMIT == 2147483647; print('cwnd', cwnd)")
        .expect("assertion");
    assert_eq!(python.output, "cwnd 10\n");
}

#[test]
fn nonsense_is_refused() {
    for code in [
        "assert",
        "1 +",
        "a b",
        "x = ",
        "f(1",
        "$",
        "'a",
        "1 // 0",
        "2 ** 64 ** 9",
        "open('x')",
    ] {
        fails(code);
    }
    fails(&format!("assert {}1{}", "(".repeat(500), ")".repeat(500)));
}

#[test]
fn lists_and_loops() {
    holds("assert cwnd not in (1, 2) and 3 not in [] and 'x' not in 'cat'");
    holds("assert all(x < 10 for x in range(cwnd)) and not any([x > 9 for x in range(10)])");
    holds("assert sum([x * 2 for x in range(4) if x % 2]) == 8 and len({1, 1, 2}) == 2");
    holds("assert [a + b for a, b in zip([1, 2], (3, 4))] == [4, 6]");
    holds("assert [(a, b) for a in (1, 2) for b in 'xy'][3] == (2, 'y')");
    holds(
        "x = [1, 2, 3, 4]; assert x[0] == 1 and x[-1] == 4 and x[1:3] == [2, 3] and x[::-1][0] == 4",
    );
    holds("a, b = 1, 2\na, b = b, a\nassert (a, b) == (2, 1)");
    holds("a = b = 3; assert a == b == 3; assert list(reversed(range(3))) == [2, 1, 0]");
    holds("total = 0\nfor i in range(5):\n  if i % 2: total += i\nassert total == 4, total");
    holds("for i, c in enumerate('ab'): assert c == 'ab'[i]");
    holds("assert sorted([3, 1, 2], reverse=True) == [3, 2, 1] and max([], default=7) == 7");
    holds("import math\nassert math.ceil(1.2) == 2 and round(2.345, 1) == 2.3 and pow(2, 3) == 8");
    holds("assert [1] * 2 + [2] == [1, 1, 2] and '-' * 3 == '---' and divmod(7, 2) == (3, 1)");
    holds("from math import sqrt; assert int('0x1f', 16) == 31 and 'a b'.split()[1] == 'b'");
}

#[test]
fn texts_with_values_in_them() {
    let text = |code: &str| fails(&format!("assert False, {code}")).1;
    let said = |code: &str, text_wanted: &str| {
        assert_eq!(
            text(code),
            format!("assertion failed ({text_wanted})"),
            "{code}"
        );
    };
    said("f'cwnd {cwnd} of {opts:#x}'", "cwnd 10 of 0x26");
    said(
        "f'{cwnd=} {cwnd + 1:>4}|{cwnd:<4}|{{}}'",
        "cwnd=10   11|10  |{}",
    );
    said(
        "f\"{'yes' if cwnd == 10 else 'no'}\" ' and ' f'{1.5:.2f}'",
        "yes and 1.50",
    );
    said("f'{(1, 2)!r} {cwnd != 10}'", "(1, 2) False");
    said(
        "'%5.1f%% of %04d %s %#x' % (2.25, 7, None, 255)",
        "  2.2% of 0007 None 0xff",
    );
    said("'{} {1:,} {0:b}'.format(5, 1234567)", "5 1,234,567 101");
    said("r'a\\b' + '''c'''", "a\\bc");
    for code in [
        "f'{'",
        "f'}'",
        "f'{}'",
        "f'{1 2}'",
        "'%d'",
        "'%d %d' % 1",
        "'{2}'.format(1)",
    ] {
        fails(&format!("x = {code} + 1"));
    }
}

#[test]
fn what_modules_have() {
    holds(
        "from math import ceil, sqrt\nassert ceil(1.2) == 2 and sqrt(4) == 2 and 3 < math.pi < 4",
    );
    holds(
        "import sys\nprint('x', file=sys.stderr); sys.stderr.write('y\\n'); sys.exit(0); assert False",
    );
    assert_eq!(fails("import sys; sys.exit(3)").1, "the code exits with 3");
    assert_eq!(
        fails("if cwnd == 10: raise AssertionError('no', cwnd)").1,
        "AssertionError: no, 10"
    );
}

#[test]
fn sets_rounding_and_long_integers() {
    holds("assert {1, 2} == {2, 1} and set([3, 1]) != {1, 2}");
    holds("assert round(2.675, 2) == 2.67 and round(0.125, 2) == 0.12 and round(1250, -2) == 1200");
    holds("assert 1 << 65 == 36893488147419103232 and 2 ** 100 >> 99 == 2");
    fails("x = 1 << 127");
}

/// The least value of an `i128`, -2^127.
const LEAST: &str = "least = -(2 ** 126) * 2\n";

#[test]
fn numbers_at_their_end() {
    for (code, said) in [
        ("x = least // -1", "// -1 is out of range"),
        ("x = -least", "is out of range"),
        ("x = abs(least)", "is out of range"),
        ("x = divmod(least, -1)", "// -1 is out of range"),
    ] {
        let (line, cause) = fails(&format!("{LEAST}{code}"));
        assert_eq!(line, 2, "{code}");
        assert!(cause.contains(said), "{code}: {cause}");
    }
    holds(&format!(
        "{LEAST}assert least % -1 == 0 and least // 1 == least"
    ));
    holds(&format!(
        "{LEAST}assert len(range(2 ** 126, -1 - least, 2 ** 126)) == 1"
    ));
    holds(&format!("{LEAST}assert [1, 2, 3][1::-1 - least] == [2]"));
    holds(&format!("{LEAST}assert [1, 2, 3][1::least] == [2]"));
}

#[test]
fn formats_that_name_nothing() {
    for code in [
        "'%\u{e9}' % 1",
        "'%d\u{e9}%\u{e9}d' % (1, 1)",
        "'{18446744073709551615}'.format(1)",
    ] {
        fails(&format!("x = {code}"));
    }
}

#[test]
fn what_has_no_order_is_sorted_somehow() {
    holds("x = sorted([0, 'a', None, 1.5, (1,), float('nan')] * 50); assert len(x) == 300");
    holds("x = sorted([3, 1, 2] * 2 + [(2)]); assert x == [1, 1, 2, 2, 2, 3, 3]");
    holds(
        "x = {0, 'a', None, 1.5, 2, 'b', 3, 'c', 4, 'd', 5, 'e', 6, 'f', 7, 'g', 8, 'h', 9, 'i', 10, 'j', 11, 'k'}",
    );
}

#[test]
fn code_that_grows_without_end_is_refused() {
    for code in [
        "x = 'ab'\nfor i in range(100): x = x + x",
        "x = [1]\nfor i in range(100): x += x",
        "x = 1\nfor i in range(100): x = [x, x]",
        "x = 1\nfor i in range(90000): x = [x]",
        "x = [[[0] * 1000] * 1000] * 1000",
        "for i in range(90000):\n  for j in range(90000): pass",
        "x = [range(90000) for i in range(90000)]",
        "x = set(range(90000))",
    ] {
        fails(code);
    }
    for sign in ["+", "**", "or", "and"] {
        fails(&format!("x = 1{}", format!(" {sign} 1").repeat(100_000)));
    }
    fails(&format!("x = {}1", "not ".repeat(100_000)));
    fails(&format!("x = {}1", "-".repeat(100_000)));
    fails(&format!("x = y{}", "[0]".repeat(100_000)));
    holds(&format!("assert 0 == 0{}", " + 0".repeat(200)));
}

#[test]
fn nothing_again_and_again_is_nothing() {
    holds("assert [] * 10 ** 18 == [] and '' * 10 ** 18 == ''");
    holds("assert [1] * -1 == [] and 'a' * 0 == ''");
}

#[test]
fn texts_are_refused_before_they_are_too_long() {
    let of_pieces = format!("x = f'{}'", "{1:999}".repeat(5_000));
    for code in [
        "x = ('{0}' * 33000).format('a' * 99000)",
        "x = ('a' * 99999).join([0] * 99999)",
        "x = ('%999d' * 10000) % ([1] * 10000)",
        of_pieces.as_str(),
    ] {
        let said = fails(code).1;
        assert!(said.contains("too many values"), "{said}");
    }
    holds("assert ', '.join([1, 2]) == '1, 2' and ', '.join([]) == ''");
}

#[test]
fn a_value_of_many_names_counts_for_each() {
    let names: String = (0..100).map(|n| format!("x{n} = ")).collect();
    let said = fails(&format!("{names}'a' * 99999")).1;
    assert!(said.contains("too many values"), "{said}");
    holds(&format!("{names}'a' * 9"));
}

#[test]
fn a_long_text_that_grows_in_place_counts_each_time() {
    let said = fails("x = 'a' * 99999\nfor i in range(100):\n    x += 'b'").1;
    assert!(said.contains("too many values"), "{said}");
    holds("x = 'a'\nfor i in range(9):\n    x += 'b'\nassert len(x) == 10");
}

#[test]
fn pieces_of_code_together_make_so_many_values() {
    let mut python = python();
    let kept = (0..100).all(|n| python.run(n, &format!("x{n} = 'a' * 99999")).is_ok());
    assert!(!kept);
}
