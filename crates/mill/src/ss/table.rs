//! The columns of `ss`: their widths fit all rows, and addresses are aligned at the colon.

use std::net::{IpAddr, SocketAddr};

use millstream::survey::FlowWord as W;

use super::source::Flow;
use super::story::Told;
use super::{SsOptions, info, services, states};

/// The cells of a row, and the line below the row.
struct Line {
    state: &'static str,
    queues: [String; 2],
    /// Address and port of both ends.
    ends: [(String, String); 2],
    /// Process, timer and details.
    notes: String,
    below: String,
    /// One line for each event.
    story: Vec<String>,
}

/// All rows as text.
pub fn text(options: &SsOptions, flows: &[Flow], states: u16, stories: &[Told]) -> String {
    let mut lines: Vec<Line> = flows.iter().map(|flow| line(options, flow)).collect();
    for (line, story) in lines.iter_mut().zip(stories) {
        line.story = story.lines();
    }
    // As in iproute2, a column is omitted if only one state, or one named kind of sockets, is
    // shown.
    let has_state = states.count_ones() != 1;
    let has_kind = !options.tcp;
    let head = Line {
        state: "State",
        queues: ["Recv-Q".into(), "Send-Q".into()],
        ends: [
            ("Local Address".into(), "Port".into()),
            ("Peer Address".into(), "Port".into()),
        ],
        notes: "Process".into(),
        below: String::new(),
        story: Vec::new(),
    };
    let head = (!options.no_header).then_some(&head);
    let shown = || head.into_iter().chain(&lines);
    let width = |of: &dyn Fn(&Line) -> usize| shown().map(of).max().unwrap_or(0);
    let state = width(&|line| line.state.len());
    let queues = [0, 1].map(|at| width(&|line| line.queues[at].len()));
    let addresses = [0, 1].map(|at| width(&|line| line.ends[at].0.len()));
    let ports = [0, 1].map(|at| width(&|line| line.ends[at].1.len()));
    let mut out = String::new();
    for (at, line) in shown().enumerate() {
        if has_kind {
            let is_head = at == 0 && head.is_some();
            let kind = if is_head { "Netid" } else { "tcp" };
            let width = "Netid".len();
            out.push_str(&format!("{kind:<width$} "));
        }
        if has_state {
            out.push_str(&format!("{:<state$} ", line.state));
        }
        for (cell, width) in line.queues.iter().zip(queues) {
            out.push_str(&format!("{cell:<width$} "));
        }
        for (at, (address, port)) in line.ends.iter().enumerate() {
            let (left, right) = (addresses[at], ports[at]);
            out.push_str(&format!("{address:>left$}:{port:<right$} "));
        }
        out.push_str(&line.notes);
        let kept = out.trim_end().len();
        out.truncate(kept);
        if !line.below.is_empty() {
            let between = if options.one_line { " " } else { "\n\t " };
            out.push_str(between);
            out.push_str(&line.below);
        }
        out.push('\n');
        for event in &line.story {
            out.push_str(&format!("\t {event}\n"));
        }
    }
    out
}

fn line(options: &SsOptions, flow: &Flow) -> Line {
    let w = &flow.words;
    let mut notes = Vec::new();
    if options.processes {
        notes.push(flow.users());
    }
    // As in iproute2, `-e` also shows the timer, and omits user id 0.
    if options.timers || options.extended {
        notes.extend(info::timer(w));
    }
    if options.extended {
        let (inode, socket) = (flow.inode(), w.at(W::Index));
        if flow.process.uid != 0 {
            notes.push(format!("uid:{}", flow.process.uid));
        }
        notes.push(format!("ino:{inode} sk:{socket:x} <->"));
    }
    let mut below = Vec::new();
    if options.memory {
        below.push(info::memory(w));
    }
    if options.info {
        below.push(info::info(w, options.numeric));
    }
    below.retain(|part| !part.is_empty());
    Line {
        state: states::column(w.at(W::State)),
        queues: [W::RecvQueue, W::SendQueue].map(|word| w.at(word).to_string()),
        ends: [w.local(), w.remote()].map(|end| cells(end, options.numeric)),
        notes: notes.join(" "),
        below: below.join(" "),
        story: Vec::new(),
    }
}

/// Address and port; `*` for no port, brackets around IPv6 addresses.
fn cells(end: SocketAddr, numeric: bool) -> (String, String) {
    let address = match end.ip() {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    };
    let name = services::name_of(end.port()).filter(|_| !numeric);
    let port = match (end.port(), name) {
        (0, _) => "*".to_owned(),
        (_, Some(name)) => name.to_owned(),
        (port, None) => port.to_string(),
    };
    (address, port)
}
