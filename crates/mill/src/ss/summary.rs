//! The counts of `ss -s` that concern TCP, taken while flows are listed: a million flows are not
//! kept.

use millstream::survey::FlowWord;
use serde_json::{Value, json};

use super::source::Flow;

/// Linux's number of the state ESTABLISHED.
const ESTABLISHED: u64 = 1;
/// Linux's number of the state TIME_WAIT.
const TIME_WAIT: u64 = 6;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    all: usize,
    established: usize,
    orphaned: usize,
    waiting: usize,
    v4: usize,
}

impl Summary {
    /// Counts a flow.
    pub fn add(&mut self, flow: &Flow) {
        let state = flow.words.at(FlowWord::State);
        self.all += 1;
        self.established += usize::from(state == ESTABLISHED);
        self.waiting += usize::from(state == TIME_WAIT);
        self.orphaned += usize::from(flow.words.at(FlowWord::IsOrphan) > 0);
        self.v4 += usize::from(flow.words.local().is_ipv4());
    }

    /// The lines of iproute2. Millstream has TCP only: the other rows are there for readers of the
    /// table.
    pub fn text(&self) -> String {
        let Self {
            all,
            established,
            orphaned,
            waiting,
            v4,
        } = self;
        let row = |name: &str| match name {
            "TCP" | "INET" => format!("{name}\t  {all:<9} {v4:<9} {:<9}\n", all - v4),
            _ => format!("{name}\t  {0:<9} {0:<9} {0:<9}\n", 0),
        };
        let rows = ["RAW", "UDP", "TCP", "INET", "FRAG"].map(row).concat();
        format!(
            "Total: {all}\nTCP:   {all} (estab {established}, closed 0, orphaned {orphaned}, \
             timewait {waiting})\n\nTransport Total     IP        IPv6\n{rows}"
        )
    }

    /// The same counts.
    pub fn json(&self) -> Value {
        json!({
            "total": self.all,
            "established": self.established,
            "orphaned": self.orphaned,
            "time_wait": self.waiting,
            "ipv4": self.v4,
            "ipv6": self.all - self.v4,
        })
    }
}
