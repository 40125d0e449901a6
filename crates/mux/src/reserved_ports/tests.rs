//! The text of the setting.

use super::*;

#[test]
fn range_added_joins_its_neighbours_and_leaves_again() {
    let before = Ports::parse("80,20000-20010,32000\n");
    let mut ports = before.clone();
    ports.set(&(20000..=31999), true);
    assert_eq!(ports.text(), "80-80,20000-32000");
    let added = ports.without(&before);
    assert_eq!(added, [20011..=31999]);
    for range in &added {
        ports.set(range, false);
    }
    assert_eq!(ports, before);
}

#[test]
fn empty_setting_is_empty() {
    assert_eq!(Ports::parse("\n").text(), "");
    assert_eq!(Ports::parse("0-5,x,9-3").text(), "");
}
