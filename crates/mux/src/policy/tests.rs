//! Rules in the form that users write, and claims of several users.

use super::*;

fn policy(rules: &[&str]) -> Policy {
    Policy {
        unprivileged_start: 1024,
        rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
    }
}

fn user(uid: u32, groups: &[u32]) -> Peer {
    Peer {
        uid,
        gid: uid,
        groups: groups.to_vec(),
        ..Peer::default()
    }
}

#[test]
fn root_may_claim_any_port_and_others_the_unprivileged_ones() {
    let policy = policy(&[]);
    assert!(policy.allows(&user(0, &[]), 22));
    assert!(policy.allows(&user(1000, &[]), 1024));
    assert!(!policy.allows(&user(1000, &[]), 1023));
}

#[test]
fn rule_adds_its_ports_for_its_user_alone() {
    let policy = policy(&["uid=1000:80,443", "gid=33:90-92"]);
    assert!(policy.allows(&user(1000, &[]), 443));
    assert!(!policy.allows(&user(1000, &[]), 81));
    assert!(!policy.allows(&user(1001, &[]), 443));
    assert!(policy.allows(&user(1001, &[5, 33]), 92));
    assert!(policy.allows(&user(33, &[]), 90));
    assert!(!policy.allows(&user(33, &[]), 93));
}

#[test]
fn names_are_looked_up() {
    let rule: Rule = "user=root:80".parse().unwrap();
    assert_eq!(rule.subject, Subject::User(0));
    let rule: Rule = "group=root:80".parse().unwrap();
    assert_eq!(rule.subject, Subject::Group(0));
    let error = "user=nosuchuser:80".parse::<Rule>().unwrap_err();
    assert!(error.contains("nosuchuser"), "{error}");
}

#[test]
fn rule_that_is_none_is_refused_in_one_line() {
    for text in [
        "",
        "uid=1000",
        "uid=:80",
        "uid=x:80",
        "uid=1000:",
        "uid=1000:0",
        "uid=1000:90-80",
        "uid=1000:70000",
        "who=1000:80",
    ] {
        let error = text.parse::<Rule>().unwrap_err();
        assert!(error.contains("uid=1000:80,443"), "{error}");
    }
}
