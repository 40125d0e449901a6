//! Each finding, on a page that must have it.

use std::path::PathBuf;

use super::*;

const HEADER: &str = "| id | rule | verdict | place | tests | note |\n|---|---|---|---|---|---|\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("xtask lies in tools/ of the workspace")
        .to_path_buf()
}

/// The errors of one row, without those about missing identifiers.
fn say(row: &str) -> Vec<String> {
    let rows = row::rows(&format!("{HEADER}{row}\n")).expect("a table");
    causes(&root(), &rows)
        .into_iter()
        .filter(|cause| !cause.ends_with("has no row"))
        .collect()
}

#[test]
fn row_with_place_and_test_passes() {
    let row = "| MUST-1 | x | obeyed | `tools/xtask/src/conformance.rs#PAGE` | \
               `tools/xtask/src/conformance/tests.rs#row_with_place_and_test_passes` | |";
    assert_eq!(say(row), Vec::<String>::new());
}

#[test]
fn row_with_place_that_does_not_exist_is_found() {
    let row = "| MUST-1 | x | obeyed | `tools/xtask/src/conformance.rs#NO_PAGE` | \
               `tools/xtask/src/conformance/tests.rs#row_with_place_and_test_passes` | |";
    assert_eq!(
        say(row),
        ["3: MUST-1: tools/xtask/src/conformance.rs has no item NO_PAGE"]
    );
}

#[test]
fn row_with_test_that_is_none_is_found() {
    let row = "| MUST-1 | x | obeyed | `tools/xtask/src/conformance.rs#PAGE` | \
               `tools/xtask/src/conformance/tests.rs#say`, `sim/scripts/none.pkt` | |";
    assert_eq!(
        say(row),
        [
            "3: MUST-1: tools/xtask/src/conformance/tests.rs has no test say that runs",
            "3: MUST-1: sim/scripts/none.pkt: no such file"
        ]
    );
}

#[test]
fn claim_without_test_and_difference_without_reason_are_found() {
    let row = "| MUST-1 | x | obeyed | `tools/xtask/src/conformance.rs#PAGE` | | |";
    assert_eq!(say(row), ["3: MUST-1: obeyed, but no test"]);
    let row = "| MUST-1 | x | differs | | | |";
    assert_eq!(say(row), ["3: MUST-1: differs, but says not why"]);
}

#[test]
fn requirement_without_row_is_found() {
    let causes = causes(&root(), &[]);
    assert_eq!(causes.len(), 69 + 31 + 18 + 1);
    assert!(causes.contains(&"0: MUST-69 of RFC 9293 has no row".to_owned()));
}

#[test]
fn malformed_row_is_an_error_with_its_line() {
    let cause = row::rows(&format!("{HEADER}| MUST-1 | x | maybe | | | |\n"));
    assert_eq!(
        cause,
        Err("3: verdict \"maybe\": not obeyed, differs or absent".to_owned())
    );
}
