//! `ip`: its effects on the device and on the route. A script has one of each, for all packets.

use world::virtual_host::{ROUTE_WINDOW, micros};

use super::{Effect, OK, Status};

/// Adds the effects of `ip` with these arguments; `text` is the whole command.
pub(super) fn ip(arguments: &[&str], text: &str, out: &mut Vec<Effect>) -> Status {
    let is_option = |word: &&&str| word.starts_with('-');
    let skipped = arguments.iter().take_while(is_option).count();
    let ignored = || Effect::Ignored(text.to_owned());
    match &arguments[skipped..] {
        rest if rest.contains(&"tcp_metrics") => {
            let verbs = ["flush", "f", "delete", "del"];
            let forgets = rest.iter().any(|word| verbs.contains(word));
            out.push(if forgets {
                Effect::ForgetPeers
            } else {
                ignored()
            });
        }
        ["link" | "lin" | "li" | "l", rest @ ..] => {
            let mtu = behind("mtu", rest).and_then(|bytes| bytes.parse().ok());
            out.push(mtu.map_or_else(ignored, Effect::Mtu));
        }
        [
            "route" | "ro" | "r",
            "add" | "a" | "append" | "change" | "chg" | "prepend" | "replace",
            rest @ ..,
        ] => metrics(rest, ignored, out),
        [
            "route" | "ro" | "r",
            "del" | "delete" | "d" | "flush" | "f",
            ..,
        ] => {
            out.push(ignored());
        }
        _ => {
            out.push(ignored());
            return Status::Unknown;
        }
    }
    OK
}

/// The value behind `name`, or behind `name lock`.
fn behind<'a>(name: &str, words: &[&'a str]) -> Option<&'a str> {
    let at = words.iter().position(|word| *word == name)? + 1;
    let at = if words.get(at) == Some(&"lock") {
        at + 1
    } else {
        at
    };
    words.get(at).copied()
}

/// Adds the route metrics that TCP follows. One unsupported metric makes the whole command an
/// ignored one.
fn metrics(words: &[&str], ignored: impl Fn() -> Effect, out: &mut Vec<Effect>) {
    let mut set = |name: &str, value: String| {
        let name = name.to_owned();
        out.push(Effect::Set { name, value });
    };
    if let Some(segments) = behind("initcwnd", words) {
        set(ROUTE_WINDOW, segments.to_owned());
    }
    if let Some(micros) = behind("rto_min", words).and_then(micros) {
        set("net.ipv4.tcp_rto_min_us", micros.to_string());
    }
    if let Some(segments) = behind("reordering", words) {
        set("net.ipv4.tcp_reordering", segments.to_owned());
    }
    if let Some(algorithm) = behind("congctl", words) {
        set("net.ipv4.tcp_congestion_control", algorithm.to_owned());
    }
    if let Some(mtu) = behind("mtu", words).and_then(|bytes| bytes.parse().ok()) {
        out.push(Effect::Mtu(mtu));
    }
    let others = [
        "advmss",
        "cwnd",
        "fastopen_no_cookie",
        "features",
        "hoplimit",
        "initrwnd",
        "quickack",
        "rtt",
        "rttvar",
        "ssthresh",
        "window",
    ];
    if words.iter().any(|word| others.contains(word)) {
        out.push(ignored());
    }
}
