//! The data path of `path=memif`: threads that move frames between the NIC's AF_XDP sockets and the
//! memif queues of applications, and check what applications send.
//!
//! Each thread has queues of the NIC and one queue of each channel, so no two threads share a
//! queue. An application sends through the first queue of its channel; which thread has that queue
//! depends on the device. Owns the threads `mux-frames`, the ends of their queues of changes, and
//! their counters. The service's thread passes ports and rights on, and never touches a frame.
//!
//! | module | what it is |
//! |---|---|
//! | `switch` | a frames' thread: a turn, a round of the applications, the sleep |
//! | `rights` | changes of the table by which the egress check decides |
//! | `flows` | the flows of a context, learnt from what it sends |
//! | `bucket` | the rate limit of one application |
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
use crate::capabilities::drop_those_of_the_start;
use crate::limits::{CHANGES_MAX, DEVICES, FRAMES_SPIN_NS};
use crate::reason::Reason;

/// Pause of the service's thread between two attempts to add to a full queue of changes.
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
    /// Rate limit in bytes per second; 0: none.
    pub rate: u64,
    /// Bytes that may be sent at once.
    pub burst: u64,
}

/// The service's ends of the frames' threads.
pub struct Frames<N: Send>(Vec<Worker<N>>);

/// The service's end of one frames' thread.
struct Worker<N: Send> {
    changes: Producer<Change<N>>,
    /// Ports that the thread has released. The service's thread unmaps their memory, which takes
    /// long.
    closing: Consumer<Box<MemifPort>>,
    counts: Arc<Counts>,
    /// Wakes the thread.
    bell: Arc<OwnedFd>,
    stop: Arc<Flag>,
    thread: Option<JoinHandle<()>>,
}

impl<N: Port + Send + 'static> Frames<N> {
    /// Starts a thread for each of `books`, without a NIC and without applications.
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

    /// Replaces the NIC's queues and divides them among the threads. Every thread needs at least
    /// one, since an application's frames leave through queues of its thread.
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

    /// Replaces the queues, one for each thread, that lead to clients of the same host; none: there
    /// are no such clients.
    pub fn set_local(&mut self, queues: Vec<N>) {
        let mut queues = queues.into_iter();
        for worker in &mut self.0 {
            worker.tell(Change::Local(queues.next().map(Box::new)));
        }
    }

    /// Adds the channel of a context, and removes the previous one of the device.
    pub fn join(&mut self, channel: Channel) {
        let Channel { device, slot, .. } = channel;
        let limit = (channel.rate, channel.burst);
        let count = self.0.len();
        for (queue, port) in channel.ports.into_iter().enumerate() {
            // The thread of the first queue, through which the application sends, depends on the
            // device.
            let index = (queue + usize::from(device)) % count.max(1);
            let member = Member::new(slot, port, queue == 0, limit);
            if let Some(worker) = self.0.get_mut(index) {
                worker.tell(Change::Join(device, Box::new(member)));
            }
        }
    }

    /// Removes the channel of the device.
    pub fn leave(&mut self, device: u16) {
        for worker in &mut self.0 {
            worker.tell(Change::Leave { device });
        }
    }

    /// Tells the threads that the tables of flows changed for this flow.
    pub fn forget(&mut self, flow: Flow) {
        for worker in &mut self.0 {
            worker.tell(Change::Forget(flow));
        }
    }

    /// Changes a right. A thread applies waiting changes before it refuses a frame, so an
    /// application that hears of a new right can use it at once.
    pub fn set(&mut self, right: &Right) {
        for worker in &mut self.0 {
            worker.tell(Change::Right(right.clone()));
        }
    }

    /// The sum of a device's word over all threads.
    pub fn word(&self, device: u16, word: Word) -> u64 {
        let words = self.0.iter().map(|worker| worker.counts.word(device, word));
        words.sum()
    }

    /// Number of the device's frames that were dropped for this reason.
    pub fn drops(&self, device: u16, reason: Reason) -> u64 {
        let drops = self.0.iter();
        drops
            .map(|worker| worker.counts.drops(device, reason))
            .sum()
    }

    /// True if all threads run.
    pub fn are_running(&self) -> bool {
        self.0.iter().all(|worker| !worker.changes.is_abandoned())
    }
}

impl<N: Port + Send + 'static> Worker<N> {
    /// Starts thread `index` of `count`.
    fn start(book: Box<dyn FlowBook>, (index, count): (usize, usize)) -> io::Result<Self> {
        let (changes, changes_out) = queue(CHANGES_MAX);
        // Room for every device to end once before the service looks.
        let (closing_in, closing) = queue(2 * DEVICES);
        let counts = Arc::new(Counts::default());
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stop = Arc::new(Flag::default());
        let ends = (changes_out, closing_in);
        let mut switch = Switch::new(Arc::clone(&counts), Tracker::new(book), ends, count);
        let (own_bell, own_stop) = (Arc::clone(&bell), Arc::clone(&stop));
        let run = move || {
            // The thread works with those that it has if the kernel refuses.
            let _ = drop_those_of_the_start();
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
            // Room appears soon: the thread takes all changes in each turn, and turns are bounded.
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
        // A full counter means that the bell has rung.
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
            // A thread that panicked has reported that itself.
            let _ = thread.join();
        }
    }
}
