//! One thread of the server: its listeners, its poll, its connections, and the loop over them.
//!
//! ```text
//! wait ─► stop? ─► accept a batch ─► visit what is ready ─► time out what is due ─► wait
//! ```

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime};

use slab::Slab;

use super::connection::{Connection, Desk, Visit};
use super::documents::Documents;
use super::log;
use super::stats::Stats;
use super::timeouts::{Reason, Timeouts};
use crate::limits::ACCEPT_BATCH_MAX;
use crate::net::{Interest, Net, Ready};

const STOP: usize = 0;
/// The first token of a listener. The tokens of connections follow those of the listeners.
const FIRST_LISTENER: usize = 1;

struct Entry<N: Net> {
    connection: Connection<N>,
    interest: Interest,
}

/// A worker: one thread's part of the server.
pub struct Worker<N: Net> {
    net: N,
    poll: N::Poll,
    listeners: Vec<N::Listener>,
    /// The listeners are not registered, because the worker has reached its limit of connections.
    is_full: bool,
    connections: Slab<Entry<N>>,
    connections_max: usize,
    timeouts: Timeouts,
    desk: Desk,
    start: Instant,
}

impl<N: Net> Worker<N> {
    pub fn new(
        net: N,
        listeners: Vec<N::Listener>,
        documents: Documents,
        connections_max: usize,
    ) -> io::Result<Self> {
        let poll = net.poll()?;
        let mut worker = Self {
            net,
            poll,
            listeners,
            is_full: false,
            connections: Slab::new(),
            connections_max,
            timeouts: Timeouts::new(),
            desk: Desk::new(documents),
            start: Instant::now(),
        };
        worker.start_accepting()?;
        Ok(worker)
    }

    /// Serves until `stop` is readable or hangs up.
    pub fn run(mut self, stop: BorrowedFd<'_>) -> io::Result<Stats> {
        self.net.register_fd(&mut self.poll, stop, STOP)?;
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            let timeout = self.timeout();
            self.net.wait(&mut self.poll, &mut ready, timeout)?;
            self.look_at_clock();
            for &Ready { token } in &ready {
                match token {
                    STOP => return Ok(self.stop()),
                    token if token < self.first_connection() => {
                        self.accept(token - FIRST_LISTENER)?
                    }
                    token => self.visit(token - self.first_connection())?,
                }
            }
            self.time_out()?;
        }
    }

    fn stop(mut self) -> Stats {
        let mut stats = std::mem::take(&mut self.desk.stats);
        stats.stack.extend(self.net.counters());
        stats
    }

    fn timeout(&self) -> Option<Duration> {
        let due_ns = self.timeouts.next_due_ns()?;
        let now_ns = self.start.elapsed().as_nanos() as u64;
        Some(Duration::from_nanos(due_ns.saturating_sub(now_ns)))
    }

    /// Reads the clocks once per turn of the loop.
    fn look_at_clock(&mut self) {
        self.desk.now_ns = self.start.elapsed().as_nanos() as u64;
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seconds = since_1970.map_or(0, |time| time.as_secs());
        self.desk.date.update(seconds);
    }

    /// The token of the first connection in the slab.
    fn first_connection(&self) -> usize {
        FIRST_LISTENER + self.listeners.len()
    }

    fn accept(&mut self, index: usize) -> io::Result<()> {
        for _ in 0..ACCEPT_BATCH_MAX {
            if self.connections.len() >= self.connections_max {
                return self.stop_accepting();
            }
            match self.net.accept(&self.listeners[index]) {
                Ok((stream, _)) => self.welcome(stream)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_of_one_connection(&error) => {}
                // Without descriptors or memory, wait until a connection ends, if there is one.
                Err(error) if !self.connections.is_empty() => {
                    log::ACCEPT_FAILED.warn(format_args!("accept: {error}"));
                    return self.stop_accepting();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn welcome(&mut self, stream: N::Stream) -> io::Result<()> {
        let first_connection = self.first_connection();
        let slot = self.connections.vacant_entry();
        let key = slot.key();
        self.net.register(
            &mut self.poll,
            &stream,
            key + first_connection,
            Interest::Read,
        )?;
        slot.insert(Entry {
            connection: Connection::new(stream),
            interest: Interest::Read,
        });
        self.desk.stats.connections += 1;
        self.timeouts.set(key, Reason::Idle, self.desk.now_ns);
        Ok(())
    }

    fn start_accepting(&mut self) -> io::Result<()> {
        self.is_full = false;
        for (index, listener) in self.listeners.iter().enumerate() {
            self.net
                .register_listener(&mut self.poll, listener, FIRST_LISTENER + index)?;
        }
        Ok(())
    }

    fn stop_accepting(&mut self) -> io::Result<()> {
        // Another listener in this batch of events may have reached the limit before.
        if self.is_full {
            return Ok(());
        }
        self.desk.stats.full += 1;
        self.is_full = true;
        for listener in &self.listeners {
            self.net.deregister_listener(&mut self.poll, listener)?;
        }
        Ok(())
    }

    fn visit(&mut self, key: usize) -> io::Result<()> {
        // The connection may have been closed earlier in this batch of events.
        let Some(entry) = self.connections.get_mut(key) else {
            return Ok(());
        };
        let visit = entry.connection.visit(&self.net, &mut self.desk);
        self.apply(key, visit)
    }

    fn apply(&mut self, key: usize, visit: Visit) -> io::Result<()> {
        match visit {
            Visit::Wait {
                interest,
                reason,
                progress,
            } => {
                let token = key + self.first_connection();
                let entry = &mut self.connections[key];
                if entry.interest != interest {
                    entry.interest = interest;
                    let stream = &entry.connection.stream;
                    self.net
                        .reregister(&mut self.poll, stream, token, interest)?;
                }
                if progress || self.timeouts.reason(key) != Some(reason) {
                    self.timeouts.set(key, reason, self.desk.now_ns);
                }
                Ok(())
            }
            Visit::Close => self.leave(key).map(drop),
            Visit::Abort => {
                self.desk.stats.aborted += 1;
                let stream = self.leave(key)?;
                self.net.abort(stream);
                Ok(())
            }
        }
    }

    /// Removes the connection. The caller closes its stream by dropping it.
    fn leave(&mut self, key: usize) -> io::Result<N::Stream> {
        self.timeouts.remove(key);
        let entry = self.connections.remove(key);
        if self.is_full {
            self.start_accepting()?;
        }
        Ok(entry.connection.stream)
    }

    fn time_out(&mut self) -> io::Result<()> {
        while let Some((key, reason)) = self.timeouts.pop_due(self.desk.now_ns) {
            self.desk.stats.timeouts += 1;
            let connection = &mut self.connections[key].connection;
            let visit = connection.time_out(&self.net, &mut self.desk, reason);
            self.apply(key, visit)?;
        }
        Ok(())
    }
}

/// True for errors of accept about a connection that is gone already (accept(2)).
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionAborted
            | Kind::ConnectionReset
            | Kind::Interrupted
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};

    use super::*;
    use crate::net::kernel::Kernel;
    use crate::serve::testing::Site;

    /// More connections than one visit used to accept; the others had to wait for whole rounds.
    #[test]
    fn listener_with_a_crowd_is_emptied_by_one_visit() {
        const CROWD: usize = 300;
        let site = Site::new("serve-crowd");
        let listener = Kernel.listen(([127, 0, 0, 1], 0).into(), CROWD).unwrap();
        let address = rustix::net::getsockname(&listener).unwrap();
        let address = SocketAddr::try_from(address).unwrap();
        let documents = Documents::open(&site.path).unwrap();
        let mut worker = Worker::new(Kernel, vec![listener], documents, 2 * CROWD).unwrap();
        let crowd: Vec<_> = (0..CROWD).map(|_| TcpStream::connect(address)).collect();
        assert!(crowd.iter().all(Result::is_ok));
        worker.accept(0).unwrap();
        assert_eq!(worker.connections.len(), CROWD);
    }
}
