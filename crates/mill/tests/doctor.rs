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

fn finding<'a>(findings: &'a Value, check: &str) -> &'a Value {
    let all = findings.as_array().unwrap();
    let one = all.iter().find(|one| one["check"] == check);
    one.unwrap_or_else(|| panic!("no check {check}: {findings}"))
}

#[test]
fn program_of_another_process_is_gone_after_the_command_that_is_printed() {
    let Some(world) = World::new("doctor-held") else {
        return;
    };
    let wire = ["--wire", "xdp:right", "--addr", "10.78.0.2/24"];
    let holder = world.serve("ours", &world.directory, &wire);
    let (status, findings) = ask(&world, &wire);
    assert_eq!(status, Some(1), "{findings}");
    let xdp = finding(&findings, "xdp");
    assert_eq!(xdp["fix"], format!("`kill {}`", holder.pid()), "{xdp}");
    drop(holder);
    let (status, findings) = ask(&world, &wire);
    assert_eq!(status, Some(0), "{findings}");
}

#[test]
fn contexts_that_share_a_queue_are_a_warning_and_the_wire_opens() {
    let Some(world) = World::new("doctor-queues") else {
        return;
    };
    let address = ["--wire", "xdp:right", "--addr", "10.78.0.2/24"];
    let shared = [&address[..], &["--contexts", "2"]].concat();
    let (status, findings) = ask(&world, &shared);
    assert_eq!(status, Some(0), "{findings}");
    assert_eq!(verdict(&findings, "queues"), "warning", "{findings}");
    drop(world.serve("ours", &world.directory, &shared));
    // One context drives both queues.
    for end in [("ours", "right"), ("kernel", "left")] {
        let words = ["ethtool", "-L", end.1, "rx", "2", "tx", "2"];
        let output = world.command(end.0, &words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let (status, findings) = ask(&world, &address);
    assert_eq!(status, Some(0), "{findings}");
    assert_eq!(verdict(&findings, "queues"), "ok", "{findings}");
}

#[test]
fn user_with_the_capabilities_that_are_named_opens_the_wire() {
    let Some(world) = World::new("doctor-caps") else {
        return;
    };
    let wire = ["--wire", "xdp:right", "--addr", "10.78.0.2/24"];
    let all = "+net_admin,+net_raw,+bpf,+perfmon,+net_bind_service";
    let few = "+net_admin,+net_raw,+bpf,+net_bind_service";
    for (capabilities, fits) in [(all, true), (few, false)] {
        let sets = [
            format!("--inh-caps=-all,{capabilities}"),
            format!("--ambient-caps=-all,{capabilities}"),
        ];
        let user = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ];
        let program = env!("CARGO_BIN_EXE_mill");
        let words = [
            &user[..],
            &[&*sets[0], &*sets[1], program],
            &["doctor", "--json"],
        ]
        .concat();
        let output = world
            .command("ours", &[&words[..], &wire].concat())
            .output()
            .unwrap();
        let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
        let wanted = if fits { "ok" } else { "failure" };
        assert_eq!(verdict(&findings, "capabilities"), wanted, "{findings}");
        let get = ["get", "http://10.78.0.1:9/", "--timeout", "2"];
        let words = [&user[..], &[&*sets[0], &*sets[1], program], &get, &wire].concat();
        let said = world.command("ours", &words).output().unwrap().stderr;
        let said = String::from_utf8_lossy(&said);
        assert_eq!(said.contains("doctor: capabilities"), !fits, "{said}");
    }
}

#[test]
fn mirror_takes_the_kernels_address_without_a_conflict() {
    let Some(world) = World::new("doctor-mirror") else {
        return;
    };
    let wire = ["--wire", "xdp:right,mirror", "--addr", "10.78.0.2/24"];
    let (_, findings) = ask(&world, &wire);
    let addresses = finding(&findings, "addresses");
    assert_eq!(addresses["fix"], "`ip addr add 10.78.0.2/24 dev right`");
    world.run_ip("ours", "addr add 10.78.0.2/24 dev right");
    let (status, findings) = ask(&world, &wire);
    assert_eq!(status, Some(0), "{findings}");
    assert_eq!(verdict(&findings, "addresses"), "ok", "{findings}");
}
