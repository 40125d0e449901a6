//! The data path of `path=memif`: threads that move frames between the NIC's AF_XDP sockets and the
//! memif queues of applications, and check what applications send.
//!
//! Each thread has queues of the NIC and one queue of each channel, so no two threads meet in a
//! queue. An application sends by the first queue of its channel, which is another thread's for
//! each device. Owns the threads `mux-frames`, the ends of their queues of changes, and their
//! counters. The service's thread says who has which port and which rights; it never touches a
//! frame.
//!
//! | module | what it is |
//! |---|---|
//! | `switch` | a frames' thread: a turn, a round of the applications, the sleep |
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
use packetio::spin::Spin;
use packetio::wait::monotonic_ns;
use ring::published::Flag;
use ring::spsc::{Consumer, Producer, queue};
use rustix::event::{EventfdFlags, eventfd};

pub use counts::{Counts, Word};
pub use flows::{Flow, FlowBook};
pub use rights::Right;

use self::flows::Tracker;
use self::switch::{Change, Member, Switch};
use crate::limits::{CHANGES_MAX, DEVICES, FRAMES_SPIN_NS};
use crate::reason::Reason;

/// How long the service's thread sleeps between two looks at a queue of changes that is full.
const FULL_PAUSE: Duration = Duration::from_micros(50);

/// The channel of a context.
#[derive(Debug)]
pub struct Channel {
    /// The device.
    pub device: u16,
    /// The application.
    pub slot: u16,
    /// The service's end: a port for each thread, in the order of the channel's queues.
    pub ports: Vec<MemifPort>,
    /// Bytes a second that may be sent; 0: as many as it likes.
    pub rate: u64,
    /// Bytes that may be sent at once.
    pub burst: u64,
}

/// The service's ends of the frames' threads.
pub struct Frames<N: Send>(Vec<Worker<N>>);

/// The service's end of one frames' thread.
struct Worker<N: Send> {
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
    /// Starts a thread for each of `books`; they have neither a NIC nor applications yet.
    ///
    /// # Errors
    /// The process is out of descriptors or threads.
    pub fn start(books: Vec<Box<dyn FlowBook>>) -> io::Result<Self> {
        let count = books.len();
        let start = |(index, book)| Worker::start(book, (index, count));
        let workers: io::Result<Vec<_>> = books.into_iter().enumerate().map(start).collect();
        workers.map(Self)
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.0.len()
    }

    /// From now on these are the NIC's queues, each one thread's. Every thread needs one, since an
    /// application's frames leave by queues of one thread.
    pub fn set_nic(&mut self, queues: Vec<N>) {
        let mut shares: Vec<Vec<N>> = self.0.iter().map(|_| Vec::new()).collect();
        for (queue, port) in queues.into_iter().enumerate() {
            let index = queue % shares.len().max(1);
            if let Some(share) = shares.get_mut(index) {
                share.push(port);
            }
        }
        for (worker, share) in self.0.iter_mut().zip(shares) {
            worker.tell(Change::Nic(share));
        }
    }

    /// From now on these queues, one for each thread, lead to clients of the same host; none: there
    /// are no such clients.
    pub fn set_local(&mut self, queues: Vec<N>) {
        let mut queues = queues.into_iter();
        for worker in &mut self.0 {
            worker.tell(Change::Local(queues.next().map(Box::new)));
        }
    }

    /// A context has this channel; one that the device had ends.
    pub fn join(&mut self, channel: Channel) {
        let Channel { device, slot, .. } = channel;
        let limit = (channel.rate, channel.burst);
        let count = self.0.len();
        for (queue, port) in channel.ports.into_iter().enumerate() {
            // The first queue, by which the application sends, is another thread's for each device.
            let index = (queue + usize::from(device)) % count.max(1);
            let member = Member::new(slot, port, queue == 0, limit);
            if let Some(worker) = self.0.get_mut(index) {
                worker.tell(Change::Join(device, Box::new(member)));
            }
        }
    }

    /// The device is nobody's.
    pub fn leave(&mut self, device: u16) {
        for worker in &mut self.0 {
            worker.tell(Change::Leave { device });
        }
    }

    /// The tables of flows changed for this flow.
    pub fn forget(&mut self, flow: Flow) {
        for worker in &mut self.0 {
            worker.tell(Change::Forget(flow));
        }
    }

    /// Changes a right. What a change allows is allowed before an application that hears of it can
    /// send: changes are applied before frames are refused.
    pub fn set(&mut self, right: &Right) {
        for worker in &mut self.0 {
            worker.tell(Change::Right(right.clone()));
        }
    }

    /// The sum of a word of a device over all threads.
    pub fn word(&self, device: u16, word: Word) -> u64 {
        let words = self.0.iter().map(|worker| worker.counts.word(device, word));
        words.sum()
    }

    /// Frames of the device that were dropped for this reason.
    pub fn drops(&self, device: u16, reason: Reason) -> u64 {
        let drops = self.0.iter();
        drops
            .map(|worker| worker.counts.drops(device, reason))
            .sum()
    }

    /// Whether all threads run.
    pub fn are_running(&self) -> bool {
        self.0.iter().all(|worker| !worker.changes.is_abandoned())
    }
}

impl<N: Port + Send + 'static> Worker<N> {
    /// Starts thread `index` of `count`.
    fn start(book: Box<dyn FlowBook>, (index, count): (usize, usize)) -> io::Result<Self> {
        let (changes, changes_out) = queue(CHANGES_MAX);
        // Every device may end once more while the service has not looked.
        let (closing_in, closing) = queue(2 * DEVICES);
        let counts = Arc::new(Counts::default());
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stop = Arc::new(Flag::default());
        let ends = (changes_out, closing_in);
        let mut switch = Switch::new(Arc::clone(&counts), Tracker::new(book), ends, count);
        let (own_bell, own_stop) = (Arc::clone(&bell), Arc::clone(&stop));
        let run = move || {
            let mut spin = Spin::new(FRAMES_SPIN_NS);
            while !own_stop.is_raised() {
                let now_ns = monotonic_ns();
                if switch.turn(now_ns) > 0 {
                    spin.worked(now_ns);
                } else if spin.looks_on(now_ns) {
                    // An application may need this very core to answer.
                    std::thread::yield_now();
                } else {
                    switch.sleep(&own_bell);
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("mux-frames-{index}"));
        Ok(Self {
            changes,
            closing,
            counts,
            bell,
            stop,
            thread: Some(thread.spawn(run)?),
        })
    }

    fn tell(&mut self, change: Change<N>) {
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
}

impl<N: Send> Worker<N> {
    fn wake(&self) {
        // A counter that is full has rung already.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

impl<N: Send> std::fmt::Debug for Frames<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Frames").field(&self.0.len()).finish()
    }
}

impl<N: Send> Drop for Worker<N> {
    fn drop(&mut self) {
        self.stop.raise();
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
