//! Inspection of a stack after every turn. Windows and timers must stay within the RFCs' limits,
//! and everything that waits needs a timer.

use stack::Stack;
use wire::FlowKey;

use super::plan::Plan;

/// Most connections that are inspected after a turn. Tables fill their low places first.
const CONNECTIONS_MAX: usize = 24;
/// Segments allowed beyond the congestion window: limited transmit (two, RFC 3042) and a tail loss
/// probe (one, RFC 8985 7).
const ALLOWANCE: u32 = 3;
/// Most new segments in a row while more is in flight than a shrunk window allows. Each must be a
/// tail loss probe.
const PROBES_MAX: u32 = 4;
/// Highest `ca_state` in which the window is not being reduced: open (0) or disorder (1).
const CALM_STATES_MAX: u8 = 1;

/// See the module's documentation.
pub struct Inspection {
    tcp: tcp::Config,
    /// Congestion windows before the turn, by connection.
    before: Vec<(FlowKey, u32)>,
    /// Connections that sent a new segment although more than the window was in flight, and how
    /// many times in a row.
    probing: Vec<(FlowKey, u32)>,
}

impl Inspection {
    /// An inspection for host `number` of a plan.
    #[must_use]
    pub fn new(plan: &Plan, number: usize) -> Self {
        Self {
            tcp: plan.hosts[number].tcp.clone(),
            before: Vec::new(),
            probing: Vec::new(),
        }
    }

    /// Notes the windows at the begin of a turn.
    pub fn before(&mut self, stack: &Stack) {
        self.before.clear();
        let windows = stack
            .connections()
            .take(CONNECTIONS_MAX)
            .map(|(key, conn)| (key, conn.info().snd_cwnd));
        self.before.extend(windows);
    }

    /// Inspects the connections after a turn in which those in `sent` sent new data.
    ///
    /// # Errors
    /// A value outside its limits.
    pub fn after(&mut self, stack: &Stack, sent: &[FlowKey]) -> Result<(), String> {
        for (key, conn) in stack.connections().take(CONNECTIONS_MAX) {
            let info = conn.info();
            let complain = |what: &str| Err(format!("{key:?}: {what}: {info:?}"));
            if info.snd_cwnd < 1 {
                return complain("no congestion window");
            }
            if info.snd_ssthresh < 2 {
                return complain("ssthresh below two segments");
            }
            if info.rto_ns > self.tcp.rto_ns_max {
                return complain("RTO above its maximum");
            }
            if info.rto_ns < self.tcp.rto_ns_min.min(self.tcp.rto_initial_ns) {
                return complain("RTO below its minimum");
            }
            if info.unacked > 0 && conn.deadline_ns() == u64::MAX && !stack.has_output() {
                return complain("segments in flight and no timer");
            }
            let news = sent.iter().filter(|other| **other == key).count();
            if news > 0 && !self.is_within_window(&key, &info, news) {
                return complain("more in flight than the congestion window allows");
            }
        }
        Ok(())
    }

    /// Whether `news` new segments were allowed to leave.
    fn is_within_window(&mut self, key: &FlowKey, info: &tcp::Info, news: usize) -> bool {
        let left = info.sacked.saturating_add(info.lost);
        let in_flight = info
            .unacked
            .saturating_add(info.retrans)
            .saturating_sub(left);
        let before = self.before.iter().find(|(other, _)| other == key);
        let Some((_, before)) = before.filter(|_| info.ca_state <= CALM_STATES_MAX) else {
            return true;
        };
        let place = self.probing.iter().position(|(other, _)| other == key);
        if in_flight <= info.snd_cwnd.max(*before) + ALLOWANCE {
            place.map(|place| self.probing.swap_remove(place));
            return true;
        }
        let probes = match place {
            Some(place) => &mut self.probing[place].1,
            None => {
                self.probing.push((*key, 0));
                let last = self.probing.len() - 1;
                &mut self.probing[last].1
            }
        };
        *probes += 1;
        news == 1 && *probes <= PROBES_MAX
    }

    /// Checks at the world's end that nothing still waits to be sent or acknowledged, as it would
    /// never arrive.
    ///
    /// # Errors
    /// A connection with data that waits.
    pub fn nothing_waits(&self, stack: &Stack) -> Result<(), String> {
        for (key, conn) in stack.connections() {
            let info = conn.info();
            if info.unacked > 0 || info.notsent_bytes > 0 {
                return Err(format!("{key:?} sticks: {info:?}"));
            }
        }
        Ok(())
    }
}
