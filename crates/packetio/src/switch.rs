//! A switch shares one wire among several stacks of a process, whatever queues the wire has. Its
//! thread hands each frame to the stack that owns the flow.
//!
//! ```text
//!  wire queue 0 ─┐              ┌─ member 0: a loopback's end, the stack has the other
//!  wire queue 1 ─┴── switch ────┼─ member 1
//!                    (thread)   └─ member 2 ...
//! ```
//!
//! The switch does not trust the wire's choice of queue: a veth has one queue, and a kernel may
//! move a flow to another one. A SYN goes to one of the members that listen at its port (rendezvous
//! hashing). The member that received or sent a flow's SYN owns the flow from then on, whoever
//! listens later (decision 0046). Each member connects from local ports of its own ([`ports_of`]).
//! A port without a listener that only one member has ever used needs no flow look-up. ARP,
//! neighbour discovery and ICMP errors go to all members, because each learns from them. Any other
//! frame that is not TCP goes to one member, which answers or drops it.
//!
//! Without a wire the switch is a small Ethernet ([`Switch::ethernet`]): each member has its own
//! MAC address, and a frame goes to the member that it names.
//!
//! The switch owns the wire's ports and the far ends of its members. `millstream::Runtime` makes
//! one where a wire has fewer queues than contexts; else [`shared_queues`](crate::shared_queues) do
//! without it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::doorbell::StackBell;
use ring::last_cpu::LastCpu;
use ring::published::Flag;
use rustix::fd::BorrowedFd;

use crate::frame_unsafe::RxFrame;
use crate::limits::{
    FRAME_HEADER_MAX, LOOPBACK_BATCH_MAX, SWITCH_BYTES, SWITCH_DRAIN_BATCHES_MAX,
    SWITCH_FAREWELL_NS, SWITCH_MEMBERS_MAX, SWITCH_SLOTS, SWITCH_TURNS_MAX,
};
use crate::loopback::{Loopback, LoopbackOptions, pair};
use crate::open_error::OpenError;
use crate::port::{ChecksumPolicy, MacAddr, Port, PortError};
use crate::wait::{monotonic_ns, wait_each};

mod flows;
mod kind;
mod member;
mod owner;

use member::{Drops, Member};
use owner::{Addressee, Head, Owners};

/// A handle on the switch. The thread ends when the last handle and every member has gone.
pub struct Switch {
    shared: Arc<Shared>,
    mac: Option<MacAddr>,
    mtu: usize,
    rx_checksum: ChecksumPolicy,
    name: String,
}

/// A member's number, its MAC address, and our end of its loopback.
type Newcomer = (usize, MacAddr, End);

/// Our end of a member's loopback.
struct End {
    far: Loopback,
    drops: Arc<Drops>,
    /// Time at which the member left while the wire had no room for its last frames, ns; 0: the
    /// member is present, or left no frames.
    left_at_ns: u64,
}

impl End {
    fn new(far: Loopback, drops: Arc<Drops>) -> Self {
        Self {
            far,
            drops,
            left_at_ns: 0,
        }
    }

    /// True if the member is present, or left so recently that its last frames may still be sent.
    fn may_be_held(&mut self) -> bool {
        if !self.far.is_abandoned() {
            return true;
        }
        let now_ns = monotonic_ns();
        if self.left_at_ns == 0 {
            self.left_at_ns = now_ns;
        }
        now_ns - self.left_at_ns < SWITCH_FAREWELL_NS
    }
}

/// State that the handles and the thread share; off the hot path.
struct Shared {
    joining: Mutex<Vec<Newcomer>>,
    /// For each member its listening ports, and the number of sockets that listen at each.
    listening: Mutex<Vec<(u16, Vec<u16>)>>,
    /// True once `listening` or `joining` has changed.
    changed: Flag,
    over: Flag,
    bell: StackBell,
    /// The CPU on which the thread ran last.
    cpu: Arc<LastCpu>,
}

impl Shared {
    fn new(bell: StackBell) -> Self {
        Self {
            joining: Mutex::default(),
            listening: Mutex::default(),
            changed: Flag::new(),
            over: Flag::new(),
            bell,
            cpu: Arc::default(),
        }
    }

    fn listening(&self) -> MutexGuard<'_, Vec<(u16, Vec<u16>)>> {
        self.listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn listens(&self, index: usize, port: u16, on: bool) {
        let mut listening = self.listening();
        let at = match listening.iter().position(|(known, _)| *known == port) {
            Some(at) => at,
            None => {
                listening.push((port, vec![0; SWITCH_MEMBERS_MAX]));
                listening.len() - 1
            }
        };
        if let Some(count) = listening[at].1.get_mut(index) {
            *count = match on {
                true => count.saturating_add(1),
                false => count.saturating_sub(1),
            };
        }
        if listening[at].1.iter().all(|&count| count == 0) {
            listening.swap_remove(at);
        }
    }

    fn joining(&self) -> MutexGuard<'_, Vec<Newcomer>> {
        self.joining.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.changed.raise();
        self.bell.insist();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.over.raise();
        self.shared.tell();
    }
}

/// The share of member `index` of `members` in a range of local ports.
#[must_use]
pub fn ports_of(range: (u16, u16), index: usize, members: usize) -> (u16, u16) {
    let count = usize::from(range.1.saturating_sub(range.0)) + 1;
    let each = (count / members.max(1)).max(1);
    let first = usize::from(range.0) + (index * each).min(count - 1);
    let last = (first + each - 1).min(range.1.into());
    (first as u16, last as u16)
}

impl Switch {
    /// Shares the queues of one wire among `members`.
    ///
    /// # Errors
    /// More members than a switch serves, or the kernel's error.
    pub fn start(wire: Vec<Box<dyn Port + Send>>, members: usize) -> Result<Self, OpenError> {
        let Some(first) = wire.first() else {
            return Self::ethernet(1500, members);
        };
        let own = first.capabilities().clone();
        let mut switch = Self::spawn(wire, members, own.mtu)?;
        switch.mac = Some(own.mac);
        switch.rx_checksum = own.rx_checksum;
        switch.name = own.name;
        Ok(switch)
    }

    /// Makes an Ethernet within the process, without a wire.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    pub fn ethernet(mtu: usize, members: usize) -> Result<Self, OpenError> {
        Self::spawn(Vec::new(), members, mtu)
    }

    fn spawn(
        wire: Vec<Box<dyn Port + Send>>,
        members: usize,
        mtu: usize,
    ) -> Result<Self, OpenError> {
        if members == 0 || members + wire.len() > SWITCH_MEMBERS_MAX {
            let why = format!(
                "{members} stacks: a wire can be shared by {}",
                SWITCH_MEMBERS_MAX - wire.len()
            );
            return Err(OpenError::refused("switch", why));
        }
        let bell = StackBell::new().map_err(|errno| OpenError::io("switch", "eventfd", errno))?;
        let shared = Arc::new(Shared::new(bell));
        let fabric = Fabric::new(shared.clone(), wire, members, mtu);
        let thread = std::thread::Builder::new().name("millstream-switch".into());
        thread.spawn(move || fabric.run()).map_err(|error| {
            let errno =
                rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN);
            OpenError::io("switch", "start a thread", errno)
        })?;
        Ok(Self {
            shared,
            mac: None,
            mtu,
            rx_checksum: ChecksumPolicy::Verify,
            name: "loopback".to_owned(),
        })
    }

    /// The port of member `index`. A second call with the same index replaces the first member.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn member(&self, index: usize) -> Result<Box<dyn Port + Send>, OpenError> {
        let options = LoopbackOptions {
            name: format!("{}#{index}", self.name),
            mac: self.mac,
            mtu: self.mtu,
            slots: (SWITCH_BYTES / (self.mtu + FRAME_HEADER_MAX)).clamp(256, SWITCH_SLOTS),
            batch: LOOPBACK_BATCH_MAX,
        };
        let (near, far) = pair(&options)?;
        let (near, drops) = (
            near.with_checksum_policy(self.rx_checksum),
            Arc::<Drops>::default(),
        );
        let end = End::new(far, drops.clone());
        let mac = near.capabilities().mac;
        self.shared.joining().push((index, mac, end));
        self.shared.tell();
        let cpu = self.shared.cpu.clone();
        Ok(Box::new(Member { near, drops, cpu }))
    }

    /// Notes that a socket of member `index` begins (`on`) or stops listening at `port`.
    pub fn listens(&self, index: usize, port: u16, on: bool) {
        self.shared.listens(index, port, on);
        self.shared.tell();
    }
}

/// State that only the thread uses.
struct Fabric {
    shared: Arc<Shared>,
    owners: Owners,
    /// The wire's queues that still work.
    wire: Vec<Box<dyn Port + Send>>,
    is_ethernet: bool,
    ends: Vec<Option<End>>,
    scratch: Vec<u8>,
    /// Headers of the frames in the current batch.
    heads: Vec<Head>,
    /// Members that receive each frame of the current batch, one bit each.
    targets: Vec<u64>,
    /// Members with frames for which the wire has no room, one bit each.
    held: u64,
    /// Queues of the wire that have gone in this turn, one bit each.
    gone: u64,
    /// Frames that arrived while no member was present. The first member to come counts them.
    unclaimed: u64,
}

impl Fabric {
    fn new(
        shared: Arc<Shared>,
        wire: Vec<Box<dyn Port + Send>>,
        members: usize,
        mtu: usize,
    ) -> Self {
        Self {
            shared,
            owners: Owners::new(members, wire.is_empty()),
            is_ethernet: wire.is_empty(),
            wire,
            ends: (0..members).map(|_| None).collect(),
            scratch: vec![0; mtu + FRAME_HEADER_MAX],
            heads: Vec::new(),
            targets: Vec::new(),
            held: 0,
            gone: 0,
            unclaimed: 0,
        }
    }

    fn run(mut self) {
        loop {
            if self.shared.changed.take() {
                self.look_around();
            }
            let mut turns = 0;
            while turns < SWITCH_TURNS_MAX && self.turn() > 0 {
                turns += 1;
            }
            if self.shared.over.is_raised() && self.ends.iter().all(Option::is_none) {
                return;
            }
            if turns < SWITCH_TURNS_MAX {
                self.sleep();
            }
        }
    }

    fn look_around(&mut self) {
        for (index, mac, end) in self.shared.joining().drain(..) {
            end.drops.to_nobody.add(std::mem::take(&mut self.unclaimed));
            self.owners.joined(index, mac, end.drops.clone());
            self.ends[index] = Some(end);
        }
        self.owners.set_listening(&self.shared.listening());
        self.part_if_cut();
    }

    /// Drops the members' far ends once the last queue of the wire has gone. The members then
    /// report that their port is gone.
    fn part_if_cut(&mut self) {
        if self.wire.is_empty() && !self.is_ethernet {
            self.ends.fill_with(|| None);
        }
    }

    /// Moves frames of the wire, and a batch from each member. Returns the number of frames moved.
    fn turn(&mut self) -> usize {
        self.held = 0;
        let from_wire: usize = (0..self.wire.len()).map(|queue| self.drain(queue)).sum();
        if self.gone != 0 {
            self.remove_dead();
        }
        let from_members: usize = (0..self.ends.len()).map(|index| self.uplink(index)).sum();
        from_wire + from_members
    }

    /// Removes queues that have gone, because their descriptors would be readable for ever.
    fn remove_dead(&mut self) {
        let gone = std::mem::take(&mut self.gone);
        let mut queues = 0..;
        self.wire.retain(|_| {
            queues
                .next()
                .is_none_or(|queue: u32| gone >> queue & 1 == 0)
        });
        self.part_if_cut();
    }

    /// Receives batches of one queue until it is empty. Each member's batch may cause as many
    /// answers as one batch of the wire holds, so a single batch per turn would let the wire's ring
    /// overflow.
    fn drain(&mut self, queue: usize) -> usize {
        let mut moved = 0;
        for _ in 0..SWITCH_DRAIN_BATCHES_MAX {
            match self.downlink(queue) {
                0 => break,
                count => moved += count,
            }
        }
        moved
    }

    /// Moves a batch from a queue of the wire to the members.
    fn downlink(&mut self, queue: usize) -> usize {
        let frames = match self.wire[queue].receive() {
            Ok(frames) => frames,
            Err(PortError::Gone) => {
                self.gone |= 1 << queue;
                return 0;
            }
            // The queue may recover.
            Err(PortError::Disconnected | PortError::Io { .. }) => return 0,
        };
        let moved = frames.len();
        self.heads.clear();
        self.heads
            .extend(frames.iter().map(|frame| self.owners.read(frame)));
        self.targets.clear();
        for head in &self.heads {
            self.targets.push(self.owners.of(head));
        }
        let all = self.targets.iter().fold(0, |all, mask| all | mask);
        if all == 0 {
            self.unclaimed += moved as u64;
        }
        for (index, end) in self.ends.iter_mut().enumerate() {
            if let Some(end) = end
                && all >> index & 1 == 1
            {
                let lost = deliver(
                    frames,
                    &self.targets,
                    index,
                    &mut end.far,
                    &mut self.scratch,
                );
                end.drops.to_full.add(lost.full);
                end.drops.to_too_long.add(lost.too_long);
            }
        }
        self.wire[queue].release();
        moved
    }

    /// Moves a batch from a member to the wire, or to the members that its frames name.
    fn uplink(&mut self, index: usize) -> usize {
        let Some(mut end) = self.ends[index].take() else {
            return 0;
        };
        let room = match end.far.has_frames() {
            true => self.room(index),
            false => LOOPBACK_BATCH_MAX,
        };
        if room == 0 {
            if end.may_be_held() {
                self.held |= 1 << index;
                self.ends[index] = Some(end);
            } else {
                self.owners.left(index);
            }
            return 0;
        }
        let frames = match end.far.receive_some(room) {
            Ok(frames) => frames,
            Err(PortError::Disconnected | PortError::Gone | PortError::Io { .. }) => {
                self.owners.left(index);
                return 0;
            }
        };
        let moved = frames.len();
        self.targets.clear();
        for frame in frames {
            self.targets.push(match self.owners.sent(index, frame) {
                Addressee::Wire => 1,
                Addressee::Members(mask) => mask,
            });
        }
        if self.is_ethernet {
            let nobodys = self.targets.iter().filter(|mask| **mask == 0);
            end.drops.from_nobody.add(nobodys.count() as u64);
            for (other, to) in self.ends.iter_mut().enumerate() {
                if let Some(to) = to {
                    let to = &mut to.far;
                    let lost = deliver(frames, &self.targets, other, to, &mut self.scratch);
                    end.drops.from_full.add(lost.full);
                    end.drops.from_too_long.add(lost.too_long);
                }
            }
        } else if !frames.is_empty() {
            let queue = index % self.wire.len();
            let wire = &mut self.wire[queue];
            let lost = deliver(frames, &self.targets, 0, wire, &mut self.scratch);
            end.drops.from_full.add(lost.full);
            end.drops.from_too_long.add(lost.too_long);
        }
        end.far.release();
        self.ends[index] = Some(end);
        moved
    }

    /// Number of a member's frames for which the wire has room.
    fn room(&mut self, index: usize) -> usize {
        if self.is_ethernet {
            return LOOPBACK_BATCH_MAX;
        }
        let queue = index % self.wire.len();
        self.wire[queue].reserve(LOOPBACK_BATCH_MAX).len()
    }

    fn sleep(&mut self) {
        self.shared.cpu.note();
        // The sleep is announced before the last look, so that a later change wakes this thread.
        self.shared.bell.prepare_sleep();
        if !self.shared.changed.is_raised() {
            let wires = self.wire.len();
            let wire = self.wire.iter_mut().map(|port| port as &mut dyn Port);
            // A member with held frames is not waited for, because only the wire's room can help.
            let held = self.held;
            let ends = self.ends.iter_mut().enumerate();
            let ends = ends.filter(|(index, _)| held >> index & 1 == 0);
            let ends = ends.filter_map(|(_, end)| end.as_mut());
            let mut ports: Vec<&mut dyn Port> = wire
                .chain(ends.map(|end| &mut end.far as &mut dyn Port))
                .collect();
            let (room, timeout_ns) = match held {
                0 => (0, None),
                _ => ((1 << wires) - 1, Some(SWITCH_FAREWELL_NS)),
            };
            let extra: [BorrowedFd<'_>; 1] = [self.shared.bell.fd()];
            // An error (no memory) ends the wait after a moment, like a wake-up.
            if wait_each(&mut ports, &extra, room, timeout_ns).is_err() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        self.shared.bell.cancel_sleep();
    }
}

/// Counts of frames that were not delivered.
struct Lost {
    /// Frames without room, or whose port failed. TCP retransmits them.
    full: u64,
    too_long: u64,
}

/// Delivers the frames marked for `index`, in order, while there is room.
fn deliver<P: Port + ?Sized>(
    frames: &[RxFrame],
    targets: &[u64],
    index: usize,
    to: &mut P,
    scratch: &mut [u8],
) -> Lost {
    let marked = |mask: &u64| mask >> index & 1 == 1;
    let mut chosen = frames
        .iter()
        .zip(targets)
        .filter(|(_, mask)| marked(mask))
        .map(|(frame, _)| frame);
    let mut left = targets.iter().filter(|mask| marked(mask)).count();
    let mut lost_too_long = 0;
    while left > 0 {
        let slots = to.reserve(left.min(to.capabilities().batch_max));
        let count = slots.len();
        if count == 0 {
            break;
        }
        let mut too_long = 0;
        for slot in slots {
            let Some(frame) = chosen.next() else { break };
            let bytes = &mut scratch[..];
            let len = frame.copy_to(0, bytes);
            if len == frame.len() && len <= slot.capacity() {
                slot.set_len(slot.write(0, &bytes[..len]));
            } else {
                too_long += 1;
            }
        }
        if to.send(count).is_err() {
            break;
        }
        lost_too_long += too_long;
        left = left.saturating_sub(count);
    }
    Lost {
        full: left as u64,
        too_long: lost_too_long,
    }
}

#[cfg(test)]
mod tests;
