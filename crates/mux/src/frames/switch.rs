//! The switch of `path=memif`: moves frames from the NIC to the memif queues of their owners, and
//! applications' frames through the egress check to the NIC.
//!
//! ```text
//!   NIC ── mux_switch (XDP) ──▶ AF_XDP socket of the queue ─ deliver ─▶ memif queue ──▶ application
//!    ▲                                                                                    │
//!    └──────── AF_XDP socket ◀─ copy ◀─ egress check of a copied head ◀─ memif queue ◀────┘
//! ```
//!
//! The veth pair for clients of the same host (`--local`) is a further source of frames, and the
//! way for frames to the NIC's own addresses.
//!
//! Owns all ports of one thread and a table of rights of its own, so frames need no lock. A turn
//! takes at most one batch from each application. It begins at the application at which the last
//! one was blocked. A batch waits if the NIC has no room, so an application that floods its ring
//! waits itself and delays others by its batch at most. The head of a frame is copied out of the
//! shared memory, checked, and sent from the copy. Called by a frames' thread.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use packetio::memif::MemifPort;
use packetio::wait::monotonic_ns;
use packetio::{MacAddr, Port, PortError, RxFrame, TxFrame};
use ring::spsc::{Consumer, Producer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::bucket::Bucket;
use super::counts::{Counts, Word};
use super::flows::{Flow, Tracker, flow_of};
use super::rights::Right;
use crate::egress::{AddressKind, EgressTable, HEAD_BYTES};
use crate::limits::{DEVICES, FRAMES_PER_ROUND};
use crate::reason::Reason;

/// Bytes of an Ethernet address.
const MAC_BYTES: usize = 6;
/// Size of an Ethernet header in bytes; the NIC delivers no shorter frame.
const ETHERNET_BYTES: usize = 14;

/// A change that the service's thread sends.
#[derive(Debug)]
pub(super) enum Change<N> {
    /// Replaces the thread's queues of the NIC.
    Nic(Vec<N>),
    /// Replaces the queue to clients of the same host; `None`: there are no such clients.
    Local(Option<Box<N>>),
    /// Adds a context's queue, and removes the previous one of the device.
    Join(u16, Box<Member>),
    /// Removes the queue of the device.
    Leave {
        /// The device.
        device: u16,
    },
    /// The tables of flows changed for this flow.
    Forget(Flow),
    /// Changes the table of rights.
    Right(Right),
}

/// The thread's queue of the channel of a context.
#[derive(Debug)]
pub(super) struct Member {
    slot: u16,
    port: Box<MemifPort>,
    /// The application sends through this queue.
    sends: bool,
    /// Number of frames of the current batch that were checked.
    seen: usize,
    bucket: Bucket,
}

/// The outcome of checking one application's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Number of frames that were checked.
    Looked(usize),
    /// The NIC, or the veth pair for the same host, has no room.
    Blocked,
}

/// The way that a frame leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Nic,
    Local,
}

/// The source of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A queue of the NIC, by its index in the list.
    Nic(usize),
    /// The veth pair for clients of the same host.
    Local,
}

/// Numbers of an application's frames that were checked, and that were copied to each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Checked {
    looked: usize,
    by_nic: usize,
    by_local: usize,
}

/// See the module's documentation.
pub(super) struct Switch<N> {
    nics: Vec<N>,
    /// The queue of the veth pair for clients of the same host.
    local: Option<Box<N>>,
    /// The number of threads.
    threads: usize,
    table: EgressTable,
    /// Queues of contexts, indexed by device.
    members: Vec<Option<Box<Member>>>,
    /// The devices that have a member.
    devices: Vec<u16>,
    /// Index in `devices` at which the next round begins.
    first: usize,
    /// The NIC had no room in the last round.
    is_blocked: bool,
    counts: Arc<Counts>,
    tracker: Tracker,
    changes: Consumer<Change<N>>,
    /// Released ports, which the service's thread closes.
    closing: Producer<Box<MemifPort>>,
    /// Memory for the descriptors of a sleep; empty between sleeps.
    fds: Vec<PollFd<'static>>,
}

impl<N: Port + Send> Switch<N> {
    /// The switch of one of `threads` threads.
    pub(super) fn new(
        counts: Arc<Counts>,
        tracker: Tracker,
        (changes, closing): (Consumer<Change<N>>, Producer<Box<MemifPort>>),
        threads: usize,
    ) -> Self {
        Self {
            nics: Vec::new(),
            local: None,
            threads: threads.max(1),
            table: EgressTable::new(MacAddr([0; MAC_BYTES]), 0),
            members: (0..DEVICES).map(|_| None).collect(),
            devices: Vec::new(),
            first: 0,
            is_blocked: false,
            counts,
            tracker,
            changes,
            closing,
            fds: Vec::new(),
        }
    }

    /// Applies changes, then moves at most one batch from each queue of the NIC and from each
    /// application. Returns the number of frames checked. Never blocks.
    pub(super) fn turn(&mut self, now_ns: u64) -> usize {
        self.apply_changes();
        let mut moved = 0;
        for queue in 0..self.nics.len() {
            moved += self.deliver(Source::Nic(queue));
        }
        if self.local.is_some() {
            moved += self.deliver(Source::Local);
        }
        moved + self.collect(now_ns)
    }

    fn apply_changes(&mut self) {
        while let Some(change) = self.changes.pop() {
            self.apply(change);
        }
    }

    #[cold]
    fn apply(&mut self, change: Change<N>) {
        match change {
            Change::Nic(nics) => self.nics = nics,
            Change::Local(local) => {
                self.table.is_local = local.is_some();
                self.local = local;
            }
            Change::Join(device, member) => {
                self.leave(device);
                self.counts.clear(device);
                if let Some(room) = self.members.get_mut(usize::from(device)) {
                    *room = Some(member);
                    self.devices.push(device);
                }
            }
            Change::Leave { device } => self.leave(device),
            Change::Forget(flow) => self.tracker.forget(flow),
            Change::Right(right) => right.apply(&mut self.table),
        }
    }

    fn leave(&mut self, device: u16) {
        let member = self.members.get_mut(usize::from(device));
        let Some(member) = member.and_then(Option::take) else {
            return;
        };
        self.devices.retain(|one| *one != device);
        self.counts.set(device, Word::Connected, 0);
        // The service takes ports out before it adds more, so there is room. Otherwise the drop
        // unmaps the memory here.
        let _ = self.closing.push(member.port);
    }

    /// Moves one batch of a queue to the owners of its frames.
    fn deliver(&mut self, source: Source) -> usize {
        let Self {
            nics,
            local,
            members,
            counts,
            table,
            ..
        } = self;
        let from = match source {
            Source::Nic(queue) => nics.get_mut(queue),
            Source::Local => local.as_deref_mut(),
        };
        let Some(from) = from else {
            return 0;
        };
        let frames = match from.receive() {
            Ok(frames) => frames,
            Err(error) => {
                self.failed(source, &error);
                return 0;
            }
        };
        for batch in frames.chunks(u64::BITS as usize) {
            let mut owners = [0; u64::BITS as usize];
            for (owner, frame) in owners.iter_mut().zip(batch) {
                *owner = u16::from_ne_bytes(frame.head::<2>());
            }
            let mut left = u64::MAX >> (u64::BITS as usize - batch.len());
            while left != 0 {
                let device = owners[left.trailing_zeros() as usize];
                let is_its = |at: &usize| owners[*at] == device && left >> at & 1 == 1;
                let its: u64 = (0..batch.len()).filter(is_its).map(|at| 1 << at).sum();
                left &= !its;
                match members.get_mut(usize::from(device)) {
                    Some(Some(member)) => member.give(batch, its, table.mac, (device, counts)),
                    _ => counts.add(device, Word::RxNoRoom, u64::from(its.count_ones())),
                }
            }
        }
        let moved = frames.len();
        from.release();
        moved
    }

    /// Handles an error of a port. A removed interface carries no frames until the service reopens
    /// it.
    #[cold]
    fn failed(&mut self, source: Source, error: &PortError) {
        if *error != PortError::Gone {
            return;
        }
        match source {
            Source::Nic(queue) if queue < self.nics.len() => drop(self.nics.remove(queue)),
            Source::Nic(_) => {}
            // Frames for this host must not leave through the NIC.
            Source::Local => {
                self.local = None;
                self.table.is_local = false;
            }
        }
    }

    /// Takes a batch from each application that has one.
    fn collect(&mut self, now_ns: u64) -> usize {
        self.is_blocked = false;
        let mut moved = 0;
        let count = self.devices.len();
        let first = self.first;
        // The next round begins with the next application, unless one is blocked here.
        self.first = (first + 1) % count.max(1);
        for turn in 0..count {
            let at = (first + turn) % count;
            match self.send_of(self.devices[at], now_ns) {
                Round::Looked(frames) => moved += frames,
                // Another queue of the NIC may have room for the others.
                Round::Blocked if self.is_blocked => {}
                Round::Blocked => {
                    self.first = at;
                    self.is_blocked = true;
                }
            }
        }
        moved
    }

    /// Sends a batch of one application.
    fn send_of(&mut self, device: u16, now_ns: u64) -> Round {
        let Some(Some(member)) = self.members.get_mut(usize::from(device)) else {
            return Round::Looked(0);
        };
        if !member.sends {
            return Round::Looked(member.refuse(device, &self.counts));
        }
        if member.waiting() == 0 && !member.receive() {
            return Round::Looked(0);
        }
        let wanted = member.waiting().min(FRAMES_PER_ROUND);
        // A thread has every `threads`-th device, so divide to spread devices over its queues.
        let queue = usize::from(device) / self.threads % self.nics.len().max(1);
        let Some(nic) = self.nics.get_mut(queue) else {
            return Round::Looked(self.check_batch(device, None, wanted, now_ns).looked);
        };
        let mut granted = nic.reserve(wanted).len();
        if let Some(local) = &mut self.local {
            // The way of a frame is known only after its check.
            granted = granted.min(local.reserve(wanted).len());
        }
        if granted == 0 {
            return Round::Blocked;
        }
        let checked = self.check_batch(device, Some(queue), granted, now_ns);
        if let Err(error) = self.nics[queue].send(checked.by_nic) {
            self.failed(Source::Nic(queue), &error);
        }
        if checked.by_local > 0
            && let Some(local) = &mut self.local
            && let Err(error) = local.send(checked.by_local)
        {
            self.failed(Source::Local, &error);
        }
        Round::Looked(checked.looked)
    }

    /// Checks the next frames of an application, at most `limit`. Copies those that pass into the
    /// slots that the NIC and the veth pair have granted.
    fn check_batch(
        &mut self,
        device: u16,
        queue: Option<usize>,
        limit: usize,
        now_ns: u64,
    ) -> Checked {
        let mut done = Checked::default();
        let Some(Some(member)) = self.members.get_mut(usize::from(device)) else {
            return done;
        };
        let nic = queue.map_or(&[][..], |queue| self.nics[queue].reserved());
        let local = self.local.as_ref().map(|local| local.reserved());
        let frames = member.port.received().iter().skip(member.seen).take(limit);
        for frame in frames {
            let mut bytes = [0; HEAD_BYTES];
            let copied = frame.copy_to(0, &mut bytes);
            let (head, len) = (&bytes[..copied], frame.len());
            let checked = self.table.check_head(head, len, member.slot, device);
            // A right may have been granted after this turn began, so check the frame again after
            // applying changes.
            if checked.is_err() && !self.changes.is_empty() {
                break;
            }
            done.looked += 1;
            let left = checked.and_then(|passed| {
                let kind = local.and_then(|_| self.table.addresses.get(&passed.destination));
                let (slot, way) = match (local, kind) {
                    (Some(local), Some(AddressKind::Local)) => {
                        (local.get(done.by_local), Way::Local)
                    }
                    _ => (nic.get(done.by_nic), Way::Nic),
                };
                match member.bucket.take(len as u64, now_ns) {
                    true => Ok((slot.ok_or(Reason::NoNic)?, way, passed)),
                    false => Err(Reason::Rate),
                }
            });
            match left {
                Ok((slot, way, passed)) if copy(slot, head, frame) => {
                    match way {
                        Way::Nic => done.by_nic += 1,
                        Way::Local => done.by_local += 1,
                    }
                    if passed.tracks
                        && let Some((flow, flags)) = flow_of(head, passed.header_len)
                    {
                        self.tracker.sent(flow, flags, device, now_ns);
                    }
                    self.counts.add(device, Word::TxFrames, 1);
                    self.counts.add(device, Word::TxBytes, len as u64);
                }
                Ok(_) => self.counts.dropped(device, Reason::Oversize),
                Err(reason) => self.counts.dropped(device, reason),
            }
        }
        member.seen += done.looked;
        done
    }

    /// Sleeps until there is something to do. `bell` is rung for changes.
    pub(super) fn sleep(&mut self, bell: &OwnedFd) {
        let mut is_ready = !self.changes.is_empty();
        for nic in self.nics.iter_mut().chain(self.local.as_deref_mut()) {
            is_ready |= nic.prepare_wait(self.is_blocked);
        }
        for &device in &self.devices {
            let Some(Some(member)) = self.members.get_mut(usize::from(device)) else {
                continue;
            };
            // A batch that waits for the NIC must not be replaced.
            if member.waiting() == 0 {
                is_ready |= member.port.prepare_wait(false);
            }
            // The last look may have found a new connection.
            let is_connected = u64::from(member.port.is_connected());
            self.counts.set(device, Word::Connected, is_connected);
        }
        if !is_ready {
            self.wait(bell.as_fd());
        }
        for nic in self.nics.iter_mut().chain(self.local.as_deref_mut()) {
            nic.finish_wait();
        }
        for member in self.members.iter_mut().flatten() {
            member.port.finish_wait();
        }
        // Resets the bell; this does not block.
        let _ = rustix::io::read(bell, &mut [0; 8]);
    }

    fn wait(&mut self, bell: BorrowedFd<'_>) {
        let mut fds = emptied(std::mem::take(&mut self.fds));
        let mut deadline_ns: Option<u64> = None;
        fds.push(PollFd::from_borrowed_fd(bell, PollFlags::IN));
        let members = self.members.iter().flatten();
        let members = members.filter(|member| member.waiting() == 0);
        let ports = members.map(|member| &*member.port as &dyn Port);
        let nics = self.nics.iter().chain(self.local.as_deref());
        let nics = nics.map(|nic| nic as &dyn Port);
        for port in ports.chain(nics) {
            port.poll_fds(self.is_blocked, &mut |fd, flags| {
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            });
            let due = deadline_ns.into_iter().chain(port.deadline_ns());
            deadline_ns = due.min();
        }
        let timeout = deadline_ns.map(|at_ns| {
            let left_ns = at_ns.saturating_sub(monotonic_ns());
            Timespec {
                tv_sec: (left_ns / 1_000_000_000) as _,
                tv_nsec: (left_ns % 1_000_000_000) as _,
            }
        });
        // A signal ends the sleep early, which does no harm.
        let _ = poll(&mut fds, timeout.as_ref());
        self.fds = emptied(fds);
    }
}

impl Member {
    /// The queue `port` of an application, with its rate and burst in bytes. `sends`: the
    /// application sends through this queue.
    pub(super) fn new(slot: u16, port: MemifPort, sends: bool, (rate, burst): (u64, u64)) -> Self {
        Self {
            slot,
            port: Box::new(port),
            sends,
            seen: 0,
            bucket: Bucket::new(rate, burst),
        }
    }

    /// Drops frames that the application sent through another queue than the first; returns their
    /// number. Receiving also detects a lost connection.
    fn refuse(&mut self, device: u16, counts: &Counts) -> usize {
        let frames = self.port.receive().map_or(0, <[_]>::len);
        if frames > 0 {
            self.port.release();
            counts.add(device, Word::TxOtherQueue, frames as u64);
        }
        frames
    }

    /// Number of frames in the batch that were not checked yet.
    fn waiting(&self) -> usize {
        if !self.sends {
            return 0;
        }
        self.port.received().len().saturating_sub(self.seen)
    }

    /// Takes the next batch; false: there is none.
    fn receive(&mut self) -> bool {
        self.seen = 0;
        // An application that is not connected has nothing to send.
        self.port.receive().is_ok_and(|frames| !frames.is_empty())
    }

    /// Copies to the application the frames of a batch whose bits are set in `its`.
    fn give(
        &mut self,
        batch: &[RxFrame],
        its: u64,
        mac: MacAddr,
        (device, counts): (u16, &Counts),
    ) {
        let wanted = its.count_ones() as usize;
        let mut used = 0;
        let mut slots = self.port.reserve(wanted).iter();
        for (at, frame) in batch.iter().enumerate() {
            if its >> at & 1 == 0 {
                continue;
            }
            let Some(slot) = slots.next() else {
                break;
            };
            used += 1;
            // A slot that stays empty is not sent.
            if frame.len() < ETHERNET_BYTES || !copy(slot, &mac.0, frame) {
                counts.add(device, Word::RxTooLong, 1);
            }
        }
        counts.add(device, Word::RxNoRoom, (wanted - used) as u64);
        // The port itself counts frames lost to an invalid ring.
        let _ = self.port.send(used);
    }
}

/// Empties a list but keeps its memory, for entries with another lifetime.
#[expect(
    clippy::unnecessary_filter_map,
    reason = "a filter would keep the type, and with it the lifetime"
)]
fn emptied<'b>(mut fds: Vec<PollFd<'_>>) -> Vec<PollFd<'b>> {
    fds.clear();
    fds.into_iter().filter_map(|_| None).collect()
}

/// Writes a frame to a slot, with `head` in place of its first bytes. False: the frame is too long.
fn copy(slot: &TxFrame, head: &[u8], frame: &RxFrame) -> bool {
    let len = frame.len();
    let rest = len.saturating_sub(head.len());
    let (Some(from), Some(mut to)) = (
        frame.slice(head.len().min(len), rest),
        slot.slice_mut(head.len().min(len), rest),
    ) else {
        return false;
    };
    to.copy_from(from);
    slot.write(0, &head[..head.len().min(len)]);
    slot.set_len(len);
    true
}
