//! Long transfers between Millstream and the kernel with all offloads on: downloads by HTTP from
//! `mill serve` beside nginx, and uploads to Millstream beside the kernel's own receiver.
//!
//! The client is the kernel's for every system. Over veth the receiver's work on an arrival is done
//! within the sender's system call, so CPU time is compared as the sum of both processes. Documents
//! are long, and a connection asks for the next one when it has the last.

use super::{Load, Receiver, Seen, System, add_figures, load, paper, run};
use crate::frame::turns::{self, Case};
use crate::frame::{Goal, Outcome, Repeats};
use crate::measure::{self, Plan};
use crate::message::System as Message;
use crate::message::sides::{self, Run, Wire};

/// Bytes of a document: a transfer of some ten milliseconds at 13 Gbit/s.
const DOCUMENT_BYTES: usize = 16 << 20;
/// Numbers of connections: of a full measurement, and of a quick one.
const CONNECTIONS: (&[usize], &[usize]) = (&[1, 4], &[1]);

/// The kernel's server, then ours.
const SERVERS: [Message; 3] = [Message::Nginx, Message::MillServe, Message::MillServePacket];
/// The kernel's receiver, then ours.
const RECEIVERS: [System; 3] = [
    System::Receiver(Receiver::Kernel),
    System::Receiver(Receiver::Xdp),
    System::Receiver(Receiver::Packet),
];

/// The beginning of figures' names.
const DOWNLOAD: &str = "offload-download";
const UPLOAD: &str = "offload-upload";

/// Measures downloads and uploads.
pub(super) fn measure(repeats: &Repeats, outcome: &mut Outcome) {
    downloads(repeats, outcome);
    uploads(repeats, outcome);
}

/// Every system at every number of connections.
fn cases<S: Copy>(repeats: &Repeats, systems: &[S]) -> Vec<Case<S>> {
    let (all, few) = CONNECTIONS;
    let counts = if repeats.quick { few } else { all };
    let at = |&count: &usize| {
        let x = count as f64;
        systems.iter().map(move |&system| Case { system, x })
    };
    counts.iter().flat_map(at).collect()
}

fn downloads(repeats: &Repeats, outcome: &mut Outcome) {
    let cases = cases(repeats, &SERVERS);
    let study = (DOWNLOAD, repeats.runs);
    let columns = turns::columns(study, &SERVERS, &cases, outcome, |case| {
        let plan = Plan {
            connections: case.x as usize,
            messages: 0,
            response_bytes: DOCUMENT_BYTES,
            ..Plan::default()
        };
        let run = Run {
            wire: Wire {
                segmentation: true,
                ..Wire::default()
            },
            ..Run::of(repeats, plan)
        };
        sides::run(case.system, &run).map(|seen| downloaded(&seen))
    });
    let title = "downloads by a kernel client, documents of 16 MiB, veth with all offloads";
    show(outcome, (DOWNLOAD, title), paper::named(columns));
    let ours = SERVERS[1..].iter().map(ToString::to_string);
    judge(outcome, DOWNLOAD, &SERVERS[0].to_string(), ours);
}

/// Throughput and CPU time per byte, from a run that counted transactions.
fn downloaded(seen: &measure::Seen) -> Seen {
    let bytes = DOCUMENT_BYTES as f64;
    let ns_per_byte = |us: f64| Some(us * 1e3 / bytes);
    Seen {
        gbit_per_second: seen.per_second * bytes * 8.0 / 1e9,
        receiver_ns_per_byte: ns_per_byte(seen.client_cpu_us),
        sender_ns_per_byte: ns_per_byte(seen.server_cpu_us),
        jain: 1.0,
        parts: None,
    }
}

fn uploads(repeats: &Repeats, outcome: &mut Outcome) {
    let cases = cases(repeats, &RECEIVERS);
    let study = (UPLOAD, repeats.runs);
    let columns = turns::columns(study, &RECEIVERS, &cases, outcome, |case| {
        let load: Load = load(repeats, case.x as usize, true);
        run::run(case.system, load)
    });
    let title = "uploads by a kernel client, veth with all offloads";
    show(outcome, (UPLOAD, title), paper::named(columns));
    let ours = RECEIVERS[1..].iter().map(ToString::to_string);
    judge(outcome, UPLOAD, &RECEIVERS[0].to_string(), ours);
}

fn show(outcome: &mut Outcome, (id, title): (&str, &str), columns: Vec<paper::Named>) {
    let x = "connections";
    add_figures(outcome, (id, title), x, &columns);
    outcome.add(paper::both_ends((id, title), x, &columns));
}

/// Judges ours against the kernel's, by rate and by the CPU time of both ends.
fn judge(outcome: &mut Outcome, id: &str, theirs: &str, ours: impl Iterator<Item = String>) {
    for ours in ours {
        for &count in CONNECTIONS.0 {
            let read = |figure: &str, system: &str| outcome.median(figure, system, count as f64);
            let both = format!("{id}-both");
            let rates = read(id, &ours).zip(read(id, theirs));
            let costs = read(&both, &ours).zip(read(&both, theirs));
            let rates = rates.map(|(ours, theirs)| {
                let seen = format!("{ours:.1} against {theirs:.1} Gbit/s");
                (ours / theirs, seen)
            });
            let costs = costs.map(|(ours, theirs)| {
                let seen = format!("{ours:.2} against {theirs:.2} cycles per byte");
                (ours / theirs, seen)
            });
            let what = format!("{id}, {ours}, {count} at once, × {theirs}");
            outcome.judge(Goal::at_least(format!("{what}: Gbit/s"), (1.0, 1.2)), rates);
            let goal = Goal::at_most(format!("{what}: CPU of both ends"), (1.0, 0.8));
            outcome.judge(goal, costs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_their_cpu_time_are_told_by_the_byte() {
        let seen = downloaded(&measure::Seen {
            per_second: 100.0,
            client_cpu_us: 2.0 * DOCUMENT_BYTES as f64 / 1e3,
            server_cpu_us: DOCUMENT_BYTES as f64 / 1e3,
            ..measure::Seen::default()
        });
        assert!((seen.gbit_per_second - 13.42).abs() < 0.01);
        assert_eq!(seen.receiver_ns_per_byte, Some(2.0));
        assert_eq!(seen.sender_ns_per_byte, Some(1.0));
    }
}
