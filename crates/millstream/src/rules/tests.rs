//! Texts with rules, and what is said about those that hold none.

use super::*;

#[test]
fn each_key_is_read() {
    let text = r#"
        rule_default = "reject"
        [[rule]]
        name = "all of it"
        source = "fd00:1::/32"
        destination = "fd00::2"
        protocol = "tcp"
        source_port = "1024-65535"
        destination_port = 443
        wire = 2
        action = "limit"
        per_second = 0x10
        burst = 3
        [[rule]]
        protocol = 47
        action = "deny"
        [[rule]]
        protocol = "icmp"
        action = "limit"
        per_second = 5
    "#;
    let set = parse(text).unwrap();
    assert_eq!(set.default_action, RuleAction::Reject);
    let first = Rule {
        name: Some("all of it".to_owned()),
        source: Some("fd00:1::/32".parse().unwrap()),
        destination: Some("fd00::2/128".parse().unwrap()),
        protocol: Some(Protocol::Tcp),
        source_ports: Some((1_024, u16::MAX)),
        destination_ports: Some((443, 443)),
        wire: Some(2),
        action: RuleAction::Limit {
            per_second: 16,
            burst: 3,
        },
    };
    assert_eq!(set.rules[0], first);
    assert_eq!(set.rules[1].protocol, Some(Protocol::Number(47)));
    let limit = RuleAction::Limit {
        per_second: 5,
        burst: 5,
    };
    assert_eq!(set.rules[2].action, limit);
    assert_eq!(parse(""), Ok(RuleSet::default()));
    assert!(parse("").unwrap().is_idle());
}

#[test]
fn wrong_text_is_told_with_its_line_and_cause() {
    for (text, wanted) in [
        ("[[rule]\n", "line 1: "),
        ("\nwidth = 3", "line 2: width: there is no such key"),
        ("rule_default = 'limit'", "line 1: rule_default: expected"),
        ("rule = 3", "line 1: rule: write [[rule]]"),
        ("rule = [3]", "line 1: rule: write [[rule]]"),
        ("[rule]\nwire = 1", "line 1: rule: write [[rule]]"),
        (
            "[[rule]]\n\nsource = '10.0.0.0/33'",
            "line 3: source: `10.0.0.0/33`: prefix longer",
        ),
        (
            "[[rule]]\ndestination = 5",
            "line 2: destination: expected a text",
        ),
        ("[[rule]]\nwire = 256", "line 2: wire: 256: out of range"),
        (
            "[[rule]]\nwire = 9",
            "line 1: wire 9: wires have numbers from 1 to 8",
        ),
        ("[[rule]]\nwire = -1", "line 2: wire: -1: out of range"),
        (
            "[[rule]]\nprotocol = 'sctp'",
            "line 2: protocol: `sctp` is none of",
        ),
        (
            "[[rule]]\ndestination_port = '80-'",
            "line 2: destination_port: `80-` is no port",
        ),
        (
            "[[rule]]\ndestination_port = 65536",
            "line 2: destination_port: 65536: out of",
        ),
        (
            "[[rule]]\n[[rule]]\nsource_port = '9-8'",
            "line 2: ports 9-8: the first is above",
        ),
        (
            "[[rule]]\nprotocol = 'icmp'\nsource_port = 8",
            "line 1: ports need the protocol",
        ),
        (
            "[[rule]]\naction = 'drop'",
            "line 1: action: `drop` is none of allow, deny",
        ),
        (
            "[[rule]]\naction = 'limit'",
            "line 1: limit: per_second is missing",
        ),
        (
            "[[rule]]\naction = 'limit'\nper_second = 0",
            "line 1: a limit needs at least 1",
        ),
        (
            "[[rule]]\nburst = 8",
            "line 1: allow: per_second and burst are of action",
        ),
        (
            "[[rule]]\nsource = '::/0'\ndestination = '10.0.0.1'",
            "line 1: source and destin",
        ),
    ] {
        let said = parse(text).unwrap_err().to_string();
        assert!(said.starts_with(wanted), "{text}: {said}");
    }
}

#[test]
fn one_rule_more_than_the_limit_is_refused() {
    let text = "[[rule]]\n".repeat(RULES_MAX);
    assert_eq!(parse(&text).map(|set| set.rules.len()), Ok(RULES_MAX));
    let error = parse(&format!("{text}[[rule]]\n")).unwrap_err();
    assert_eq!(error.line, RULES_MAX + 1);
    assert!(error.why.contains("at most 32768"), "{error}");
}
