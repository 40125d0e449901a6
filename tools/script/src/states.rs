//! The state table of RFC 9293 section 3.10.7 as scripts: each kind of segment arrives in each
//! state. Nothing is expected.
//!
//! The kernel is the oracle (`cargo xtask script --compare --states`). Our stack's answers stand in
//! `tests/states.txt`, so that `tests/states.rs` notices every change.

/// A cell of the table.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The state and the segment that arrives in it: `established/rst_in_window`.
    pub name: String,
    /// The script that leads to the state and sends the segment.
    pub text: String,
    /// When the segment arrives, in milliseconds.
    pub arrives_ms: u32,
}

/// A state, and the steps that lead to it.
struct State {
    name: &'static str,
    steps: &'static [&'static [&'static str]],
    /// The descriptor of the connection.
    fd: u32,
    /// SND.UNA, SND.NXT and RCV.NXT, relative to the initial numbers.
    una: u32,
    sent: u32,
    next: u32,
}

const LISTEN: &[&str] = &["+0 bind(3, ..., ...) = 0", "+0 listen(3, 1) = 0"];
const CONNECT: &[&str] = &["+0 connect(3, ..., ...) = -1 EINPROGRESS"];
const SYN: &[&str] = &["+.01 < S 0:0(0) win 30000 <mss 1000,nop,wscale 0>"];
const ACCEPT: &[&str] = &[
    "+.01 < . 1:1(0) ack 1 win 30000",
    "+0 accept(3, ..., ...) = 4",
    "+0 fcntl(4, F_SETFL, O_RDWR|O_NONBLOCK) = 0",
];
const SHUT: &[&str] = &["+0 shutdown(4, SHUT_WR) = 0"];
/// Shuts down after the ACK of the peer's FIN, which a kernel delays for a tick of its clock.
const SHUT_LATER: &[&str] = &["+.01 shutdown(4, SHUT_WR) = 0"];
const CLOSE: &[&str] = &["+0 close(4) = 0"];
const ACK_OF_FIN: &[&str] = &["+.01 < . 1:1(0) ack 2 win 30000"];
const FIN: &[&str] = &["+.01 < F. 1:1(0) ack 1 win 30000"];
const FIN_AFTER_OURS: &[&str] = &["+.01 < F. 1:1(0) ack 2 win 30000"];
/// An ACK of our FIN, from a peer that has sent its own.
const ACK_OF_BOTH: &[&str] = &["+.01 < . 2:2(0) ack 2 win 30000"];
const WRITE: &[&str] = &["+0 write(4, ..., 100) = 100"];
const CLOSE_LATER: &[&str] = &["+.01 close(4) = 0"];
const SYN_ACK: &[&str] = &["+.01 < S. 0:0(0) ack 1 win 30000 <mss 1000,nop,wscale 0>"];
/// A listener that hands over only connections on which data arrived.
const DEFER: &[&str] = &["+0 setsockopt(3, SOL_TCP, TCP_DEFER_ACCEPT, [5], 4) = 0"];
const ACK: &[&str] = &["+.01 < . 1:1(0) ack 1 win 30000"];
/// A listener that accepts data in SYNs, even without a cookie.
const FAST: &[&str] = &[
    "+0 `sysctl -q net.ipv4.tcp_fastopen=0x602`",
    "+0 bind(3, ..., ...) = 0",
    "+0 listen(3, 5) = 0",
];
const SYN_WITH_DATA: &[&str] = &[
    "+.01 < S 0:100(100) win 30000 <mss 1000,nop,wscale 0>",
    "+.01 accept(3, ..., ...) = 4",
    "+0 fcntl(4, F_SETFL, O_RDWR|O_NONBLOCK) = 0",
];

const fn state(
    name: &'static str,
    steps: &'static [&'static [&'static str]],
    fd: u32,
    [una, sent, next]: [u32; 3],
) -> State {
    State {
        name,
        steps,
        fd,
        una,
        sent,
        next,
    }
}

const STATES: [State; 24] = [
    state("listen", &[LISTEN], 3, [1, 1, 1]),
    state("syn_sent", &[CONNECT], 3, [0, 1, 1]),
    state("syn_received", &[LISTEN, SYN], 3, [0, 1, 1]),
    state("syn_crossed", &[CONNECT, SYN], 3, [0, 1, 1]),
    state("established", &[LISTEN, SYN, ACCEPT], 4, [1, 1, 1]),
    state("fin_wait_1", &[LISTEN, SYN, ACCEPT, SHUT], 4, [1, 2, 1]),
    state(
        "fin_wait_2",
        &[LISTEN, SYN, ACCEPT, SHUT, ACK_OF_FIN],
        4,
        [2, 2, 1],
    ),
    state("close_wait", &[LISTEN, SYN, ACCEPT, FIN], 4, [1, 1, 2]),
    state("closing", &[LISTEN, SYN, ACCEPT, SHUT, FIN], 4, [1, 2, 2]),
    state(
        "last_ack",
        &[LISTEN, SYN, ACCEPT, FIN, SHUT_LATER],
        4,
        [1, 2, 2],
    ),
    state(
        "time_wait",
        &[LISTEN, SYN, ACCEPT, SHUT, ACK_OF_FIN, FIN_AFTER_OURS],
        4,
        [2, 2, 2],
    ),
    state(
        "orphan_fin_wait_1",
        &[LISTEN, SYN, ACCEPT, CLOSE],
        4,
        [1, 2, 1],
    ),
    state(
        "orphan_fin_wait_2",
        &[LISTEN, SYN, ACCEPT, CLOSE, ACK_OF_FIN],
        4,
        [2, 2, 1],
    ),
    state("connected", &[CONNECT, SYN_ACK], 3, [1, 1, 1]),
    state("in_flight", &[LISTEN, SYN, ACCEPT, WRITE], 4, [1, 101, 1]),
    state(
        "fin_wait_1_in_flight",
        &[LISTEN, SYN, ACCEPT, WRITE, SHUT],
        4,
        [1, 102, 1],
    ),
    state(
        "close_wait_in_flight",
        &[LISTEN, SYN, ACCEPT, WRITE, FIN],
        4,
        [1, 101, 2],
    ),
    state(
        "syn_received_deferred",
        &[DEFER, LISTEN, SYN, ACK],
        3,
        [1, 1, 1],
    ),
    state("syn_received_fast", &[FAST, SYN_WITH_DATA], 4, [0, 1, 101]),
    state(
        "syn_received_fast_closed",
        &[FAST, SYN_WITH_DATA, SHUT],
        4,
        [0, 2, 101],
    ),
    state(
        "orphan_closing",
        &[LISTEN, SYN, ACCEPT, CLOSE, FIN],
        4,
        [1, 2, 2],
    ),
    state(
        "orphan_last_ack",
        &[LISTEN, SYN, ACCEPT, FIN, CLOSE_LATER],
        4,
        [1, 2, 2],
    ),
    state(
        "orphan_time_wait",
        &[LISTEN, SYN, ACCEPT, CLOSE, ACK_OF_FIN, FIN_AFTER_OURS],
        4,
        [2, 2, 2],
    ),
    state(
        "time_wait_after_closing",
        &[LISTEN, SYN, ACCEPT, SHUT, FIN, ACK_OF_BOTH],
        4,
        [2, 2, 2],
    ),
];

/// A kind of segment: its flags, sequence number, length, ACK number and window. `off` is the
/// sequence number's distance from RCV.NXT.
struct Kind {
    name: &'static str,
    flags: &'static str,
    off: i64,
    len: u32,
    ack: Ack,
    window: u32,
    urgent: u32,
}

/// ACK number of a segment.
enum Ack {
    /// No ACK flag.
    None,
    /// Distance from SND.UNA.
    Una(i64),
    /// Distance from SND.NXT.
    Next(i64),
}

use Ack::{Next, None as No, Una};

const fn kind(name: &'static str, flags: &'static str, off: i64, len: u32, ack: Ack) -> Kind {
    Kind {
        name,
        flags,
        off,
        len,
        ack,
        window: 30_000,
        urgent: 0,
    }
}

/// Pauses between two segments of the peer, and before the cell's own segment.
const STEP_MS: u32 = 10;
const PAUSE_MS: u32 = 20;

/// A distance beyond any window.
const FAR: i64 = 4_000_000;

/// The window that our SYN offers.
const WINDOW: i64 = 65_535;

const KINDS: [Kind; 76] = [
    kind("rst_at_rcv_nxt", "R", 0, 0, No),
    kind("rst_ack_at_rcv_nxt", "R.", 0, 0, Next(0)),
    kind("rst_ack_of_something_else", "R.", 0, 0, Next(100)),
    kind("rst_in_window", "R", 100, 0, No),
    kind("rst_beyond_window", "R", FAR, 0, No),
    kind("rst_old", "R", -1, 0, No),
    kind("syn_at_rcv_nxt", "S", 0, 0, No),
    kind("syn_again", "S", -1, 0, No),
    kind("syn_in_window", "S", 500, 0, No),
    kind("syn_far", "S", FAR, 0, No),
    kind("syn_ack", "S.", -1, 0, Next(0)),
    kind("syn_ack_of_something_else", "S.", -1, 0, Next(100)),
    kind("syn_fin", "FS", 0, 0, No),
    kind("ack", ".", 0, 0, Next(0)),
    kind("ack_again", ".", 0, 0, Una(0)),
    kind("ack_beyond_snd_nxt", ".", 0, 0, Next(100)),
    kind("ack_old", ".", 0, 0, Una(-1)),
    kind("ack_very_old", ".", 0, 0, Una(-100_000)),
    kind("ack_with_old_number", ".", -1, 0, Next(0)),
    kind("ack_beyond_window", ".", FAR, 0, Next(0)),
    Kind {
        window: 0,
        ..kind("ack_with_window_zero", ".", 0, 0, Next(0))
    },
    kind("nothing", "-", 0, 0, No),
    kind("data_without_ack", "-", 0, 100, No),
    kind("data", "P.", 0, 100, Next(0)),
    kind("data_again", "P.", -1, 1, Next(0)),
    kind("data_overlapping", "P.", -1, 101, Next(0)),
    kind("data_ahead", "P.", 100, 100, Next(0)),
    kind("data_beyond_window", "P.", FAR, 100, Next(0)),
    kind("data_with_ack_beyond", "P.", 0, 100, Next(100)),
    kind("fin", "F.", 0, 0, Next(0)),
    kind("fin_with_data", "FP.", 0, 100, Next(0)),
    kind("fin_without_ack", "F", 0, 0, No),
    kind("fin_ahead", "F.", 100, 0, Next(0)),
    kind("fin_again", "F.", -1, 0, Next(0)),
    kind("rst_with_data", "R", 0, 100, No),
    kind("rst_at_the_edge", "R", WINDOW, 0, No),
    kind("rst_before_the_edge", "R", WINDOW - 1, 0, No),
    kind("rst_with_old_data", "R", -1, 100, No),
    kind("rst_ack_in_window", "R.", 100, 0, Next(0)),
    kind("rst_ack_old", "R.", -1, 0, Next(0)),
    kind("rst_ack_of_old", "R.", 0, 0, Una(-1)),
    kind("rst_fin", "FR", 0, 0, No),
    kind("syn_with_data", "S", 0, 100, No),
    kind("syn_again_with_data", "S", -1, 100, No),
    kind("syn_in_window_with_data", "S", 500, 100, No),
    kind("syn_ack_with_data", "S.", -1, 100, Next(0)),
    kind("syn_ack_at_rcv_nxt", "S.", 0, 0, Next(0)),
    kind("syn_ack_in_window", "S.", 500, 0, Next(0)),
    kind("syn_ack_far", "S.", FAR, 0, Next(0)),
    kind("syn_ack_of_old", "S.", -1, 0, Una(-1)),
    kind("syn_ack_with_fin", "FS.", -1, 0, Next(0)),
    kind("syn_rst", "SR", 0, 0, No),
    kind("all_flags", "FSRPU.", 0, 0, Next(0)),
    kind("ack_of_a_part", ".", 0, 0, Una(50)),
    kind("ack_at_the_edge", ".", WINDOW, 0, Next(0)),
    kind("ack_ahead", ".", 500, 0, Next(0)),
    kind("ack_beyond_with_old_number", ".", -1, 0, Next(100)),
    kind("ack_far_beyond", ".", 0, 0, Next(2_000_000_000)),
    kind("ack_with_marks", "EW.", 0, 0, Next(0)),
    kind("push_alone", "P.", 0, 0, Next(0)),
    kind("data_and_nothing", "-", 0, 100, No),
    kind("data_of_a_part", "P.", 0, 100, Una(50)),
    kind("data_with_old_ack", "P.", 0, 100, Una(-1)),
    kind("data_with_very_old_ack", "P.", 0, 100, Una(-100_000)),
    kind("data_up_to_the_edge", "P.", WINDOW - 100, 100, Next(0)),
    kind("data_over_the_edge", "P.", WINDOW - 99, 100, Next(0)),
    kind("data_at_the_edge", "P.", WINDOW, 100, Next(0)),
    Kind {
        urgent: 50,
        ..kind("data_urgent", "PU.", 0, 100, Next(0))
    },
    kind("fin_beyond_window", "F.", FAR, 0, Next(0)),
    kind("fin_at_the_edge", "F.", WINDOW, 0, Next(0)),
    kind("fin_with_data_ahead", "FP.", 100, 100, Next(0)),
    kind("fin_with_data_again", "FP.", -1, 101, Next(0)),
    kind(
        "fin_with_data_over_the_edge",
        "FP.",
        WINDOW - 99,
        100,
        Next(0),
    ),
    kind("fin_with_ack_of_old", "F.", 0, 0, Una(0)),
    kind("fin_with_ack_beyond", "F.", 0, 0, Next(100)),
    kind("fin_with_very_old_ack", "F.", 0, 0, Una(-100_000)),
];

/// All cells, state by state.
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for state in &STATES {
        for kind in &KINDS {
            cells.push(Cell {
                name: format!("{}/{}", state.name, kind.name),
                text: state.script(kind),
                arrives_ms: state.reached_ms() + PAUSE_MS,
            });
        }
    }
    cells
}

impl State {
    /// Duration of the steps into the state, in ms.
    fn reached_ms(&self) -> u32 {
        let lines = self.steps.concat();
        let waits = lines.iter().filter(|line| line.starts_with("+.01"));
        waits.count() as u32 * STEP_MS
    }

    /// The script of a cell: the steps, the segment, and later the questions of the application.
    fn script(&self, kind: &Kind) -> String {
        let mut lines = vec![
            // The peer's SYN has neither option, so ours leaves both out. They are not the subject
            // here.
            "`sysctl -q net.ipv4.tcp_timestamps=0 net.ipv4.tcp_sack=0`".to_owned(),
            "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3".to_owned(),
            "+0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0".to_owned(),
        ];
        lines.extend(self.steps.concat().iter().map(|line| (*line).to_owned()));
        lines.push(format!("+.02 {}", self.segment(kind)));
        lines.extend(self.questions());
        lines.push(String::new());
        lines.join("\n")
    }

    fn segment(&self, kind: &Kind) -> String {
        let at = |from: u32, off: i64| i64::from(from).wrapping_add(off) as u32;
        let seq = at(self.next, kind.off);
        let end = seq.wrapping_add(kind.len);
        let ack = match kind.ack {
            No => String::new(),
            Una(off) => format!(" ack {}", at(self.una, off)),
            Next(off) => format!(" ack {}", at(self.sent, off)),
        };
        let options = match kind.flags.contains('S') {
            true => " <mss 1000,nop,wscale 0>",
            false => "",
        };
        let urgent = match kind.urgent {
            0 => String::new(),
            pointer => format!(" urg {pointer}"),
        };
        format!(
            "< {} {seq}:{end}({}){ack} win {}{urgent}{options}",
            kind.flags, kind.len, kind.window
        )
    }

    /// Questions about the result, asked before any timer of the connection fires.
    fn questions(&self) -> Vec<String> {
        let fd = self.fd;
        let mut lines = Vec::new();
        if matches!(
            self.name,
            "listen" | "syn_received" | "syn_received_deferred"
        ) {
            lines.push("+.1 accept(3, ..., ...) = 4".to_owned());
            lines.push("+0 fcntl(4, F_SETFL, O_RDWR|O_NONBLOCK) = 0".to_owned());
            lines.push("+0 read(4, ..., 1000) = 0".to_owned());
            return lines;
        }
        if self.name.starts_with("orphan") {
            // Tests whether the connection still exists: an old segment gets an ACK, or else a RST.
            lines.push("+.5 < . 0:0(0) ack 2 win 30000".to_owned());
            lines.push("+.01 getsockopt(3, SOL_SOCKET, SO_ERROR, [0], [4]) = 0".to_owned());
            return lines;
        }
        lines.push("+.1 %{ print(tcpi_state, tcpi_bytes_received) }%".to_owned());
        lines.push(format!("+0 read({fd}, ..., 1000) = 0"));
        lines.push(format!("+0 write({fd}, ..., 10) = 10"));
        lines.push(format!(
            "+.02 getsockopt({fd}, SOL_SOCKET, SO_ERROR, [0], [4]) = 0"
        ));
        lines
    }
}
