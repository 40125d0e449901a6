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

// These tests set names that no kernel has, so that the host's settings stay unchanged.

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
fn routes_of_the_device_are_kept_and_their_metrics_noted() {
    let shims = Shims::new().unwrap();
    let line = "ip route change 192.0.2.0/24 via 192.168.0.1 dev tun0 initcwnd 20 rto_min 50ms";
    assert!(run(&shims, line).status.success());
    assert_eq!(note(&shims, "route.initcwnd"), "20\n");
    assert_eq!(note(&shims, "route.rto_min"), "50ms\n");
    let shown = run(&shims, "ip -4 route show 192.0.2.0/24 dev tun0");
    assert_eq!(
        String::from_utf8_lossy(&shown.stdout),
        "192.0.2.0/24 via 192.168.0.1 dev tun0 initcwnd 20 rto_min 50ms\n"
    );
    let line = "ip route replace `ip route show dev tun0 | sed 's/initcwnd 20/mtu lock 1300/'`";
    assert!(run(&shims, line).status.success());
    assert_eq!(note(&shims, "route.initcwnd"), "");
    assert_eq!(shims.mtu(), Some(1_300));
    assert!(run(&shims, "ip route flush dev tun0").status.success());
    assert_eq!(run(&shims, "ip route list dev tun0").stdout, b"");
    assert_eq!(shims.mtu(), None);
}

#[test]
fn flushes_of_what_is_known_of_peers_are_counted() {
    let shims = Shims::new().unwrap();
    assert!(run(&shims, "ip tcp_metrics show").status.success());
    assert_eq!(shims.flushes(), 0);
    let line = "ip tcp_metrics flush all > /dev/null 2>&1 && ip tcp_metrics flush";
    assert!(run(&shims, line).status.success());
    assert_eq!(shims.flushes(), 2);
}

#[test]
fn offloads_of_a_device_that_is_not_there_are_switched_in_vain() {
    let shims = Shims::new().unwrap();
    let line = "ethtool -K tun0 tso off gso off gro off";
    assert!(run(&shims, line).status.success());
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
