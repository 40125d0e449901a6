//! Shortcuts against the general way: each call is also made on a copy that may not take shortcuts.
//! Both must answer the same, and end with the same variables, records and counters.

use std::fmt::Debug;

use tcp::{Connection, Cx};

/// Makes `call` on `conn`. If `conn` may take shortcuts, makes it first on a copy that may not.
pub fn alike<R: Clone, T: Debug + PartialEq>(
    conn: &mut Connection,
    cx: &mut Cx<'_>,
    rx: &mut R,
    may_predict: bool,
    call: impl Fn(&mut Connection, &mut Cx<'_>, &mut R) -> T,
) -> T {
    if !may_predict {
        return call(conn, cx, rx);
    }
    let before = conn.clone();
    let (mut counters, mut records) = (cx.counters.clone(), cx.records.clone());
    let mut twin = conn.clone();
    twin.set_shortcuts(false);
    let mut beside = Cx {
        now_ns: cx.now_ns,
        config: cx.config,
        challenge: &mut cx.challenge.clone(),
        counters: &mut counters,
        records: &mut records,
        ranges: &mut cx.ranges.clone(),
        memory: cx.memory,
    };
    let general = call(&mut twin, &mut beside, &mut rx.clone());
    let straight = call(conn, cx, rx);
    twin.set_shortcuts(true);
    counters.predicted_in = cx.counters.predicted_in;
    assert_eq!(straight, general, "answers; before {before:?}");
    assert!(
        *conn == twin,
        "{conn:?}\nin a straight line, else\n{twin:?}\nbefore {before:?}"
    );
    assert_eq!(cx.counters, &counters, "before {before:?}");
    assert_eq!(cx.records, &records, "before {before:?}");
    straight
}
