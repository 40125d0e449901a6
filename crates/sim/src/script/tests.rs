//! What a run says beside that it passed.

use super::{Mismatch, Options, Report, run};

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
