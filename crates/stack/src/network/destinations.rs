//! Knowledge about remote hosts that outlives a connection: path MTUs reported by routers (RFC 1191
//! section 6.2, RFC 8201 section 5.2), Fast Open cookies and their MSS (RFC 7413 section 4.1.3).
//!
//! The table consists of small sets, found by a keyed hash of the address, so an outsider cannot
//! aim at one set. In a full set the least recently used entry is replaced
//! ([`DESTINATIONS_MAX`](crate::limits::DESTINATIONS_MAX)). What it held is learned again.

use tcp::{FastOpenReply, FastOpenSettings, FastOpenSyn};
use wire::siphash::siphash13_words;
use wire::tcp::FastOpenCookie;
use wire::{Addr, SeqNumber};

use crate::limits::{DESTINATIONS_EACH_SET, DESTINATIONS_MAX};

#[cfg(test)]
mod tests;

/// A router's report about the path to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathWord {
    /// The path MTU to use, bytes.
    pub mtu: u16,
    /// True if the router reported less than the least MTU that is believed. Packets of `mtu` bytes
    /// then pass only in fragments.
    pub too_narrow: bool,
    /// Time until which the report counts, ns.
    pub until_ns: u64,
}

/// The entry of one host.
#[derive(Clone, Copy, Debug)]
struct Destination {
    address: Addr,
    /// Value of the table's use counter at the last use.
    used: u32,
    path: Option<PathWord>,
    cookie: Option<FastOpenCookie>,
    /// The peer's MSS, learned with Fast Open; 0: unknown.
    mss: u16,
    /// See [`FastOpenReply::experimental`].
    experimental: u8,
}

/// See the module's documentation.
pub(crate) struct Destinations {
    sets: Vec<[Option<Destination>; DESTINATIONS_EACH_SET]>,
    key: [u64; 2],
    uses: u32,
    evicted: u64,
    /// Latest end of any report's validity, ns. After it no look-up is needed.
    path_mtu_until_ns_max: u64,
    pause: Pause,
}

/// A pause of Fast Open as a client, after a black hole was suspected (Linux's
/// `tcp_fastopen_blackhole_timeout_sec`).
#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    until_ns: u64,
    /// Number of consecutive pauses; each is twice as long as the last.
    times: u32,
}

impl Destinations {
    pub fn new(key: [u64; 2]) -> Self {
        Self {
            sets: vec![[None; DESTINATIONS_EACH_SET]; DESTINATIONS_MAX / DESTINATIONS_EACH_SET],
            key,
            uses: 0,
            evicted: 0,
            path_mtu_until_ns_max: 0,
            pause: Pause::default(),
        }
    }

    /// Number of entries replaced.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// True if some router's report is still valid.
    #[inline]
    pub fn has_path_reports(&self, now_ns: u64) -> bool {
        now_ns < self.path_mtu_until_ns_max
    }

    /// A router's report about the path to `address`, if it is still valid.
    #[inline]
    pub fn path(&mut self, address: Addr, now_ns: u64) -> Option<PathWord> {
        if !self.has_path_reports(now_ns) {
            return None;
        }
        self.find(address)?
            .path
            .filter(|word| now_ns < word.until_ns)
    }

    /// Notes a router's report about the path to `address`, and returns the report in force. An
    /// earlier report of a smaller MTU counts until it expires, because no message says that more
    /// fits (RFC 1191 section 3; Linux).
    pub fn learn_path(&mut self, address: Addr, word: PathWord, now_ns: u64) -> PathWord {
        let entry = self.entry(address);
        let counts = match entry.path {
            Some(known) if now_ns < known.until_ns && known.mtu < word.mtu => known,
            _ => word,
        };
        entry.path = Some(counts);
        self.path_mtu_until_ns_max = self.path_mtu_until_ns_max.max(counts.until_ns);
        counts
    }

    /// The Fast Open part of a SYN to `address` over a link with segments of at most `mss` bytes.
    /// `None`: the SYN is plain.
    pub fn fast_open_syn(
        &mut self,
        address: Addr,
        mss: u16,
        no_cookie: bool,
        settings: &FastOpenSettings,
        now_ns: u64,
    ) -> Option<FastOpenSyn> {
        if !settings.client || now_ns < self.pause.until_ns {
            return None;
        }
        let known = self.find(address).copied();
        let mss = match known {
            Some(known) if known.mss != 0 => mss.min(known.mss),
            _ => mss,
        };
        let bytes = FastOpenSyn::bytes_max(mss);
        if no_cookie || settings.client_without_cookie {
            let option = None;
            return Some(FastOpenSyn { option, bytes });
        }
        let cookie = known.and_then(|known| known.cookie);
        if cookie.is_some() {
            return Some(FastOpenSyn {
                option: cookie,
                bytes,
            });
        }
        let experimental = known.is_some_and(|known| known.experimental == 1);
        Some(FastOpenSyn {
            option: Some(FastOpenCookie::REQUEST.with_experimental(experimental)),
            bytes: 0,
        })
    }

    /// Remembers what a SYN-ACK told about Fast Open.
    pub fn learn_fast_open(&mut self, address: Addr, reply: &FastOpenReply) {
        let entry = self.entry(address);
        entry.mss = reply.mss;
        match reply.cookie {
            Some(cookie) => entry.cookie = Some(cookie),
            None if entry.cookie.is_none() => {
                entry.experimental = entry.experimental.max(reply.experimental);
            }
            None => {}
        }
    }

    /// Forgets all Fast Open cookies, as after a restart. Routers' reports and a pause stay.
    pub fn forget_fast_open(&mut self) {
        for entry in self.sets.iter_mut().flatten().flatten() {
            (entry.cookie, entry.mss, entry.experimental) = (None, 0, 0);
        }
    }

    /// Pauses Fast Open for a time, because a connection suspects a black hole.
    pub fn pause_fast_open(&mut self, settings: &FastOpenSettings, now_ns: u64) {
        if settings.blackhole_timeout_ns == 0 {
            return;
        }
        let pause_ns = settings.blackhole_timeout_ns << self.pause.times.min(6);
        self.pause = Pause {
            until_ns: now_ns.saturating_add(pause_ns),
            times: self.pause.times.saturating_add(1),
        };
    }

    fn set_of(&self, address: Addr) -> usize {
        let bits = address.bits();
        let hash = siphash13_words(self.key, &[(bits >> 64) as u64, bits as u64]);
        (hash % self.sets.len() as u64) as usize
    }

    fn find(&mut self, address: Addr) -> Option<&mut Destination> {
        self.uses = self.uses.wrapping_add(1);
        let (uses, set) = (self.uses, self.set_of(address));
        let found = self.sets[set]
            .iter_mut()
            .flatten()
            .find(|entry| entry.address == address)?;
        found.used = uses;
        Some(found)
    }

    /// The entry of `address`; a new one if there is none.
    fn entry(&mut self, address: Addr) -> &mut Destination {
        self.uses = self.uses.wrapping_add(1);
        let (uses, set) = (self.uses, self.set_of(address));
        let set = &mut self.sets[set];
        let is_it = |slot: &Option<Destination>| slot.is_some_and(|held| held.address == address);
        let place = match set.iter().position(is_it) {
            Some(place) => place,
            None => {
                let place = oldest(set, uses);
                self.evicted += u64::from(set[place].take().is_some());
                place
            }
        };
        let entry = set[place].get_or_insert(Destination {
            address,
            used: uses,
            path: None,
            cookie: None,
            mss: 0,
            experimental: 0,
        });
        entry.used = uses;
        entry
    }
}

/// Index of a free entry, or else of the least recently used one.
fn oldest(set: &[Option<Destination>; DESTINATIONS_EACH_SET], uses: u32) -> usize {
    let mut place = 0;
    let mut age_max = 0;
    for (at, slot) in set.iter().enumerate() {
        let age = slot.map_or(u32::MAX, |held| SeqNumber(uses).since(SeqNumber(held.used)));
        if age >= age_max {
            (place, age_max) = (at, age);
        }
    }
    place
}
