//! The columns of `ss`. Addresses are aligned at the colon.
//!
//! Rows leave in blocks, as those of iproute2 do, so that a million of them take little memory. The
//! widths of the columns fit the rows of a block and of those before.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

use millstream::survey::FlowWord as W;

use super::source::Flow;
use super::story::Told;
use super::{SsOptions, info, services, states};
use crate::limits::TABLE_BLOCK_ROWS;

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

/// Widths of the columns.
#[derive(Clone, Copy, Debug, Default)]
struct Widths {
    state: usize,
    queues: [usize; 2],
    addresses: [usize; 2],
    ports: [usize; 2],
}

impl Widths {
    /// Makes room for a row.
    fn fit(&mut self, line: &Line) {
        self.state = self.state.max(line.state.len());
        for at in 0..2 {
            self.queues[at] = self.queues[at].max(line.queues[at].len());
            self.addresses[at] = self.addresses[at].max(line.ends[at].0.len());
            self.ports[at] = self.ports[at].max(line.ends[at].1.len());
        }
    }
}

/// Rows on their way to `out`.
pub struct Table<'a> {
    options: &'a SsOptions,
    // As in iproute2, a column is omitted if only one state, or one named kind of sockets, is
    // shown.
    has_state: bool,
    has_kind: bool,
    widths: Widths,
    /// The header, until it has left.
    head: Option<Line>,
    /// Rows that have not left yet.
    lines: Vec<Line>,
}

impl<'a> Table<'a> {
    /// An empty table for flows in `states`.
    pub fn new(options: &'a SsOptions, states: u16) -> Self {
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
        let mut widths = Widths::default();
        let head = (!options.no_header).then_some(head);
        if let Some(head) = &head {
            widths.fit(head);
        }
        Self {
            options,
            has_state: states.count_ones() != 1,
            has_kind: options.tcp == options.udp,
            widths,
            head,
            lines: Vec::new(),
        }
    }

    /// Adds a row, with the story of its connection if that is shown.
    ///
    /// # Errors
    /// The error of `out`, to which a full block goes.
    pub fn add(
        &mut self,
        flow: &Flow,
        story: Option<&Told>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut line = line(self.options, flow);
        line.story = story.map(Told::lines).unwrap_or_default();
        self.widths.fit(&line);
        self.lines.push(line);
        match self.lines.len() >= TABLE_BLOCK_ROWS {
            true => self.flush(out),
            false => Ok(()),
        }
    }

    /// Writes the rows that have not left, after the header.
    ///
    /// # Errors
    /// The error of `out`.
    pub fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        let mut text = String::new();
        if let Some(head) = self.head.take() {
            self.write(&head, "Netid", &mut text);
        }
        for line in std::mem::take(&mut self.lines) {
            self.write(&line, "tcp", &mut text);
        }
        out.write_all(text.as_bytes())
    }

    fn write(&self, line: &Line, kind: &str, out: &mut String) {
        let widths = &self.widths;
        if self.has_kind {
            let width = "Netid".len();
            out.push_str(&format!("{kind:<width$} "));
        }
        if self.has_state {
            let width = widths.state;
            out.push_str(&format!("{:<width$} ", line.state));
        }
        for (cell, width) in line.queues.iter().zip(widths.queues) {
            out.push_str(&format!("{cell:<width$} "));
        }
        for (at, (address, port)) in line.ends.iter().enumerate() {
            let (left, right) = (widths.addresses[at], widths.ports[at]);
            out.push_str(&format!("{address:>left$}:{port:<right$} "));
        }
        out.push_str(&line.notes);
        let kept = out.trim_end().len();
        out.truncate(kept);
        if !line.below.is_empty() {
            let between = match self.options.one_line {
                true => " ",
                false => "\n\t ",
            };
            out.push_str(between);
            out.push_str(&line.below);
        }
        out.push('\n');
        for event in &line.story {
            out.push_str(&format!("\t {event}\n"));
        }
    }
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
