//! A ledger of the deeds of both ends of every connection. Each end is judged by the other's deeds
//! and by the plan, which excuses some failures.

use rustix::io::Errno;

use crate::plan::{FlowPlan, Plan};

use super::stream::Name;

/// The outcome of an end's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The end wrote and read everything, and closed.
    Done,
    /// The end left before its peer's end, as its plan says.
    Left,
    /// The end closed with a reset, as its plan says.
    Aborted,
    /// The stack reported that the connection failed.
    Failed(Errno),
    /// The end waited for a peer that had gone; the application gave up.
    Abandoned,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// The application asked for this connection, or got it from a listener.
    pub begun: bool,
    /// The handshake was complete.
    pub connected: bool,
    /// Bytes written.
    pub written: u64,
    /// Nothing more will be written.
    pub shut: bool,
    /// Bytes read.
    pub read: u64,
    /// The end's local port; 0 before it is known.
    pub port: u16,
    /// The outcome, once the end is over.
    pub over: Option<Outcome>,
}

/// See the module's documentation.
pub struct Ledger {
    flows: Vec<Vec<[Record; 2]>>,
    begun: usize,
    /// For each host, whether it answered a SYN with a cookie.
    cookies: Vec<bool>,
}

impl Ledger {
    /// A ledger in which nothing has begun.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let records = |flow: &FlowPlan| vec![[Record::default(); 2]; flow.count as usize];
        Self {
            flows: plan.flows.iter().map(records).collect(),
            begun: 0,
            cookies: vec![false; plan.hosts.len()],
        }
    }

    /// The record of an end; `None` for a name that the plan does not know.
    pub fn record(&mut self, name: Name, side: usize) -> Option<&mut Record> {
        let both = self
            .flows
            .get_mut(name.flow)?
            .get_mut(name.number as usize)?;
        both.get_mut(side)
    }

    /// A copy of an existing end's record.
    #[must_use]
    pub fn look(&self, name: Name, side: usize) -> Record {
        self.flows[name.flow][name.number as usize][side]
    }

    /// Records that an end has begun.
    pub fn begin(&mut self, name: Name, side: usize) {
        if let Some(record) = self.record(name, side) {
            record.begun = true;
            self.begun += 1;
        }
    }

    /// Records the outcome of an end.
    pub fn end(&mut self, name: Name, side: usize, outcome: Outcome) {
        if let Some(record) = self.record(name, side) {
            record.over = Some(outcome);
        }
    }

    /// Number of ends that have begun.
    #[must_use]
    pub fn begun(&self) -> usize {
        self.begun
    }

    /// The client's port on a live connection of a flow, if there is one.
    #[must_use]
    pub fn live_port(&self, flow: usize) -> Option<u16> {
        let live = |both: &&[Record; 2]| both[0].port != 0 && both[0].over.is_none();
        self.flows[flow].iter().find(live).map(|both| both[0].port)
    }

    /// Records that a host answered a SYN with a cookie.
    pub fn note_cookies(&mut self, host: usize) {
        self.cookies[host] = true;
    }

    /// Whether a host ever answered a SYN with a cookie. Segments that arrive before the ACK of a
    /// cookie are then reset, as by Linux, since no handshake is known.
    #[must_use]
    pub fn has_sent_cookies(&self, host: usize) -> bool {
        self.cookies[host]
    }

    /// Number of ends whose outcome satisfies `is`.
    #[must_use]
    pub fn count(&self, is: impl Fn(Outcome) -> bool) -> usize {
        let all = self.flows.iter().flatten().flatten();
        all.filter(|record| record.over.is_some_and(&is)).count()
    }
}

/// Accepts a failure that the plan or the peer's deeds excuse.
///
/// # Errors
/// A failure that nothing excuses, with its description.
pub fn judge(
    plan: &Plan,
    ledger: &Ledger,
    name: Name,
    side: usize,
    errno: Errno,
) -> Result<(), String> {
    let flow = &plan.flows[name.flow];
    let (own, peer) = (ledger.look(name, side), ledger.look(name, 1 - side));
    let strain = plan.strain;
    let peer_gone = matches!(peer.over, Some(outcome) if outcome != Outcome::Done);
    let excused = match errno {
        Errno::TIMEDOUT => strain.may_time_out,
        // In a simultaneous open no listener may exist yet. With Fast Open the server may be done,
        // or its peer may have given up, and the RST overtakes the SYN-ACK.
        Errno::CONNREFUSED => {
            flow.simultaneous || (flow.fast_open && (peer_gone || flow.may_reset()))
        }
        Errno::CONNRESET | Errno::PIPE => {
            flow.may_reset()
                || peer_gone
                || strain.may_time_out
                || strain.scarce
                || flow.simultaneous
                || ledger.has_sent_cookies(flow.server)
        }
        Errno::HOSTUNREACH => strain.lossy && (!own.connected || strain.may_time_out),
        Errno::NOBUFS | Errno::ADDRNOTAVAIL | Errno::AGAIN => strain.scarce,
        _ => false,
    };
    if excused {
        return Ok(());
    }
    Err(format!(
        "connection {} of flow {}: end {side} failed with {errno:?}, which nothing excuses; own {own:?}, peer {peer:?}",
        name.number, name.flow
    ))
}
