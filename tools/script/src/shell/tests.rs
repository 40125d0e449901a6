//! Shell commands as scripts write them.

use std::time::Duration;

use super::Effect::{self, Congested, Defaults, ForgetPeers, Ignored, Mtu, Restore, Sleep};
use world::virtual_host::ROUTE_WINDOW;

use super::{Allowance, OK, Outcome, Status};

fn outcome(text: &str) -> Result<Outcome, String> {
    super::outcome(text, &mut Allowance::default())
}

fn effects(text: &str) -> Vec<Effect> {
    outcome(text).expect("few commands").effects
}

fn status(text: &str) -> Status {
    outcome(text).expect("few commands").status
}

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

#[test]
fn settings_by_any_path() {
    let ecn = [set("net.ipv4.tcp_ecn", "1")];
    for text in [
        "/sbin/sysctl -q net.ipv4.tcp_ecn=1",
        "sudo -n sysctl -w net.ipv4.tcp_ecn=1 2>&1 >/dev/null",
        "LC_ALL=C exec /usr/sbin/sysctl net/ipv4/tcp_ecn=1",
        "echo 1 | tee /proc/sys/net/ipv4/tcp_ecn > /dev/null",
        "printf '1\\n' | sudo tee -a /proc/sys/net/ipv4/tcp_ecn",
        "sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_ecn'",
        "(sysctl -q net.ipv4.tcp_ecn=1)",
        "{ sysctl -q net.ipv4.tcp_ecn=1; }",
        "python3 ../common/set_sysctls.py /proc/sys/net/ipv4/tcp_ecn=1",
    ] {
        assert_eq!(effects(text), ecn, "{text}");
        assert_eq!(status(text), OK, "{text}");
    }
    assert_eq!(effects(". ./defaults.sh")[0], Defaults);
}

#[test]
fn what_ip_says_of_device_and_route() {
    for text in [
        "ip link set mtu 9000 dev tun0",
        "ifconfig tun0 mtu 9000",
        "/sbin/ip -4 l set tun0 mtu 9000 up",
    ] {
        assert_eq!(effects(text), [Mtu(9000)], "{text}");
    }
    assert_eq!(
        effects(
            "ip route change 192.0.2.0/24 dev tun0 initcwnd 20 rto_min 1s mtu lock 1400 congctl reno reordering 5"
        ),
        [
            set(ROUTE_WINDOW, "20"),
            set("net.ipv4.tcp_rto_min_us", "1000000"),
            set("net.ipv4.tcp_reordering", "5"),
            set("net.ipv4.tcp_congestion_control", "reno"),
            Mtu(1400)
        ]
    );
    let initrwnd = "ip ro replace default dev tun0 initrwnd 20";
    assert_eq!(effects(initrwnd), [Ignored(initrwnd.to_owned())]);
    // They succeed, so the status of a list behind them is known.
    for text in [
        "ip route del 192.0.2.0/24 dev tun0",
        "ethtool -K tun0 tso off gro off",
    ] {
        assert_eq!(effects(text), [Ignored(text.to_owned())]);
        assert_eq!(status(text), OK, "{text}");
    }
}

#[test]
fn a_command_that_fails_says_so() {
    assert_eq!(
        status("sysctl -q net.ipv4.tcp_ecn=1; exit 3"),
        Status::Is(3)
    );
    assert_eq!(status("[ 1 = 2 ]"), Status::Is(1));
    assert_eq!(status("test 3 -ge 2 && [ ! -z x ]"), OK);
    assert_eq!(status("! true"), Status::Is(1));
    assert_eq!(status("false || true"), OK);
    assert_eq!(status("(exit 2) || exit 4"), Status::Is(4));
}

#[test]
fn what_is_not_known_is_taken_to_succeed_and_fails_nothing() {
    for text in [
        "nstat -az | grep -q TcpExtTCPTimeouts || exit 1",
        "if [ \"$(uname -r)\" != 6.1 ]; then exit 1; fi",
        "grep -q x /proc/cpuinfo && exit 1",
        "[ -x /usr/bin/nstat ] || exit 1",
        "for i in 1 2; do exit 1; done",
    ] {
        assert_eq!(status(text), Status::Unknown, "{text}");
    }
    assert_eq!(
        effects("grep -q x /proc/cpuinfo && sysctl net.ipv4.tcp_ecn=1")[1],
        set("net.ipv4.tcp_ecn", "1")
    );
}

#[test]
fn only_what_runs_has_effects() {
    let skipped = "sysctl net.ipv4.tcp_ecn=1";
    let taken = "sysctl net.ipv4.tcp_sack=0";
    for text in [
        format!("if [ 1 = 2 ]; then {skipped}; else {taken}; fi"),
        format!("if false; then {skipped}\nelif true; then\n{taken}\nelse {skipped}; fi"),
        format!("test -w /proc/sys/net/ipv4/tcp_ecn || {skipped}; {taken}"),
        format!("false && {skipped} || {taken}"),
        format!("{taken}; exit 0; {skipped}"),
    ] {
        assert_eq!(effects(&text), [set("net.ipv4.tcp_sack", "0")], "{text}");
        assert_eq!(status(&text), OK, "{text}");
    }
}

#[test]
fn time_passes_in_sleep() {
    assert_eq!(effects("sleep 0.5"), [Sleep(Duration::from_millis(500))]);
    assert_eq!(
        effects("sleep 1 & echo 1 >/proc/sys/net/ipv4/tcp_ecn"),
        [set("net.ipv4.tcp_ecn", "1")]
    );
    assert_eq!(status("false &"), OK);
}

#[test]
fn what_is_written_wrong_has_an_end() {
    for text in [
        "if",
        "(",
        ")",
        "&& a",
        "a ||",
        "if x; then",
        "\"",
        "$(",
        "for",
        "| |",
        "<",
        "2>",
        "if a; fi; }",
        "esac \\",
    ] {
        let _ = outcome(text);
    }
    let deep = "(".repeat(10_000);
    let _ = outcome(&deep);
    let deep = "if ".repeat(10_000);
    let _ = outcome(&deep);
}

#[test]
fn a_function_runs_when_it_is_called() {
    let ecn = [set("net.ipv4.tcp_ecn", "1")];
    for text in [
        "fail() { echo bad; exit 1; }\nsysctl -q net.ipv4.tcp_ecn=1",
        "fail () {\n  exit 1\n}\nsysctl -q net.ipv4.tcp_ecn=1",
        "function fail { exit 1; }; sysctl -q net.ipv4.tcp_ecn=1",
        "function fail() { exit 1; } && sysctl -q net.ipv4.tcp_ecn=1",
        "on() { sysctl -q net.ipv4.tcp_ecn=1; }; on",
        "on() (sysctl -q net.ipv4.tcp_ecn=1; exit 3); on || true",
        "ecn() { sysctl -q net.ipv4.tcp_ecn=1; }; on() { ecn now; }\non quickly",
        "if [ 1 = 2 ]; then f() { exit 1; }; fi; f() { :; }; f; sysctl -q net.ipv4.tcp_ecn=1",
    ] {
        assert_eq!(effects(text), ecn, "{text}");
        assert_eq!(status(text), OK, "{text}");
    }
    assert_eq!(status("f() { false; }; f"), Status::Is(1));
    assert_eq!(status("f() { exit 3; }; f; true"), Status::Is(3));
    assert_eq!(status("f() { false; return; }; f; true"), OK);
    assert_eq!(status("f() { return 0; exit 1; }; f"), OK);
    assert_eq!(status("f() { return 2; }; f"), Status::Is(2));
    assert_eq!(
        status("f() { g; return 0; exit 1; }; g() { return 1; }; f"),
        OK
    );
    // Functions that call each other without end are stopped.
    let _ = outcome("f() { f; f; }; f");
    let doubled: String = (0..60)
        .map(|n| format!("f{}() {{ f{n}; f{n}; }};", n + 1))
        .collect();
    let _ = outcome(&format!("f0() {{ echo; }}; {doubled} f60"));
    for text in [
        "f()",
        "f() {",
        "f() ;",
        "function",
        "f() f() f()",
        "f() { }",
    ] {
        let _ = outcome(text);
    }
}

#[test]
fn a_here_document_is_what_its_command_reads() {
    let ecn = [set("net.ipv4.tcp_ecn", "1")];
    for text in [
        "cat > /dev/null <<EOF\nexit 1\nEOF\nsysctl -q net.ipv4.tcp_ecn=1",
        "cat <<-'END' >/dev/null; sysctl -q net.ipv4.tcp_ecn=1\n\tit's $( no\n\tEND\n",
        "cat << \"A\" << B >/dev/null && true\nexit 1\nA\nexit 2\nB\nsysctl -q net.ipv4.tcp_ecn=1",
        "sysctl -q net.ipv4.tcp_ecn=1; cat 0<<EOF\nexit 1",
        "cat <<< 'exit 1'; sysctl -q net.ipv4.tcp_ecn=1",
    ] {
        let set: Vec<_> = effects(text)
            .into_iter()
            .filter(|effect| matches!(effect, Effect::Set { .. }))
            .collect();
        assert_eq!(set, ecn, "{text}");
        assert_ne!(status(text), Status::Is(1), "{text}");
        assert_ne!(status(text), Status::Is(2), "{text}");
    }
    assert_eq!(
        effects("sh <<EOF\nsysctl -q \\\n net.ipv4.tcp_ecn=1\nEOF"),
        ecn
    );
    assert_eq!(effects("tee /proc/sys/net/ipv4/tcp_ecn <<< 1"), ecn);
    assert_eq!(
        effects("cat <<EOF\nexit 1\nEOF"),
        [Ignored("cat".to_owned())]
    );
}

#[test]
fn what_runs_behind_ends_nothing() {
    for text in [
        "exit 1 &",
        "exit 1 & true",
        "{ sleep 1; exit 1; } &",
        "true && exit 1 & :",
    ] {
        assert_eq!(status(text), OK, "{text}");
    }
    assert_eq!(status("exit 1 & exit 2"), Status::Is(2));
}

#[test]
fn a_file_of_a_setting_is_there_if_the_setting_is() {
    assert_eq!(status("[ -f /proc/sys/net/ipv4/tcp_ecn ]"), OK);
    assert_eq!(status("test -w /proc/sys/net/ipv4/tcp_none"), Status::Is(1));
    assert_eq!(status("[ -d /proc/sys/net/ipv4 ]"), Status::Unknown);
    assert_eq!(status("[ -f /proc/sys/kernel/none ]"), Status::Unknown);
    assert_eq!(status("[ -d /proc/sys/net/ipv4/tcp_ecn ]"), Status::Is(1));
    assert_eq!(
        status("[ -f /proc/sys/net/ipv4/tcp_none ] && exit 1; true"),
        OK
    );
    assert_eq!(
        status("[ -f /sys/module/tcp_none/parameters/none ]"),
        Status::Is(1)
    );
}

#[test]
fn functions_of_nested_shells_call_each_other_so_often_and_no_more() {
    let mut text = "nstat\n".to_owned();
    for level in 0..8 {
        let calls = "f; ".repeat(40);
        text = format!("f() {{ sh <<END{level}\n{text}END{level}\n}}\n{calls}\n");
    }
    let _ = outcome(&text);
    let inner = format!("g() {{ nstat; }}; {}", "g; ".repeat(40));
    let shells = format!("f() {{ sh <<END\n{inner}\nEND\n}}\n{}", "f; ".repeat(40));
    let ran = effects(&shells);
    assert!(ran.contains(&Ignored(
        "functions that call each other too often".to_owned()
    )));
}

#[test]
fn commands_without_end_are_refused() {
    let body = "nstat; ".repeat(10_000);
    for text in [
        format!("f() {{ {body} }}; {}", "f; ".repeat(256)),
        format!("f() {{ false && {{ {body} }}; }}; {}", "f; ".repeat(256)),
        format!(
            "f() {{ for i in 1; do {body} done; }}; {}",
            "f; ".repeat(256)
        ),
        format!("f() {{ sh <<END\n{body}\nEND\n}}\n{}", "f; ".repeat(256)),
        format!(
            "f() {{ true{}}}; {}",
            ";".repeat(100_000),
            "f; ".repeat(256)
        ),
        format!(
            "tee{} <<< {}",
            " /proc/sys/net/a".repeat(5_000),
            "b".repeat(50_000)
        ),
    ] {
        let said = outcome(&text).expect_err(&text[..40]);
        assert!(said.contains("SHELL_WORK_MAX"), "{said}");
    }
}

#[test]
fn long_commands_take_no_longer_than_they_are() {
    let settings = format!("set_sysctls.py{}", " x".repeat(10_000));
    let said: usize = effects(&settings)
        .iter()
        .map(|effect| match effect {
            Ignored(text) => text.len(),
            _ => 0,
        })
        .sum();
    assert!(said < 1_000_000, "{said}");
    assert_eq!(status(&format!("test{} x", " !".repeat(10_000))), OK);
    assert_eq!(
        status(&format!("test{} x", " !".repeat(10_001))),
        Status::Is(1)
    );
    assert_eq!(effects(&"nstat & ".repeat(50_000)).len(), 50_000);
}
