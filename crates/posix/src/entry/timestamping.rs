//! `SO_TIMESTAMPING` and its relatives on one socket, and the stamps that wait in its error queue.

use std::cell::Cell;
use std::collections::VecDeque;

use millstream::{StampKinds, TxStamp};

use crate::number::*;

/// The format of `SO_TIMESTAMP` and its relatives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `struct timeval`, under this option number.
    Timeval(i32),
    /// `struct timespec`, under this option number.
    Timespec(i32),
}

/// The settings of time stamps on a socket, and the stamps that wait in its error queue.
#[derive(Debug, Default)]
pub(crate) struct Timestamping {
    /// `SO_TIMESTAMPING`
    pub flags: Cell<u32>,
    /// True if set as `SO_TIMESTAMPING_NEW`; stamps are then reported under that number.
    pub is_new: Cell<bool>,
    /// `SO_TIMESTAMP` and its relatives.
    pub arrivals: Cell<Option<Format>>,
    /// Stream position of the byte with number 0 (`SOF_TIMESTAMPING_OPT_ID`).
    pub first: Cell<u32>,
    pub ready: VecDeque<TxStamp>,
}

impl Timestamping {
    /// The settings that an accepted connection inherits.
    pub fn inherited(&self) -> Self {
        Self {
            flags: self.flags.clone(),
            is_new: self.is_new.clone(),
            arrivals: self.arrivals.clone(),
            ..Self::default()
        }
    }

    pub fn flags(&self) -> u32 {
        self.flags.get()
    }

    /// True if time stamps of arrivals are set by the option `name`.
    pub fn is_set_as(&self, name: i32) -> bool {
        match self.arrivals.get() {
            Some(Format::Timeval(number) | Format::Timespec(number)) => number == name,
            None => false,
        }
    }

    /// `SO_TIMESTAMP` and its relatives.
    pub fn set_arrivals(&self, name: i32, on: bool) {
        self.arrivals.set(match name {
            _ if !on => None,
            SO_TIMESTAMP | SO_TIMESTAMP_NEW => Some(Format::Timeval(name)),
            _ => Some(Format::Timespec(name)),
        });
    }

    /// True if the stack has to record when bytes arrive.
    pub fn wants_arrivals(&self) -> bool {
        self.arrivals.get().is_some() || self.has(SOF_TIMESTAMPING_RX_SOFTWARE)
    }

    /// True if no stamp waits.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags.get() & flag != 0
    }

    /// The kinds of stamps for the last byte of a send. A control message may have changed them.
    pub fn kinds(&self, changed: Option<u32>) -> StampKinds {
        let asked = match changed {
            Some(flags) => flags,
            None => self.flags.get(),
        };
        let pairs = [
            (asked, SOF_TIMESTAMPING_TX_SCHED, StampKinds::SCHEDULED),
            (asked, SOF_TIMESTAMPING_TX_SOFTWARE, StampKinds::SENT),
            (asked, SOF_TIMESTAMPING_TX_ACK, StampKinds::ACKED),
            (
                self.flags.get(),
                SOF_TIMESTAMPING_OPT_STATS,
                StampKinds::STATS,
            ),
        ];
        let wanted = pairs.iter().filter(|(flags, flag, _)| flags & flag != 0);
        wanted.fold(StampKinds::default(), |all, (_, _, kind)| all | *kind)
    }

    pub fn control_kind(&self) -> i32 {
        match self.is_new.get() {
            true => SO_TIMESTAMPING_NEW,
            false => SO_TIMESTAMPING,
        }
    }
}
