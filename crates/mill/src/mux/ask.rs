//! Queries a running service, and shows its answer as JSON or as a table.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use ::mux::dataplane::remove_mounts;
use packetio::foreign::{Closer, Foreign};
use packetio::mux::channel::{Channel, Received};
use packetio::mux::message::{Message, Query};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;

use super::RUN_DIRECTORY;
use crate::failure::Failure;
use crate::limits::{MUX_ANSWER_BYTES_MAX, MUX_ANSWER_S_MAX, MUX_STOP_S_MAX};
use crate::output::print;

/// Time that commands wait for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(MUX_ANSWER_S_MAX);

/// Queries the service at `path` and prints its answer.
pub(super) fn ask(path: &str, query: Query, as_json: bool) -> Result<(), Failure> {
    let answer = fetch(path, query, PATIENCE)?;
    let printed = match as_json {
        true => print(&format!("{answer}\n")),
        false => print(&text(query, &answer)),
    };
    if query == Query::Stop {
        return clear(word(&answer["interface"])).and(printed);
    }
    printed?;
    let all_ok = query != Query::Check || list(&answer).all(|hop| hop["ok"] == true);
    if all_ok {
        Ok(())
    } else {
        Err(Failure::Reported)
    }
}

/// Unmounts what the ending service of an interface mounted: the service itself has given up the
/// capability for that. The interface's name comes from whatever listens at the socket, so it must
/// not lead elsewhere.
pub(super) fn clear(interface: &str) -> Result<(), Failure> {
    let is_name = !interface.is_empty()
        && interface
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/')
        && !matches!(interface, "." | "..");
    if !is_name {
        return Err(Failure::Run("mux: the service told no interface".into()));
    }
    let directory = Path::new(RUN_DIRECTORY).join(interface);
    remove_mounts(&directory, Duration::from_secs(MUX_STOP_S_MAX))
        .map_err(|error| Failure::Run(format!("mux: {error}")))
}

/// Number of applications of the service at `path`.
pub(super) fn applications(path: &str) -> Result<usize, Failure> {
    let answer = fetch(path, Query::Status, PATIENCE)?;
    Ok(list(&answer["applications"]).count())
}

/// The answer of the service at `path`, if it comes within `patience`.
pub(crate) fn fetch(path: &str, query: Query, patience: Duration) -> Result<Value, Failure> {
    let failed = |errno: Errno| {
        let hint = hint(query, errno);
        Failure::Run(format!("{path}: {errno}{hint}"))
    };
    let channel = Channel::connect(path, &Closer::default()).map_err(failed)?;
    let question = Message::Query { request: 1, query };
    channel.send(&question, None).map_err(failed)?;
    match answer(&channel, patience).map_err(failed)? {
        (Message::Answer { bytes, .. }, descriptor) => {
            let file = descriptor.keep_if("no file", |_| Ok(()));
            let file = file.map_err(|cause| Failure::Run(format!("{path}: {cause}")))?;
            read(file.as_fd(), bytes).map_err(failed)
        }
        (Message::Refused { errno, .. }, _) => {
            Err(failed(Errno::from_raw_os_error(i32::from(errno))))
        }
        _ => Err(failed(Errno::PROTO)),
    }
}

/// An explanation of a query's error, behind its text.
fn hint(query: Query, errno: Errno) -> &'static str {
    match (errno, query) {
        (Errno::NOENT | Errno::CONNREFUSED, Query::Stop) => {
            " (no service runs there; to remove what one has left, start it again and stop it then)"
        }
        (Errno::NOENT | Errno::CONNREFUSED, _) => " (no service runs there)",
        (Errno::PERM, _) => " (only root and the service's own user may)",
        _ => "",
    }
}

fn answer(channel: &Channel, patience: Duration) -> Result<(Message, Foreign), Errno> {
    let end = Instant::now() + patience;
    loop {
        match channel.receive() {
            Received::Message(Message::Stopping { .. }, _) => {}
            Received::Message(message, descriptor) => return Ok((message, descriptor)),
            Received::Malformed(_) => return Err(Errno::PROTO),
            Received::Closed => return Err(Errno::PIPE),
            Received::Nothing => {
                let left = end.saturating_duration_since(Instant::now());
                let left = Timespec {
                    tv_sec: left.as_secs() as i64,
                    tv_nsec: i64::from(left.subsec_nanos()),
                };
                let mut waiting = [PollFd::new(channel, PollFlags::IN)];
                if poll(&mut waiting, Some(&left)) == Ok(0) {
                    return Err(Errno::TIMEDOUT);
                }
            }
        }
    }
}

fn read(file: BorrowedFd<'_>, bytes: u64) -> Result<Value, Errno> {
    let length = usize::try_from(bytes).map_err(|_| Errno::MSGSIZE)?;
    if length > MUX_ANSWER_BYTES_MAX {
        return Err(Errno::MSGSIZE);
    }
    let mut text = vec![0; length];
    let mut at = 0;
    while at < length {
        match rustix::io::pread(file, &mut text[at..], at as u64)? {
            0 => return Err(Errno::PROTO),
            read => at += read,
        }
    }
    serde_json::from_slice(&text).map_err(|_| Errno::PROTO)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The answer as human-readable text.
pub(super) fn text(query: Query, answer: &Value) -> String {
    match query {
        Query::Status => status(answer),
        Query::Ports => match list(answer).count() {
            0 => "no application is connected\n".to_owned(),
            _ => list(answer).map(ports).collect(),
        },
        Query::Drops => drops(answer),
        Query::Check => list(answer).map(check).collect(),
        Query::Stop => "the service ends\n".to_owned(),
    }
}

fn status(answer: &Value) -> String {
    let link = if answer["is_up"] == true {
        "up"
    } else {
        "down"
    };
    let mut text = format!(
        "{} {link}, MAC {}, MTU {}, {}, {} virtual ports at most\n",
        word(&answer["interface"]),
        word(&answer["mac"]),
        answer["mtu"],
        word(&answer["mode"]),
        answer["virtual_ports_max"],
    );
    text += &counters("dropped from the NIC", &answer["ingress_drops"]);
    if answer["next_hops_forgotten"].as_u64() > Some(0) {
        let count = &answer["next_hops_forgotten"];
        text += &format!("next hops that never answered: {count}\n");
    }
    for one in list(&answer["applications"]) {
        text += &format!(
            "{:>3} {}, pid {}, uid {}, {}\n",
            one["application"].to_string(),
            word(&one["name"]),
            one["pid"],
            one["uid"],
            word(&one["state"]),
        );
        text += &owned(one);
        for context in list(&one["contexts"]) {
            text += &format!(
                "    context {}: {} frames ({} bytes) in, {} frames ({} bytes) out\n",
                context["context"],
                context["rx_frames"],
                context["rx_bytes"],
                context["tx_frames"],
                context["tx_bytes"],
            );
            if context["bulk_frames"].as_u64() > Some(0) {
                text += &format!(
                    "    bulk lane: {} of these frames ({} bytes)\n",
                    context["bulk_frames"], context["bulk_bytes"],
                );
            }
            text += &counters("    dropped", &context["drops"]);
        }
    }
    text
}

fn ports(one: &Value) -> String {
    let (number, name, pid) = (
        one["application"].to_string(),
        word(&one["name"]),
        &one["pid"],
    );
    format!("{number:>3} {name}, pid {pid}\n{}", owned(one))
}

/// Claims and leases of an application.
fn owned(one: &Value) -> String {
    let claims = list(&one["ports"]).map(|claim| {
        let endpoint = word(&claim["endpoint"]);
        format!("    {endpoint}, contexts {}\n", claim["contexts"])
    });
    let leases = list(&one["leases"]).map(|lease| {
        let (first, last) = (&lease["first"], &lease["last"]);
        format!("    leased {first}-{last}, context {}\n", lease["context"])
    });
    claims.chain(leases).collect()
}

fn drops(answer: &Value) -> String {
    let mut text = counters("dropped from the NIC", &answer["ingress"]);
    for one in list(&answer["applications"]) {
        let title = format!(
            "{:>3} {}",
            one["application"].to_string(),
            word(&one["name"])
        );
        text += &counters(&title, &one["drops"]);
    }
    match text.is_empty() {
        true => "nothing was dropped\n".to_owned(),
        false => text,
    }
}

fn check(hop: &Value) -> String {
    let name = word(&hop["hop"]);
    match hop["ok"] == true {
        true => format!("ok    {name}\n"),
        false => format!("wrong {name}: {}\n", word(&hop["cause"])),
    }
}

/// Counters in one line; empty if there are none.
fn counters(title: &str, counters: &Value) -> String {
    let counters = counters.as_object().into_iter().flatten();
    let counters: Vec<String> = counters
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    match counters.is_empty() {
        true => String::new(),
        false => format!("{title}: {}\n", counters.join(", ")),
    }
}

/// A string without quotes; `-` if there is none.
fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}
