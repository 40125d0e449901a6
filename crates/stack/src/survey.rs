//! A walk over all flows of a stack: connections, listeners, handshakes in progress and compact
//! entries. It serves readers outside the data path (`mill ss`).
//!
//! The walk stops after a bounded number of looks and continues there. Flows may come and go
//! between two steps. A flow that lives through the whole walk is seen once, unless it becomes a
//! compact entry meanwhile. Packed connections stay packed.

mod entry_story;
pub mod request;
pub mod story;
mod words;

use std::net::SocketAddr;

use ring::socket_block::SocketId;
use tcp::info::PendingTimer;
use tcp::{CongestionAlgorithm, Connection, Effects, Info, State};
use wire::{Addr, FlowKey};

use crate::config::StackConfig;
use crate::context::socket_addr;
use crate::effects::apply_effects;
use crate::engine::{Engine, Parts, remove_half_open};
use crate::flows::Flows;
use crate::flows::flow_table::FlowEntry;
use crate::limits::SURVEY_LOOKS_PER_ROW;
use crate::network::layer::Network;

pub use self::words::{FLOW_WORDS, FlowWord, FlowWords};

/// The position of a walk; the default is the first flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SurveyCursor {
    table: Table,
    next: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Table {
    #[default]
    Listeners,
    Sockets,
    HalfOpens,
    TimeWaits,
    Over,
}

impl Table {
    const fn after(self) -> Self {
        match self {
            Self::Listeners => Self::Sockets,
            Self::Sockets => Self::HalfOpens,
            Self::HalfOpens => Self::TimeWaits,
            Self::TimeWaits | Self::Over => Self::Over,
        }
    }
}

/// The entry of a flow in its table, which identifies the flow while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurveyId {
    /// A connection's socket.
    Connection(SocketId),
    /// A listener's socket.
    Listener(SocketId),
    /// A handshake in progress.
    HalfOpen(u32),
    /// A compact entry in TIME_WAIT or FIN_WAIT_2.
    Entry(u32),
}

/// A timer that a flow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurveyTimer {
    /// The timer's purpose.
    pub kind: SurveyTimerKind,
    /// Remaining time, ns.
    pub left_ns: u64,
    /// Number of consecutive expiries without success.
    pub tries: u8,
}

/// The purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurveyTimerKind {
    /// Retransmits.
    Retransmit,
    /// Probes a silent peer, or ends an orphan in FIN_WAIT_2.
    KeepAlive,
    /// Removes an entry in TIME_WAIT.
    TimeWait,
    /// Probes a closed window.
    Persist,
}

/// One flow or listener, of fixed size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyRow {
    /// The flow's identity, for [`Stack::kill_flow`](crate::Stack::kill_flow).
    pub flow: SurveyId,
    /// The flow's state; `None` for a listener. A handshake in progress is in SYN_RECEIVED.
    pub state: Option<State>,
    /// Our end; unspecified for a listener at all addresses.
    pub local: SocketAddr,
    /// The peer; for a listener unspecified, with port 0.
    pub remote: SocketAddr,
    /// Unread bytes; for a listener, connections to be accepted.
    pub recv_queue: u32,
    /// Unacknowledged bytes; for a listener, the backlog.
    pub send_queue: u32,
    /// Bytes that the receive buffer may hold.
    pub recv_buffer: u32,
    /// Bytes that the send buffer may hold.
    pub send_buffer: u32,
    /// Path MTU to the peer; 0 without a connection.
    pub path_mtu: u32,
    /// The timer that expires first, apart from delayed ACKs.
    pub timer: Option<SurveyTimer>,
    /// True if the application has closed the socket.
    pub is_orphan: bool,
    /// The congestion control algorithm.
    pub congestion: Option<CongestionAlgorithm>,
    /// State of a connection, like `tcp_info`; `None` for other flows.
    pub info: Option<Info>,
}

/// Passes the next flows to `sink`, at most `rows`. False: there are no more.
pub(crate) fn survey(
    flows: &Flows,
    network: &Network,
    config: &StackConfig,
    now_ns: u64,
    cursor: &mut SurveyCursor,
    rows: usize,
    sink: &mut dyn FnMut(SurveyRow),
) -> bool {
    let (mut given, mut looks) = (0, rows.saturating_mul(SURVEY_LOOKS_PER_ROW));
    while given < rows && looks > 0 {
        let span = match cursor.table {
            Table::Listeners => flows.listeners().span(),
            Table::Sockets => flows.sockets().span(),
            Table::HalfOpens => flows.half_opens().span(),
            Table::TimeWaits => flows.time_waits().span(),
            Table::Over => return false,
        };
        if cursor.next >= span {
            (cursor.table, cursor.next) = (cursor.table.after(), 0);
            continue;
        }
        let row = match cursor.table {
            Table::Listeners => listener_row(flows, config, cursor.next),
            Table::Sockets => connection_row(&config.tcp, flows, network, now_ns, cursor.next),
            Table::HalfOpens => half_open_row(flows, now_ns, cursor.next),
            Table::TimeWaits => entry_row(flows, now_ns, cursor.next),
            Table::Over => None,
        };
        cursor.next += 1;
        looks -= 1;
        if let Some(row) = row {
            sink(row);
            given += 1;
        }
    }
    true
}

fn listener_row(flows: &Flows, config: &StackConfig, index: u32) -> Option<SurveyRow> {
    let listener = flows.listeners().by_index(index)?;
    let address = listener.address();
    let any = match address.is_v4() {
        true => Addr::UNSPECIFIED_V4,
        false => Addr::UNSPECIFIED_V6,
    };
    let waiting = listener.queue.waiting().count();
    Some(SurveyRow {
        flow: SurveyId::Listener(listener.socket),
        state: None,
        local: socket_addr(address, listener.port()),
        remote: socket_addr(any, 0),
        recv_queue: u32::try_from(waiting).unwrap_or(u32::MAX),
        send_queue: listener.queue.backlog,
        recv_buffer: config.tcp.recv_buffer.bytes_default,
        send_buffer: config.tcp.send_buffer.bytes_default,
        path_mtu: 0,
        timer: None,
        is_orphan: false,
        congestion: listener.congestion.or(Some(config.tcp.congestion)),
        info: None,
    })
}

fn connection_row(
    tcp: &tcp::Config,
    flows: &Flows,
    network: &Network,
    now_ns: u64,
    socket: u32,
) -> Option<SurveyRow> {
    flows.sockets().look_at(socket, |slot, block| {
        let conn = slot.conn.as_ref()?;
        let info = conn.info_at(now_ns);
        let index = socket;
        let generation = block.generation();
        Some(SurveyRow {
            flow: SurveyId::Connection(SocketId { index, generation }),
            state: Some(conn.state()),
            local: socket_addr(slot.key.local, slot.key.local_port),
            remote: socket_addr(slot.key.remote, slot.key.remote_port),
            recv_queue: slot.rx.unread(block),
            send_queue: slot.tx.buffered(block),
            recv_buffer: conn.recv_buffer(),
            send_buffer: conn.send_buffer(),
            path_mtu: network.path_mtu(&info, slot.key.local),
            timer: timer_of(conn, &info, now_ns),
            is_orphan: slot.app_gone,
            congestion: Some(conn.congestion(tcp)),
            info: Some(info),
        })
    })
}

fn half_open_row(flows: &Flows, now_ns: u64, index: u32) -> Option<SurveyRow> {
    let slot = flows.half_opens().at(index)?;
    let timer = SurveyTimer {
        kind: SurveyTimerKind::Retransmit,
        left_ns: slot.entry.deadline_ns().saturating_sub(now_ns),
        tries: slot.entry.retransmits(),
    };
    let row = entry(
        SurveyId::HalfOpen(index),
        State::SynReceived,
        &slot.key,
        timer,
    );
    Some(row)
}

fn entry_row(flows: &Flows, now_ns: u64, index: u32) -> Option<SurveyRow> {
    let slot = flows.time_waits().at(index)?;
    let (state, kind) = match slot.entry.is_fin_wait_2() {
        true => (State::FinWait2, SurveyTimerKind::KeepAlive),
        false => (State::TimeWait, SurveyTimerKind::TimeWait),
    };
    let left_ns = slot.entry.deadline_ns().saturating_sub(now_ns);
    let timer = SurveyTimer {
        kind,
        left_ns,
        tries: 0,
    };
    Some(entry(SurveyId::Entry(index), state, &slot.key, timer))
}

/// Ends the flow that a walk found, if it is still there. A connection is reset, and its
/// application gets `ECONNABORTED` (Linux's `tcp_abort`). Compact entries are removed silently.
/// Listeners stay.
pub(crate) fn kill_flow(engine: &mut Engine, flow: SurveyId, key: &FlowKey) -> bool {
    let parts = engine.parts();
    match flow {
        SurveyId::Listener(_) => false,
        SurveyId::Connection(id) => match parts.flows.resolve(id) {
            Some(socket) if parts.flows.sockets().is_of(socket, key) => abort_flow(engine, socket),
            _ => false,
        },
        SurveyId::HalfOpen(index) => {
            let held = parts.flows.holds(FlowEntry::HalfOpen(index), key);
            if held {
                remove_half_open(parts.flows, parts.schedule, index);
            }
            held
        }
        SurveyId::Entry(index) => {
            let held = parts.flows.holds(FlowEntry::TimeWait(index), key);
            if held {
                parts.flows.remove_time_wait(index);
            }
            held
        }
    }
}

fn abort_flow(engine: &mut Engine, socket: u32) -> bool {
    let Parts { env, flows, .. } = engine.parts();
    let Some(conn) = flows.slot(socket).live_mut() else {
        return false;
    };
    // `abort` does not report the failure to the application, because usually the application
    // itself asks for it.
    let effects = conn.abort(&mut env.cx()) | Effects::FAILED;
    apply_effects(engine, socket, effects);
    true
}

/// The row of a handshake in progress or compact entry, which has no buffers.
fn entry(flow: SurveyId, state: State, key: &FlowKey, timer: SurveyTimer) -> SurveyRow {
    SurveyRow {
        flow,
        state: Some(state),
        local: socket_addr(key.local, key.local_port),
        remote: socket_addr(key.remote, key.remote_port),
        recv_queue: 0,
        send_queue: 0,
        recv_buffer: 0,
        send_buffer: 0,
        path_mtu: 0,
        timer: Some(timer),
        is_orphan: matches!(flow, SurveyId::Entry(_)),
        congestion: None,
        info: None,
    }
}

fn timer_of(conn: &Connection, info: &Info, now_ns: u64) -> Option<SurveyTimer> {
    let (pending, at_ns) = conn.pending_timer()?;
    let kind = match pending {
        PendingTimer::Retransmit => SurveyTimerKind::Retransmit,
        PendingTimer::Persist => SurveyTimerKind::Persist,
        PendingTimer::KeepAlive => SurveyTimerKind::KeepAlive,
        PendingTimer::TimeWait => SurveyTimerKind::TimeWait,
    };
    let left_ns = at_ns.saturating_sub(now_ns);
    let tries = match kind {
        SurveyTimerKind::Retransmit => info.retransmits,
        _ => info.probes,
    };
    Some(SurveyTimer {
        kind,
        left_ns,
        tries,
    })
}
