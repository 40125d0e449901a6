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

#[test]
fn range_of_the_service_before_gives_way_to_the_new_one() {
    let ports = Ports::parse("80,20000-20127,30000");
    let (ports, added) = ports.with(&(21_000..=21_031), &[20_000..=20_127], &[]);
    assert_eq!(ports.text(), "80-80,21000-21031,30000-30000");
    assert_eq!(added, [21_000..=21_031]);
    let (same, added) = ports.with(&(21_000..=21_031), &added, &[]);
    assert_eq!(same.text(), "80-80,21000-21031,30000-30000");
    assert_eq!(added, [21_000..=21_031]);
    let (_, added) = same.with(&(21_000..=21_031), &[], &[]);
    assert_eq!(added, [], "an administrator's");
}

#[test]
fn range_of_two_services_is_each_ones_and_not_the_administrators() {
    let ports = Ports::parse("20000-20127,20200");
    let others = [20_000..=20_127];
    let (ports, added) = ports.with(&(20_100..=20_200), &[], &others);
    assert_eq!(ports.text(), "20000-20200");
    assert_eq!(added, [20_100..=20_199]);
    let (ports, added) = ports.with(&(30_000..=30_031), &added, &others);
    assert_eq!(ports.text(), "20000-20127,20200-20200,30000-30031");
    assert_eq!(added, [30_000..=30_031]);
}
