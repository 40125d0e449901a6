//! Drop counters of a kernel interface, from `/proc/net/dev`.
//!
//! The open file keeps the network namespace in which the interface was found. Unlike netlink,
//! reading it takes no lock that a change of the network's configuration holds. The ports over
//! kernel interfaces use it.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::limits::{INTERFACE_LIST_BYTES_MAX, INTERFACE_LOOK_NS};
use crate::port::PortCounters;
use crate::wait::monotonic_ns;

/// Frames that the interface dropped in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Drops {
    rx: u64,
    tx: u64,
}

/// The drops of one interface since this value was made.
#[derive(Debug)]
pub(crate) struct InterfaceDrops {
    /// The open file; `None`: it does not exist.
    list: Option<File>,
    name: String,
    at_open: Drops,
    now: Cell<Drops>,
    read_ns: Cell<u64>,
    text: RefCell<Vec<u8>>,
}

impl InterfaceDrops {
    /// Counters of the interface called `name` in the calling thread's network namespace.
    pub(crate) fn of(name: &str) -> Self {
        let mut drops = Self {
            list: File::open("/proc/thread-self/net/dev").ok(),
            name: name.to_owned(),
            at_open: Drops::default(),
            now: Cell::default(),
            read_ns: Cell::new(0),
            text: RefCell::new(vec![0; INTERFACE_LIST_BYTES_MAX]),
        };
        drops.read();
        drops.at_open = drops.now.get();
        drops
    }

    /// Reads the counters, unless they were read a moment ago.
    pub(crate) fn refresh(&self) {
        let now_ns = monotonic_ns();
        if now_ns.wrapping_sub(self.read_ns.get()) >= INTERFACE_LOOK_NS {
            self.read_ns.set(now_ns);
            self.read();
        }
    }

    /// Adds the interface's named counters.
    pub(crate) fn export(&self, into: &mut PortCounters) {
        let (now, before) = (self.now.get(), self.at_open);
        into.push("interface_rx_dropped", now.rx.saturating_sub(before.rx));
        into.push("interface_tx_dropped", now.tx.saturating_sub(before.tx));
    }

    /// Reads the counters. An interface that is gone keeps its last values.
    pub(crate) fn read(&self) {
        let Some(list) = &self.list else {
            return;
        };
        let text = &mut *self.text.borrow_mut();
        let mut len = 0;
        while let Ok(n) = list.read_at(&mut text[len..], len as u64)
            && n > 0
        {
            len += n;
        }
        if let Some(drops) = drops_of(&self.name, &String::from_utf8_lossy(&text[..len])) {
            self.now.set(drops);
        }
    }
}

/// The drops of an interface: fields 3 and 11 behind `NAME:`, counted from 0.
fn drops_of(name: &str, list: &str) -> Option<Drops> {
    let line = list.lines().find_map(|line| {
        let (interface, counters) = line.rsplit_once(':')?;
        (interface.trim() == name).then_some(counters)
    })?;
    let mut fields = line.split_ascii_whitespace();
    let rx = fields.nth(3)?.parse().ok()?;
    let tx = fields.nth(7)?.parse().ok()?;
    Some(Drops { rx, tx })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 3690910   23911    0    0    0     0          0         0  3690910   23911    0    0    0     0       0          0
   vs1:     100       1    0   10    0     0          0         0      200       2    0   20    0     0       0          0
    vs:     100       1    2    3    4     5          6         7      200       2    9   11   12    13      14         15
";

    #[test]
    fn drops_stand_in_the_line_of_just_this_interface() {
        assert_eq!(drops_of("vs", LIST), Some(Drops { rx: 3, tx: 11 }));
        assert_eq!(drops_of("vs1", LIST), Some(Drops { rx: 10, tx: 20 }));
        assert_eq!(drops_of("v", LIST), None);
        assert_eq!(drops_of("vs", "    vs: 1 2 3"), None);
        assert_eq!(drops_of("vs", ""), None);
    }

    #[test]
    fn interface_that_loses_nothing_counts_nothing() {
        let drops = InterfaceDrops::of("lo");
        drops.refresh();
        let mut counters = PortCounters::default();
        drops.export(&mut counters);
        assert_eq!(counters.value("interface_rx_dropped"), Some(0));
        assert_eq!(counters.value("interface_tx_dropped"), Some(0));
    }
}
