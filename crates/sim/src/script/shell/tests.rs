//! Commands as scripts write them.

use super::Effect::{self, Congested, Defaults, ForgetPeers, Ignored, Mtu, Restore};
use super::effects;

fn set(name: &str, value: &str) -> Effect {
    Effect::Set {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

#[test]
fn settings_in_all_spellings() {
    assert_eq!(
        effects(
            "sysctl -q net.ipv4.tcp_ecn=1  # on\nsysctl -q -w net/ipv4/tcp_rmem=\"4096 1 $((15*1024*1024))\""
        ),
        [
            set("net.ipv4.tcp_ecn", "1"),
            set("net.ipv4.tcp_rmem", "4096 1 15728640")
        ]
    );
    assert_eq!(
        effects(
            "../common/set_sysctls.py /proc/sys/net/ipv4/tcp_fastopen=0x207 \\\n  /proc/sys/net/ipv4/tcp_sack=0\\\n"
        ),
        [
            set("net.ipv4.tcp_fastopen", "0x207"),
            set("net.ipv4.tcp_sack", "0")
        ]
    );
    assert_eq!(
        effects(
            "echo 3 > /sys/module/tcp_cubic/parameters/hystart_detect; echo 4096 5 6 >/proc/sys/net/ipv4/tcp_wmem"
        ),
        [
            set("tcp_cubic.hystart_detect", "3"),
            set("net.ipv4.tcp_wmem", "4096 5 6")
        ]
    );
}

#[test]
fn helpers_of_the_suites() {
    assert_eq!(effects("../../common/defaults.sh"), [Defaults]);
    assert_eq!(effects("/tmp/sysctl_restore_${PPID}.sh"), [Restore]);
    assert_eq!(
        effects("ip tcp_metrics flush all > /dev/null 2>&1"),
        [ForgetPeers]
    );
    assert_eq!(effects("ip link set dev tun0 mtu 9000"), [Mtu(9000)]);
}

#[test]
fn a_queue_that_takes_nothing() {
    assert_eq!(
        effects(
            "tc qdisc delete dev tun0 root 2>/dev/null ; tc qdisc add dev tun0 root pfifo limit 0"
        ),
        [Congested(false), Congested(true)]
    );
}

#[test]
fn everything_else_is_ignored_and_said() {
    assert_eq!(
        effects("nstat > /dev/null"),
        [Ignored("nstat > /dev/null".to_owned())]
    );
    assert_eq!(effects(" \n# nothing\n"), []);
}
