//! The commands as a script's shell lines call them.

use super::*;
use std::process::{Command, Output};

fn run(shims: &Shims, line: &str) -> Output {
    let path = format!(
        "{}:{}",
        shims.bin().display(),
        "/usr/sbin:/usr/bin:/sbin:/bin"
    );
    Command::new("/bin/sh")
        .args(["-c", line])
        .env("PATH", path)
        .env("PACKETDRILL_PID", format!("test-{}", std::process::id()))
        .output()
        .unwrap()
}

fn note(shims: &Shims, name: &str) -> String {
    fs::read_to_string(shims.notes().join(name)).unwrap_or_default()
}

// The settings are ones that no kernel has, so that the host's stay as they are.

#[test]
fn sysctl_notes_what_is_set_and_never_fails() {
    let shims = Shims::new().unwrap();
    let line = "sysctl -q net.ipv4.tcp_nonesuch=\"4096 7 $((15*1024))\" net/ipv4/tcp_nothing=0x3";
    let output = run(&shims, line);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(note(&shims, "net.ipv4.tcp_nonesuch"), "4096 7 15360\n");
    assert_eq!(note(&shims, "net.ipv4.tcp_nothing"), "0x3\n");
    let output = run(&shims, "sysctl -n net.ipv4.tcp_nothing");
    assert_eq!(output.stdout, b"0x3\n", "{output:?}");
}

#[test]
fn tc_and_ip_on_a_device_that_is_not_there_are_noted() {
    let shims = Shims::new().unwrap();
    let line = "ip link set dev tun0 mtu 9000 && tc qdisc add dev tun0 root pfifo";
    assert!(run(&shims, line).status.success());
    assert_eq!(shims.mtu(), Some(9_000));
    assert!(!shims.is_blackhole());
    let line = "tc qdisc delete dev tun0 root ; tc qdisc add dev tun0 root pfifo limit 0";
    assert!(run(&shims, line).status.success());
    assert!(shims.is_blackhole());
    assert!(run(&shims, "tc qdisc del dev tun0 root").status.success());
    assert!(!shims.is_blackhole());
}

#[test]
fn nstat_tells_what_the_stack_counted_since_it_last_did() {
    let mut shims = Shims::new().unwrap();
    let mut counters = BTreeMap::from([("TcpExtBeyondWindow", 2), ("TcpExtOther", 1)]);
    shims.publish(&counters);
    assert!(run(&shims, "nstat -n").status.success());
    counters.insert("TcpExtBeyondWindow", 5);
    shims.publish(&counters);
    let line = "nstat | grep TcpExtBeyondWindow | grep -q ' 3 '";
    assert!(run(&shims, line).status.success());
    assert!(!run(&shims, line).status.success());
}

#[test]
fn the_directory_goes_with_them() {
    let shims = Shims::new().unwrap();
    let directory = shims.directory().to_owned();
    assert!(directory.join("bin/nstat").exists());
    drop(shims);
    assert!(!directory.exists());
}
