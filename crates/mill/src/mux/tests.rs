//! The command line of `mill mux`, and its human-readable answers.

use clap::Parser;
use serde_json::json;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: MuxOptions,
}

fn parse(line: &str) -> Result<MuxOptions, String> {
    let line = Line::try_parse_from(format!("mux {line}").split_whitespace());
    line.map(|line| line.options)
        .map_err(|error| error.to_string())
}

#[test]
fn interface_alone_has_the_defaults() {
    let options = parse("eth0").unwrap();
    assert_eq!(options.interface.as_deref(), Some("eth0"));
    assert_eq!(options.service.leases, PortRange(20_000..=31_999));
    assert_eq!(options.service.ports, 254);
    assert_eq!(options.service.socket, SOCKET_PATH_DEFAULT);
    assert!(options.question.is_none());
}

#[test]
fn question_needs_no_interface() {
    for line in ["status --json", "ports", "drops", "check", "stop"] {
        assert!(parse(line).unwrap().question.is_some(), "{line}");
    }
    assert!(parse("").is_err());
}

#[test]
fn options_that_cannot_be_are_refused() {
    for line in [
        "eth0 --ports 0",
        "eth0 --ports 255",
        "eth0 --leases 9-8",
        "eth0 --leases 20000-20030",
        "eth0 --allow nobody",
        "eth0 --path carrier",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    assert_eq!(bytes_a_second("80mbit").unwrap(), 10_000_000);
    assert!(bytes_a_second("fast").is_err());
}

#[test]
fn status_shows_applications_with_what_they_own() {
    let answer = json!({
        "interface": "eth0", "is_up": true, "mac": "02:00:00:00:00:01", "mtu": 1500,
        "mode": "native XDP", "virtual_ports_max": 254, "ingress_drops": {"fragment": 2},
        "applications": [{
            "application": 0, "name": "mill", "pid": 7, "uid": 1000, "state": "connected",
            "ports": [{"endpoint": "0.0.0.0:8080", "contexts": [0]}],
            "leases": [{"context": 0, "first": 20000, "last": 20031}],
            "contexts": [{
                "context": 0, "rx_frames": 1, "rx_bytes": 60, "tx_frames": 2, "tx_bytes": 120,
                "drops": {"foreign_port": 3},
            }],
        }],
    });
    let expected = "\
eth0 up, MAC 02:00:00:00:00:01, MTU 1500, native XDP, 254 virtual ports at most
dropped from the NIC: fragment 2
  0 mill, pid 7, uid 1000, connected
    0.0.0.0:8080, contexts [0]
    leased 20000-20031, context 0
    context 0: 1 frames (60 bytes) in, 2 frames (120 bytes) out
    dropped: foreign_port 3
";
    assert_eq!(ask::text(Query::Status, &answer), expected);
    assert_eq!(ask::text(Query::Drops, &json!({})), "nothing was dropped\n");
    assert_eq!(
        ask::text(Query::Ports, &json!([])),
        "no application is connected\n"
    );
}

#[test]
fn command_that_finds_no_service_says_what_helps() {
    let path = "/run/millstream/no-such.sock";
    let said = |query| {
        let failure = ask::fetch(path, query, ask::PATIENCE).unwrap_err();
        format!("{failure:?}")
    };
    assert!(said(Query::Status).contains("no service runs there"));
    assert!(said(Query::Stop).contains("start it again and stop it then"));
}

#[test]
fn interface_that_leads_elsewhere_is_not_unmounted() {
    for name in ["", ".", "..", "a/b", "../etc", "/", "a b", "-"] {
        let outcome = ask::clear(name);
        // No service has run for an interface `-`, so nothing is left of it.
        assert_eq!(outcome.is_ok(), name == "-", "{name:?}");
    }
}
