//! `mill doctor` on a real host: a veth pair with faults made by hand.

mod world;

use serde_json::Value;
use world::World;

fn verdict(findings: &Value, check: &str) -> String {
    let all = findings.as_array().unwrap();
    let one = all.iter().find(|one| one["check"] == check);
    let one = one.unwrap_or_else(|| panic!("no check {check}: {findings}"));
    one["verdict"].as_str().unwrap().to_owned()
}

fn ask(world: &World, words: &[&str]) -> (Option<i32>, Value) {
    let output = world.ours(&[&["doctor", "--json"], words].concat());
    let findings = serde_json::from_slice(&output.stdout);
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    (
        output.status.code(),
        findings.unwrap_or_else(|error| panic!("{error}: {}", said())),
    )
}

#[test]
fn veth_pair_is_well_until_the_kernel_takes_our_address() {
    let Some(world) = World::new("doctor") else {
        return;
    };
    let xdp = ["--wire", "xdp:right", "--addr", "10.78.0.2/24"];
    let (status, findings) = ask(&world, &xdp);
    assert_eq!(status, Some(0), "{findings}");
    for check in [
        "kernel",
        "capabilities",
        "interface",
        "xdp",
        "queues",
        "addresses",
    ] {
        assert_eq!(verdict(&findings, check), "ok", "{findings}");
    }
    world.run_ip("ours", "addr add 10.78.0.2/24 dev right");
    let (status, findings) = ask(
        &world,
        &["--wire", "packet:right", "--addr", "10.78.0.2/24"],
    );
    assert_eq!(status, Some(1), "{findings}");
    assert_eq!(verdict(&findings, "addresses"), "failure");
}

#[test]
fn wire_that_does_not_open_prints_the_matching_line() {
    let Some(world) = World::new("doctor-serve") else {
        return;
    };
    let wire = ["--wire", "xdp:nowhere", "--addr", "10.78.0.2/24"];
    let directory = world.directory.to_str().unwrap();
    let output = world.ours(&[&["serve", directory], &wire[..]].concat());
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("mill: doctor: interface: `ip link show dev nowhere`"),
        "{said}"
    );
    let (status, findings) = ask(&world, &wire);
    assert_eq!(status, Some(1));
    assert_eq!(verdict(&findings, "interface"), "failure");
}
