//! Messages of a run, beside its result.

use super::{Mismatch, Options, Report, run};
use std::io::Write as _;

const SOCKET: &str = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n";

fn play(text: &str) -> Result<Report, Mismatch> {
    run(text, &Options::default())
}

fn cause(text: &str) -> String {
    play(text).expect_err(text).cause
}

#[test]
fn command_that_fails_ends_the_script() {
    assert!(cause(&format!("`exit 1`\n{SOCKET}")).contains("status 1"));
    assert!(cause(&format!("{SOCKET}+0 `[ 1 = 2 ]`")).contains("status 1"));
    assert!(cause(&format!("{SOCKET}+0 close(3) = 0\n`exit 7`")).contains("status 7"));
}

#[test]
fn setting_that_nothing_knows_is_said() {
    let init = "`sysctl -q net.ipv4.tcp_none=1 net.ipv4.tcp_ecn=17; some_command`\n";
    let passed = play(&format!("{init}{SOCKET}")).expect("a script that passes");
    assert!(
        passed
            .trace
            .contains("setting ignored: net.ipv4.tcp_none = 1")
    );
    assert!(
        passed
            .trace
            .contains("setting ignored: net.ipv4.tcp_ecn = 17")
    );
    assert!(!passed.trace.contains("some_command"));
    let cause = cause(&format!("{init}{SOCKET}+0 close(3) = 1"));
    assert!(cause.contains("not done: setting ignored: net.ipv4.tcp_none = 1"));
    assert!(cause.contains("not done: command ignored: some_command"));
    let trace = play(&format!("`./defaults.sh`\n{SOCKET}")).map(|report| report.trace);
    assert_eq!(trace, Ok(String::new()));
}

#[test]
fn command_sleeps_in_virtual_time() {
    let report = play(&format!("{SOCKET}+0 `sleep 2.5`\n+1 close(3) = 0"));
    assert_eq!(report.map(|report| report.elapsed_ns), Ok(3_500_000_000));
}

#[test]
fn init_scripts_run_first() {
    let file = std::env::temp_dir().join(format!("init-{}.sh", std::process::id()));
    std::fs::write(
        &file,
        "#!/bin/sh\nsysctl -q net.ipv4.tcp_congestion_control=reno\n",
    )
    .unwrap();
    let text = format!(
        "--init_scripts={}\n{SOCKET}+0 getsockopt(3, SOL_TCP, TCP_CONGESTION, \"reno\", [4]) = 0",
        file.display()
    );
    let played = play(&text);
    std::fs::remove_file(file).unwrap();
    assert_eq!(played.map(|report| report.events), Ok(2));
    assert!(cause(&format!("--init_scripts=false\n{SOCKET}")).contains("status 1"));
}

#[test]
fn call_is_written_as_it_is_made() {
    let cases = [
        ("+0 close(3, 4) = 0", "2 arguments"),
        ("+0 read(3, ..., 10, 9) = 10", "4 arguments"),
        (
            "+0 poll([{fd=3, events=POLLIN, revents=0}], 7, 0) = 0",
            "7 members told, 1 listed",
        ),
        (
            "+0 writev(3, [{..., 5}], 9) = 5",
            "9 members told, 1 listed",
        ),
        (
            "+0 close(3) = 0 ENOSUCHERROR",
            "there is no error ENOSUCHERROR",
        ),
    ];
    for (call, said) in cases {
        let cause = cause(&format!("{SOCKET}{call}"));
        assert!(cause.contains(said), "{call}: {cause}");
    }
}

/// A connection: descriptor 3 is its listener, descriptor 4 the connection.
const ACCEPTED: &str = "+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 65535 <mss 1000,nop,wscale 7>
+0 > S. 0:0(0) ack 1 <...>
+.1 < . 1:1(0) ack 1 win 512
+0 accept(3, ..., ...) = 4
";

#[test]
fn splice_waits_while_its_pipe_is_filled() {
    let played = play(&format!(
        "{SOCKET}{ACCEPTED}+0 pipe([5, 6]) = 0
+0...3 splice(4, NULL, 6, NULL, 65536, 0) = 20000
+2 write(6, ..., 60000) = 60000
+1 < P. 1:20001(20000) ack 1 win 512
+0 > . 1:1(0) ack 20001
+2 write(6, ..., 10) = -1 EAGAIN (Resource temporarily unavailable)
+0 splice(4, NULL, 6, NULL, 10, 0) = -1 EAGAIN (Resource temporarily unavailable)
+0 read(5, ..., 90000) = 80000
"
    ));
    assert_eq!(played.map(|report| report.events), Ok(15));
}

#[test]
fn device_takes_what_an_mtu_may_be() {
    for init in [
        "ip link set dev tun0 mtu 18446744073709551615",
        "ip link set dev tun0 mtu 65536",
        "ip link set dev tun0 mtu 10",
    ] {
        let mismatch = play(&format!("\n`{init}`\n{SOCKET}")).expect_err(init);
        assert_eq!(mismatch.line, 2);
        assert!(mismatch.cause.contains("from 68 to 65535"), "{mismatch}");
    }
    for mtu in ["0", "65536", "18446744073709551615"] {
        let cause = cause(&format!("--mtu={mtu}\n{SOCKET}"));
        assert!(cause.contains("from 68 to 65535"), "{cause}");
    }
    assert!(play(&format!("`ip link set dev tun0 mtu 65535`\n{SOCKET}")).is_ok());
}

#[test]
fn numbers_that_nothing_holds_are_refused() {
    let open = format!("{SOCKET}{ACCEPTED}");
    for (text, said) in [
        (format!("{SOCKET}+9223372036854 close(3) = 0"), "is no time"),
        (
            format!("{SOCKET}+315000000 close(3) = 0\n+315000000 close(4) = 0"),
            "a script lasts",
        ),
        (
            format!("--tolerance_usecs=9223372036854775807\n{SOCKET}"),
            "bad --tolerance_usecs",
        ),
        (
            format!("--tolerance_usecs=-1\n{SOCKET}"),
            "bad --tolerance_usecs",
        ),
        (
            format!("--tcp_ts_tick_usecs=9223372036854775807\n{SOCKET}"),
            "bad --tcp_ts_tick_usecs",
        ),
        (
            format!(
                "{open}+0 sendmsg(4, {{msg_name(...)=..., msg_iov(2)=[{{..., 4294967295}}, {{..., 4294967295}}], msg_flags=0}}, 0) = 1"
            ),
            "too long",
        ),
        (
            format!("{open}+0 < icmp unreachable [1:65536(65535)]"),
            "too long",
        ),
    ] {
        let cause = cause(&text);
        assert!(cause.contains(said), "{text}: {cause}");
    }
    let forgiving = format!("--tolerance_percent=1e300\n{SOCKET}+1 close(3) = 0");
    assert!(play(&forgiving).is_ok());
}

#[test]
fn what_is_checked_has_its_code_read() {
    let check = |event: &str| super::check(&format!("{SOCKET}+0 {event}"));
    assert_eq!(check("%{ assert nothing == 1 }%"), Ok(()));
    assert_eq!(check("`exit 1`"), Ok(()));
    let mismatch = check("%{\n1 + }%").expect_err("no code");
    assert!(mismatch.line == 3 && mismatch.cause.contains("an expression expected"));
}

#[test]
fn expressions_without_end_are_refused() {
    let many = |count: usize| format!("{SOCKET}+0 close(3{}) = 0", "|3".repeat(count));
    assert!(play(&many(100)).is_ok());
    assert!(cause(&many(1_000_000)).contains("too many"));
    let colons = format!("{SOCKET}+0 {}", ":".repeat(1_000_000));
    assert!(cause(&colons).contains("'::'"));
}

#[test]
fn segment_that_is_cut_keeps_its_urgent_mark() {
    for (urgent, before) in [
        (10, 9),
        (1000, 999),
        (1001, 1000),
        (2500, 2499),
        (3000, 2999),
    ] {
        let played = play(&format!(
            "--mss=1000\n{SOCKET}{ACCEPTED}+.1 < UP. 1:3001(3000) ack 1 win 512 urg {urgent}
+0 > . 1:1(0) ack 3001
+.1 read(4, ..., 10000) = {before}
+0 ioctl(4, SIOCATMARK, [1]) = 0
+0 recv(4, ..., 1, MSG_OOB) = 1
"
        ));
        assert_eq!(played.map(|report| report.events), Ok(12), "urg {urgent}");
    }
}

#[test]
fn kernel_takes_what_is_put_together_as_a_whole() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "ignored: not root");
        return;
    }
    let options = Options {
        on: super::Machine::Kernel,
        // Only answers matter here, not times: a busy machine may be late by any time.
        tolerance_us_min: 30_000_000,
        ..Options::default()
    };
    for version in ["ipv4", "ipv6"] {
        let played = run(
            &format!(
                "--mss=1000\n--ip_version={version}\n{SOCKET}{ACCEPTED}+.1 < P. 1:5001(5000) ack 1 win 512
+0 > . 1:1(0) ack 5001
+.1 < UP. 5001:7001(2000) ack 1 win 512 urg 10
+0 > . 1:1(0) ack 7001
+.1 read(4, ..., 10000) = 5009
"
            ),
            &options,
        );
        assert_eq!(played.map(|report| report.events), Ok(12), "{version}");
    }
}

#[test]
fn packets_take_an_odd_number_of_microseconds_longer_than_is_written() {
    let questions = "+.1 < P. 1:2(1) ack 1 win 512\n+0 > . 1:1(0) ack 2
+.1 < P. 2:3(1) ack 1 win 512\n+0 > . 1:1(0) ack 3
+.1 < P. 3:4(1) ack 1 win 512\n+0 > . 1:1(0) ack 4\n";
    let how = Options {
        record: true,
        ..Options::default()
    };
    let played = run(&format!("{SOCKET}{ACCEPTED}{questions}"), &how).expect("a play");
    let answers: Vec<i64> = played.record.departed().map(|(at, _)| at).collect();
    let waits = answers.windows(2).map(|pair| pair[1] - pair[0]);
    let late: Vec<i64> = waits.map(|wait| wait % 10_000).skip(1).collect();
    assert_eq!(late.len(), 2, "{answers:?}");
    assert!(
        late.iter().all(|late| late % 2 == 1 && *late < 16),
        "{late:?}"
    );
    assert_ne!(late[0], late[1]);
}
