//! The flows of a context, learnt from what it sends (decision 0046), by the rule of `keep_flow` in
//! `bpf/mux_check.h`.
//!
//! The tables are those of the NIC's program, behind [`FlowBook`]. Writing to them takes a system
//! call, so this module owns a cache of recent writes: a segment of a known flow costs a look at
//! one line. A flow is written again after a second, since the tables evict the least recently used
//! flows. Called for segments from ports that several contexts share.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};

/// Entries of the cache; a power of two. Two flows with the same entry cost more system calls, and
/// nothing else.
const ENTRIES: usize = 1 << 14;
/// Time for which an entry is valid, in ns.
const ENTRY_NS: u64 = 1_000_000_000;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;

/// The ends of a flow: this host's, then the peer's.
pub type Flow = (SocketAddr, SocketAddr);

/// The tables of flows that the NIC's program reads.
pub trait FlowBook: fmt::Debug + Send {
    /// Records that the device has answered a SYN.
    fn half_open(&mut self, flow: Flow, device: u16);
    /// Records that the flow is the device's, unless it is recorded.
    fn open(&mut self, flow: Flow, device: u16);
    /// Records that the device has ended the flow with a FIN.
    fn end(&mut self, flow: Flow, device: u16);
    /// Records that the device has sent a RST, perhaps for a flow that it does not have.
    fn reset(&mut self, flow: Flow, device: u16);
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Hash of the flow; 0: the entry is empty.
    tag: u64,
    device: u16,
    has_ended: bool,
    at_ns: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Tracker {
    book: Box<dyn FlowBook>,
    entries: Box<[Entry]>,
    hasher: RandomState,
}

impl Tracker {
    /// A tracker with an empty cache.
    pub fn new(book: Box<dyn FlowBook>) -> Self {
        Self {
            book,
            entries: vec![Entry::default(); ENTRIES].into(),
            hasher: RandomState::new(),
        }
    }

    /// Notes a segment with these TCP flags that the device has sent.
    pub fn sent(&mut self, flow: Flow, flags: u8, device: u16, now_ns: u64) {
        let tag = self.hasher.hash_one(flow) | 1;
        let entry = &mut self.entries[tag as usize >> 1 & (ENTRIES - 1)];
        let is_fresh = now_ns.saturating_sub(entry.at_ns) < ENTRY_NS;
        let known = entry.tag == tag && entry.device == device && is_fresh;
        if flags & SYN != 0 {
            *entry = Entry::default();
            return self.book.half_open(flow, device);
        }
        if flags & RST != 0 {
            *entry = Entry::default();
            return self.book.reset(flow, device);
        }
        let ends = flags & FIN != 0;
        if known && (entry.has_ended || !ends) {
            return;
        }
        *entry = Entry {
            tag,
            device,
            has_ended: ends,
            at_ns: now_ns,
        };
        match ends {
            true => self.book.end(flow, device),
            false => self.book.open(flow, device),
        }
    }

    /// Drops the cached entry of a flow, whose tables another writer has changed.
    pub fn forget(&mut self, flow: Flow) {
        let tag = self.hasher.hash_one(flow) | 1;
        self.entries[tag as usize >> 1 & (ENTRIES - 1)] = Entry::default();
    }
}

/// The flow and the TCP flags of a packet that passed the check. `head` has all headers.
pub fn flow_of(head: &[u8], header_len: usize) -> Option<(Flow, u8)> {
    let ip = head.get(14..)?;
    let tcp = ip.get(header_len..header_len + 20)?;
    let (source, destination) = match ip[0] >> 4 {
        4 => (v4(ip, 12), v4(ip, 16)),
        _ => (v6(ip, 8)?, v6(ip, 24)?),
    };
    let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    let local = SocketAddr::new(source, port(0));
    Some(((local, SocketAddr::new(destination, port(2))), tcp[13]))
}

fn v4(ip: &[u8], at: usize) -> IpAddr {
    IpAddr::from([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]])
}

fn v6(ip: &[u8], at: usize) -> Option<IpAddr> {
    let octets: [u8; 16] = ip.get(at..at + 16)?.try_into().ok()?;
    Some(IpAddr::from(octets))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Words(Arc<Mutex<Vec<(&'static str, u16)>>>);

    impl Words {
        fn taken(&self) -> Vec<(&'static str, u16)> {
            std::mem::take(&mut self.0.lock().unwrap())
        }

        fn say(&self, word: &'static str, device: u16) {
            self.0.lock().unwrap().push((word, device));
        }
    }

    impl FlowBook for Words {
        fn half_open(&mut self, _: Flow, device: u16) {
            self.say("half_open", device);
        }
        fn open(&mut self, _: Flow, device: u16) {
            self.say("open", device);
        }
        fn end(&mut self, _: Flow, device: u16) {
            self.say("end", device);
        }
        fn reset(&mut self, _: Flow, device: u16) {
            self.say("reset", device);
        }
    }

    #[test]
    fn flow_is_written_once_for_each_of_its_states() {
        let words = Words::default();
        let mut tracker = Tracker::new(Box::new(words.clone()));
        let flow: Flow = (
            "10.0.0.1:80".parse().unwrap(),
            "10.0.0.2:4000".parse().unwrap(),
        );
        for flags in [SYN | 16, 16, 16, 24, FIN | 16, 16, FIN | 16] {
            tracker.sent(flow, flags, 3, 1);
        }
        let once = [("half_open", 3), ("open", 3), ("end", 3)];
        assert_eq!(words.taken(), once);
        // A segment of another context, one after a second, and one after another writer's change.
        tracker.sent(flow, 16, 4, 2);
        tracker.sent(flow, 16, 4, 2 + ENTRY_NS);
        tracker.forget(flow);
        tracker.sent(flow, 16, 4, 2 + ENTRY_NS);
        assert_eq!(words.taken(), [("open", 4); 3]);
        tracker.sent(flow, RST, 4, 2 + ENTRY_NS);
        assert_eq!(words.taken(), [("reset", 4)]);
    }
}
