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
