//! A ledger of what both ends of every connection have done. Each end is judged by the other's
//! deeds, and the plan excuses some failures.

use rustix::io::Errno;

use crate::plan::{FlowPlan, Plan};

use super::stream::Name;

/// How an end's part came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All written, all read, and closed.
    Done,
    /// The end left before its peer's end, as its plan says.
    Left,
    /// The end closed with a reset, as its plan says.
    Aborted,
    /// The stack said that the connection failed.
    Failed(Errno),
    /// The end waited for a peer that had gone; the application gave up.
    Abandoned,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// The application asked for it, or got it from a listener.
    pub begun: bool,
    /// The handshake was complete.
    pub connected: bool,
    /// Bytes written.
    pub written: u64,
    /// Nothing more will be written.
    pub shut: bool,
    /// Bytes read.
    pub read: u64,
    /// Its local port; 0 before it is known.
    pub port: u16,
    /// The outcome, once the end is over.
    pub over: Option<Outcome>,
}

/// See the module's documentation.
pub struct Ledger {
    flows: Vec<Vec<[Record; 2]>>,
    begun: usize,
    /// Hosts that answered a SYN with a cookie.
    cookies: Vec<bool>,
}

impl Ledger {
    /// Nothing has begun.
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

    /// A copy of the record of an end that exists.
    #[must_use]
    pub fn look(&self, name: Name, side: usize) -> Record {
        self.flows[name.flow][name.number as usize][side]
    }

    /// An end begins.
    pub fn begin(&mut self, name: Name, side: usize) {
        if let Some(record) = self.record(name, side) {
            record.begun = true;
            self.begun += 1;
        }
    }

    /// An end is over.
    pub fn end(&mut self, name: Name, side: usize, outcome: Outcome) {
        if let Some(record) = self.record(name, side) {
            record.over = Some(outcome);
        }
    }

    /// Ends that have begun.
    #[must_use]
    pub fn begun(&self) -> usize {
        self.begun
    }

    /// A live connection of a flow: the ports of its client's end and its server's, if there is
    /// one.
    #[must_use]
    pub fn live_port(&self, flow: usize) -> Option<u16> {
        let live = |both: &&[Record; 2]| both[0].port != 0 && both[0].over.is_none();
        self.flows[flow].iter().find(live).map(|both| both[0].port)
    }

    /// A host answered a SYN with a cookie.
    pub fn note_cookies(&mut self, host: usize) {
        self.cookies[host] = true;
    }

    /// Whether a host ever did. What arrives out of order before the ACK of a cookie is reset, as
    /// by Linux: nobody knows of a handshake.
    #[must_use]
    pub fn has_sent_cookies(&self, host: usize) -> bool {
        self.cookies[host]
    }

    /// How many ends are over in which way.
    #[must_use]
    pub fn count(&self, is: impl Fn(Outcome) -> bool) -> usize {
        let all = self.flows.iter().flatten().flatten();
        all.filter(|record| record.over.is_some_and(&is)).count()
    }
}

/// Whether the plan and the peer's deeds excuse a failure; otherwise what is wrong with it.
///
/// # Errors
/// The failure that nothing excuses.
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
        // Nobody may be asked for yet: a simultaneous open may come first. And a peer that gave up
        // resets what comes later. A Fast Open's server may be done with it, and its RST overtake
        // its SYN-ACK.
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
