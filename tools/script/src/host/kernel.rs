//! This machine's kernel as the host of a script: real sockets in a network namespace of their own,
//! a TUN device for the wire, real time.
//!
//! The host is made and used on one thread, which it moves into the namespace. The machine's own
//! network is not touched, and the namespace vanishes with the thread. This thread also reads and
//! writes the device; TCP has processed a packet when its write returns. A second thread
//! ([`Caller`]) makes the calls, so that one may block while the script goes on.

mod aggregate;
mod caller;
#[allow(unsafe_code)]
mod calls_unsafe;
mod namespace;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use posix::{Errno, Reply, Request, number};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::aggregate::HEADER_BYTES;
use self::caller::Caller;
use super::{Answer, Departure, Host};
use crate::ast::Micros;
use crate::config::Config;

/// Longest time that a call may block although the script expects it to return at once.
const UNEXPECTED_BLOCK_MAX: Micros = 10 * 1_000_000;

/// The setting that a namespace may be forbidden to change.
const CONGESTION: &str = "net.ipv4.tcp_congestion_control";

/// The longest IP packet.
const PACKET_BYTES_MAX: usize = 65_536;

pub(crate) struct Kernel {
    tun: OwnedFd,
    caller: Caller,
    /// Open descriptors, to be closed at the end.
    open: Vec<i32>,
    began: Instant,
    /// The start in ns since 1970, for time stamps of the clock of the day.
    epoch_ns: i64,
    departed: VecDeque<Departure>,
    buffer: Vec<u8>,
    /// Segment size in bytes that injected aggregates were merged from. 0: nothing is aggregated,
    /// and packets have no header for the device.
    mss: usize,
    changed: namespace::Parameters,
    /// The congestion control given to each socket, where the namespace may not set a default.
    congestion: Option<String>,
}

impl Kernel {
    /// Moves the calling thread into a new network namespace with these addresses and settings.
    pub(crate) fn new(
        config: &Config,
        settings: &BTreeMap<String, String>,
    ) -> Result<Kernel, String> {
        let tun = namespace::enter(config)?;
        let mut changed = namespace::Parameters::default();
        let mut congestion = None;
        for (name, value) in settings {
            // Not every kernel has every setting. A script that needs a missing one fails by its
            // expectations.
            if changed.set(name, value).is_err() && name == CONGESTION {
                congestion = Some(value.clone());
            }
        }
        // Real-time priority makes the clock more exact, but needs a privilege.
        let _ = calls_unsafe::run_before_others();
        let caller = Caller::spawn().map_err(|e| format!("thread for calls: {e}"))?;
        let mut made = Kernel {
            tun,
            caller,
            open: Vec::new(),
            began: Instant::now(),
            epoch_ns: 0,
            departed: VecDeque::new(),
            buffer: vec![0; HEADER_BYTES + PACKET_BYTES_MAX],
            mss: config.mss,
            changed,
            congestion,
        };
        made.turn();
        // IPv6 sends packets of its own when a device comes up. The script does not expect those.
        made.departed.clear();
        made.began = Instant::now();
        made.epoch_ns = since_1970_ns();
        Ok(made)
    }

    /// Waits until a packet has left or a call is over, at most until `limit`.
    fn sleep(&self, limit: Micros) -> bool {
        let limit = Duration::from_micros(limit.unsigned_abs());
        let wait = limit.saturating_sub(self.began.elapsed());
        let timeout = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let mut fds = [
            PollFd::new(&self.tun, PollFlags::IN),
            PollFd::from_borrowed_fd(self.caller.bell(), PollFlags::IN),
        ];
        matches!(poll(&mut fds, Some(&timeout)), Ok(ready) if ready > 0)
    }

    fn choose_congestion(&self, fd: i32) {
        if let Some(name) = &self.congestion {
            let _: (_, Reply) = calls_unsafe::perform(&Request::Setsockopt {
                fd,
                level: number::SOL_TCP,
                name: number::TCP_CONGESTION,
                value: name.clone().into_bytes(),
            });
        }
    }

    /// Records the descriptor that a call opened.
    fn note(&mut self, request: &Request, result: &Result<i64, Errno>) {
        if let Request::Socket { .. } | Request::Accept { .. } | Request::EpollCreate { .. } =
            request
            && let Ok(fd) = result
        {
            self.open.push(*fd as i32);
        }
    }
}

fn since_1970_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as i64)
}

impl Host for Kernel {
    fn now(&self) -> Micros {
        self.began.elapsed().as_micros() as Micros
    }

    fn epoch_ns(&self) -> i64 {
        self.epoch_ns
    }

    fn turn(&mut self) {
        while let Ok(len) = rustix::io::read(&self.tun, &mut self.buffer) {
            let at = self.now();
            let header = if self.mss > 0 { HEADER_BYTES } else { 0 };
            let packet = self.buffer[header.min(len)..len].to_vec();
            self.departed.push_back(Departure { at, packet });
        }
    }

    fn step(&mut self, limit: Micros) -> bool {
        let happened = self.now() < limit && self.sleep(limit);
        self.turn();
        happened
    }

    fn begin(&mut self, request: Request, blocks: bool) {
        // Close frees the number at once, even if it waits. Forget it here: the next descriptor may
        // get it.
        if let Request::Close { fd } = request {
            self.open.retain(|&open| open != fd);
        }
        self.caller.begin(request);
        if blocks {
            self.caller.wait_asleep();
        }
    }

    fn outcome(&mut self) -> Option<Answer> {
        let (request, answer) = self.caller.outcome()?;
        self.note(&request, &answer.0);
        if let (Request::Socket { .. }, Ok(fd)) = (&request, answer.0) {
            self.choose_congestion(fd as i32);
        }
        self.turn();
        Some(answer)
    }

    fn abandon(&mut self) {
        self.caller.abandon();
    }

    fn at_once(&mut self, request: Request) -> Option<Answer> {
        Some(calls_unsafe::perform(&request))
    }

    fn unexpected_block_max(&self) -> Micros {
        UNEXPECTED_BLOCK_MAX
    }

    fn takes_aggregates(&self) -> bool {
        true
    }

    fn inject(&mut self, packets: &[Vec<u8>]) -> Result<(), String> {
        for packet in packets {
            let with_header = aggregate::with_header(packet, self.mss);
            let written = rustix::io::write(self.tun.as_fd(), &with_header);
            written.map_err(|errno| format!("write to the TUN device: {errno}"))?;
        }
        self.turn();
        Ok(())
    }

    fn departed(&mut self) -> Option<Departure> {
        self.departed.pop_front()
    }

    fn knows(&self, _name: &str, _value: &str) -> bool {
        true
    }

    fn set(&mut self, name: &str, value: &str) -> bool {
        let is_set = self.changed.set(name, value).is_ok();
        if name == CONGESTION {
            self.congestion = (!is_set).then(|| value.to_owned());
        }
        is_set
    }

    /// Ignored: the thread that makes the calls keeps its capabilities.
    fn set_capability(&mut self, _number: u32, _is_on: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn forget_peers(&mut self) -> bool {
        namespace::forget_peers()
    }

    fn congest(&mut self, is_congested: bool) -> bool {
        namespace::congest(is_congested)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for fd in self.open.drain(..) {
            // Shutdown wakes a call that blocks on the socket.
            let how = number::SHUT_RDWR;
            let _: (_, Reply) = calls_unsafe::perform(&Request::Shutdown { fd, how });
            let _ = calls_unsafe::perform(&Request::Close { fd });
        }
    }
}
