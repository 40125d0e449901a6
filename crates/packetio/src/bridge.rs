//! The engine of `mill wire A B`: it joins two ports through a faulty wire in each direction.
//!
//! The bridge owns both ports and the frames under way. `mill` and tests call it. Any two ports
//! will do: TAPs (the kernel on both sides), the end of a veth through `packet` or `xdp`, memif.
//! Frames leave whole. If a kernel peer left the checksum to hardware (`checksum=partial`, as
//! AF_XDP on a veth needs), the bridge fills it in. `packet` does so itself and also cuts
//! super-frames, so `ethtool -K` is never needed.
//!
//! ```text
//!  A ── receive ─► Line a_to_b ─► reserve, send ── B
//!  A ── send ◄──── Line b_to_a ◄──────── receive ── B
//! ```
//!
//! An idle bridge sleeps in the kernel until a frame arrives, a frame is due, or the stop
//! descriptor is readable.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::fault::{FaultOptions, Line, LineCounters};
use crate::limits::{BRIDGE_TURNS_MAX, FRAME_HEADER_MAX};
use crate::offload::complete_partial;
use crate::port::{ChecksumPolicy, Port, PortCounters, PortError};
use crate::wait::{monotonic_ns, wait_each};

/// The reason why a bridge ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// A port failed.
    #[error("{wire}: {error}")]
    Port {
        /// The port's name.
        wire: String,
        /// The port's error.
        error: PortError,
    },
    /// The sleep failed.
    #[error("wait: {0}")]
    Wait(#[from] io::Error),
}

/// A flag that ends a [`Bridge::run`] from another thread or a signal handler. Clones are handles
/// to the same flag.
#[derive(Clone, Debug)]
pub struct StopFlag(Arc<OwnedFd>);

impl StopFlag {
    /// Makes a flag that is not raised.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(fd)))
    }

    /// Asks the bridge to end.
    pub fn raise(&self) {
        // The write can fail only if the flag was raised very often before.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for StopFlag {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Frames received on the near side.
    pub rx_frames: u64,
    /// Bytes of the received frames.
    pub rx_bytes: u64,
    /// Frames sent on the far side.
    pub tx_frames: u64,
    /// Bytes of the sent frames.
    pub tx_bytes: u64,
    /// Checksums that the bridge filled in.
    pub completed: u64,
    /// Frames dropped because they are longer than the far side takes.
    pub too_long: u64,
    /// Counts of the wire's faults.
    pub line: LineCounters,
}

impl fmt::Display for DirectionStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rx_frames,
            rx_bytes,
            tx_frames,
            tx_bytes,
            completed,
            too_long,
            line,
        } = self;
        write!(
            f,
            "in {rx_frames} frames {rx_bytes} bytes, out {tx_frames} frames {tx_bytes} bytes"
        )?;
        let named = [
            ("lost", line.lost),
            ("duplicated", line.duplicated),
            ("reordered", line.reordered),
            ("corrupted", line.corrupted),
            ("queue full", line.queue_full),
            ("no slot", line.no_slot),
            ("too long", too_long + line.too_long),
            ("checksums completed", *completed),
        ];
        for (name, value) in named.iter().filter(|(_, value)| *value > 0) {
            write!(f, ", {name} {value}")?;
        }
        Ok(())
    }
}

/// Counts of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BridgeStats {
    /// Counts from the first port to the second.
    pub a_to_b: DirectionStats,
    /// Counts from the second port to the first.
    pub b_to_a: DirectionStats,
}

/// The state of one direction.
#[derive(Debug)]
struct Direction {
    line: Line,
    /// True if the near side's peer leaves checksums to hardware.
    completes: bool,
    /// True if frames are due but the far side has no room.
    blocked: bool,
    stats: DirectionStats,
}

/// Two ports and the wires between them.
pub struct Bridge<A, B> {
    a: A,
    b: B,
    a_to_b: Direction,
    b_to_a: Direction,
}

impl<A: Port, B: Port> Bridge<A, B> {
    /// Joins `a` and `b`. `faults.tx` acts on frames from `a` to `b`, `faults.rx` from `b` to `a`.
    pub fn new(a: A, b: B, faults: &FaultOptions) -> Self {
        let mtu = a.capabilities().mtu.max(b.capabilities().mtu);
        let bytes = mtu + FRAME_HEADER_MAX;
        let slots = |line| faults.slots_of(line);
        let to_b = Line::new(&faults.tx, faults.seed, slots(&faults.tx), bytes);
        let to_a = Line::new(&faults.rx, !faults.seed, slots(&faults.rx), bytes);
        Self {
            a_to_b: Direction::new(to_b, &a),
            b_to_a: Direction::new(to_a, &b),
            a,
            b,
        }
    }

    /// Moves at most one batch from each port into its line, and due frames out to the other port.
    /// Returns the number of frames moved. Never blocks.
    ///
    /// # Errors
    /// A port failed. A disconnected peer is no error.
    pub fn turn(&mut self, now_ns: u64) -> Result<usize, BridgeError> {
        let Self {
            a,
            b,
            a_to_b,
            b_to_a,
        } = self;
        let taken = a_to_b.take(a, now_ns)? + b_to_a.take(b, now_ns)?;
        let given = a_to_b.give(b, now_ns)? + b_to_a.give(a, now_ns)?;
        Ok(taken + given)
    }

    /// Runs until `stop` (a [`StopFlag`], a signalfd or a pipe) is readable.
    ///
    /// # Errors
    /// A port or the sleep failed.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> Result<(), BridgeError> {
        loop {
            for _ in 0..BRIDGE_TURNS_MAX {
                if self.turn(monotonic_ns())? == 0 {
                    break;
                }
            }
            if self.sleep(stop)? {
                return Ok(());
            }
        }
    }

    /// Sleeps until there is work; true if `stop` is readable. With work at hand it only polls.
    fn sleep(&mut self, stop: BorrowedFd<'_>) -> Result<bool, BridgeError> {
        let due = [&self.a_to_b, &self.b_to_a]
            .into_iter()
            .filter(|d| !d.blocked)
            .filter_map(|d| d.line.next_due_ns())
            .min();
        let timeout = due.map(|at| at.saturating_sub(monotonic_ns()));
        if timeout == Some(0) {
            return is_readable(stop);
        }
        let want_tx = u64::from(self.b_to_a.blocked) | u64::from(self.a_to_b.blocked) << 1;
        let ports: &mut [&mut dyn Port] = &mut [&mut self.a, &mut self.b];
        let woken = wait_each(ports, &[stop], want_tx, timeout)?;
        Ok(woken.extra(0))
    }

    /// The counts so far.
    pub fn stats(&self) -> BridgeStats {
        BridgeStats {
            a_to_b: self.a_to_b.stats(),
            b_to_a: self.b_to_a.stats(),
        }
    }

    /// The ports' own counters.
    pub fn port_counters(&self) -> (PortCounters, PortCounters) {
        (self.a.counters(), self.b.counters())
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> Result<bool, BridgeError> {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(BridgeError::Wait(e.into())),
    }
}

/// Treats a disconnected peer as nothing to do; any other error ends the bridge.
fn tolerate<P: Port>(port: &P, error: PortError) -> Result<usize, BridgeError> {
    if error == PortError::Disconnected {
        return Ok(0);
    }
    Err(BridgeError::Port {
        wire: port.capabilities().name.clone(),
        error,
    })
}

impl Direction {
    fn new(line: Line, from: &impl Port) -> Self {
        Self {
            line,
            completes: from.capabilities().rx_checksum == ChecksumPolicy::AcceptPartial,
            blocked: false,
            stats: DirectionStats::default(),
        }
    }

    /// Moves one batch from `from` into the line.
    fn take(&mut self, from: &mut impl Port, now_ns: u64) -> Result<usize, BridgeError> {
        let frames = match from.receive() {
            Ok(frames) => frames,
            Err(error) => return tolerate(from, error),
        };
        let n = frames.len();
        for frame in frames {
            self.stats.rx_frames += 1;
            self.stats.rx_bytes += frame.len() as u64;
            let Some(mut buf) = self.line.take_slot() else {
                self.line.count_no_slot();
                continue;
            };
            if !buf.copy_frame(frame) {
                self.line.count_too_long();
                self.line.give_slot(buf);
                continue;
            }
            if self.completes && complete_partial(buf.bytes_mut()) {
                self.stats.completed += 1;
            }
            self.line.offer(now_ns, buf);
        }
        from.release();
        Ok(n)
    }

    /// Moves due frames to `to` while it has room.
    fn give(&mut self, to: &mut impl Port, now_ns: u64) -> Result<usize, BridgeError> {
        self.blocked = false;
        let capabilities = to.capabilities();
        let frame_max = capabilities.mtu + FRAME_HEADER_MAX;
        let due = self.line.due_count(now_ns, capabilities.batch_max);
        if due == 0 {
            return Ok(0);
        }
        let slots = to.reserve(due);
        self.blocked = slots.is_empty();
        let (mut moved, mut frames, mut bytes) = (0, 0, 0);
        for slot in slots {
            let Some(buf) = self.line.pop_due(now_ns) else {
                break;
            };
            moved += 1;
            if buf.len() > frame_max.min(slot.capacity()) {
                self.stats.too_long += 1;
            } else {
                slot.set_len(slot.write(0, buf.bytes()));
                frames += 1;
                bytes += buf.len() as u64;
            }
            self.line.give_slot(buf);
        }
        if let Err(error) = to.send(moved) {
            // The port itself counts the frames that it dropped.
            return tolerate(to, error);
        }
        self.stats.tx_frames += frames;
        self.stats.tx_bytes += bytes;
        Ok(moved)
    }

    fn stats(&self) -> DirectionStats {
        DirectionStats {
            line: self.line.counters(),
            ..self.stats
        }
    }
}

#[cfg(test)]
mod tests;
