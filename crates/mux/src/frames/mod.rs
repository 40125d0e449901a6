//! The data path of `path=memif`: a thread that moves frames between the NIC's AF_XDP sockets and
//! the memif queues of applications, and checks what applications send.
//!
//! Owns the thread `mux-frames`, its end of the queue of changes, and its counters. The service's
//! thread says who has which port and which rights; it never touches a frame.
//!
//! | module | what it is |
//! |---|---|
//! | `switch` | the frames' thread: a turn, a round of the applications, the sleep |
//! | `rights` | changes of the table by which the egress check decides |
//! | `flows` | which flows are a context's, by what it sends |
//! | `bucket` | the rate of one application |
//! | `counts` | counters of each device |

mod bucket;
mod counts;
mod flows;
mod rights;
mod switch;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use packetio::Port;
use packetio::memif::MemifPort;
use packetio::wait::monotonic_ns;
use ring::published::Flag;
use ring::spsc::{Consumer, Producer, queue};
use rustix::event::{EventfdFlags, eventfd};

pub use counts::{Counts, Word};
pub use flows::{Flow, FlowBook};
pub use rights::Right;

use self::flows::Tracker;
use self::switch::Switch;
use crate::limits::{CHANGES_MAX, DEVICES};

/// How long the service's thread sleeps between two looks at a queue of changes that is full.
const FULL_PAUSE: Duration = Duration::from_micros(50);

/// News from the service's thread to the frames' thread.
#[derive(Debug)]
pub enum Change<N> {
    /// From now on these are the NIC's queues.
    Nic(Vec<N>),
    /// A context's channel; one that the device had ends.
    Join {
        /// The device.
        device: u16,
        /// The application.
        slot: u16,
        /// The service's end of the channel.
        port: Box<MemifPort>,
        /// Bytes a second that may be sent; 0: as many as it likes.
        rate: u64,
        /// Bytes that may be sent at once.
        burst: u64,
    },
    /// The device is nobody's.
    Leave {
        /// The device.
        device: u16,
    },
    /// The tables of flows changed for this flow.
    Forget(Flow),
    /// The table of rights changes.
    Right(Right),
}

/// The service's end of the frames' thread.
pub struct Frames<N: Send> {
    changes: Producer<Change<N>>,
    /// Ports that the thread has let go of: unmapping their memory takes time that frames have not.
    closing: Consumer<Box<MemifPort>>,
    counts: Arc<Counts>,
    /// Wakes the thread.
    bell: Arc<OwnedFd>,
    stop: Arc<Flag>,
    thread: Option<JoinHandle<()>>,
}

impl<N: Port + Send + 'static> Frames<N> {
    /// Starts the thread, which has neither a NIC nor applications yet.
    ///
    /// # Errors
    /// The process is out of descriptors or threads.
    pub fn start(book: Box<dyn FlowBook>) -> io::Result<Self> {
        let (changes, changes_out) = queue(CHANGES_MAX);
        // Every device may end once more while the service has not looked.
        let (closing_in, closing) = queue(2 * DEVICES);
        let counts = Arc::new(Counts::default());
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stop = Arc::new(Flag::default());
        let tracker = Tracker::new(book);
        let mut switch = Switch::new(Arc::clone(&counts), tracker, changes_out, closing_in);
        let (own_bell, own_stop) = (Arc::clone(&bell), Arc::clone(&stop));
        let run = move || {
            while !own_stop.is_raised() {
                if switch.turn(monotonic_ns()) == 0 {
                    switch.sleep(&own_bell);
                }
            }
        };
        let thread = std::thread::Builder::new().name("mux-frames".to_owned());
        Ok(Self {
            changes,
            closing,
            counts,
            bell,
            stop,
            thread: Some(thread.spawn(run)?),
        })
    }

    /// Tells the thread. What a change allows is allowed before an application that hears of it can
    /// send: changes are applied before frames are refused.
    pub fn tell(&mut self, change: Change<N>) {
        while self.closing.pop().is_some() {}
        let mut change = change;
        while let Err(back) = self.changes.push(change) {
            // The thread takes all changes in each turn, and a turn is bounded.
            if self.changes.is_abandoned() {
                return;
            }
            change = back;
            self.wake();
            std::thread::sleep(FULL_PAUSE);
        }
        self.wake();
    }

    /// Changes a right.
    pub fn set(&mut self, right: Right) {
        self.tell(Change::Right(right));
    }

    /// The counters.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether the thread runs.
    pub fn is_running(&self) -> bool {
        !self.changes.is_abandoned()
    }
}

impl<N: Send> Frames<N> {
    fn wake(&self) {
        // A counter that is full has rung already.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

impl<N: Send> std::fmt::Debug for Frames<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Frames").field(&self.counts).finish()
    }
}

impl<N: Send> Drop for Frames<N> {
    fn drop(&mut self) {
        self.stop.raise();
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
