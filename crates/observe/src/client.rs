//! A reader's connection to the agent of one process. The process may be hostile, so answers are
//! checked, and the client waits a limited time for each.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use crate::limits::{ANSWER_BYTES_MAX, ANSWER_MS_MAX};
use crate::message::{HEADER_BYTES, Header, kind};
use crate::packet;
use crate::reader::Statistics;

/// See the module's documentation.
pub struct Client {
    socket: OwnedFd,
    path: PathBuf,
    pid: u32,
    requests: u32,
    patience: Duration,
    /// A request has no answer yet. The agent takes no other one from this connection before that.
    is_waiting: bool,
    /// Device and inode of the socket's file, where a reader found it in a directory.
    file: Option<(u64, u64)>,
    /// Room for an answer, kept for the next one.
    bytes: Vec<u8>,
}

/// An answer of the agent.
#[derive(Debug)]
pub struct Answer {
    /// The body of the answer. It comes from another process, so it must be checked.
    pub body: Vec<u8>,
    /// The descriptor that came with the answer.
    pub file: Option<OwnedFd>,
}

impl Client {
    /// Connects to the agent at `path`.
    ///
    /// # Errors
    /// Errors of `connect`: `CONNREFUSED` if the process is gone.
    pub fn connect(path: &Path) -> Result<Self, Errno> {
        Self::connect_through(path, path.to_owned())
    }

    /// Connects to the agent at `path`, to which `through` leads.
    pub(crate) fn connect_through(through: &Path, path: PathBuf) -> Result<Self, Errno> {
        let socket = packet::socket()?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(through)?)?;
        let peer = rustix::net::sockopt::socket_peercred(&socket)?;
        Ok(Self {
            socket,
            path,
            pid: peer.pid.as_raw_nonzero().get() as u32,
            requests: 0,
            patience: Duration::from_millis(ANSWER_MS_MAX),
            is_waiting: false,
            file: None,
            bytes: vec![0; HEADER_BYTES + ANSWER_BYTES_MAX],
        })
    }

    /// The same client, whose socket is this file.
    pub(crate) fn with_file(mut self, file: (u64, u64)) -> Self {
        self.file = Some(file);
        self
    }

    /// Device and inode of the socket's file; `None` if the client was not found in a directory.
    #[must_use]
    pub fn file(&self) -> Option<(u64, u64)> {
        self.file
    }

    /// Process id of the agent, as the kernel reports it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Connects to the same process anew after a request that has timed out, so that other contexts
    /// can be asked meanwhile. The old connection stays if the agent does not answer on the new one:
    /// a stopped process accepts none, and connections that it has not accepted fill its queue.
    ///
    /// # Errors
    /// Errors of `connect`; `SRCH` if another process listens there now; `TIMEDOUT` if the agent
    /// does not answer.
    pub fn reconnect(&mut self) -> Result<(), Errno> {
        let mut again = Self::connect(&self.path)?;
        if again.pid != self.pid {
            return Err(Errno::SRCH);
        }
        again.patience = self.patience;
        again.ask(0, kind::STATISTICS, &[])?;
        (self.socket, self.is_waiting) = (again.socket, false);
        Ok(())
    }

    /// The path of the agent's socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits so long for answers from now on.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Maps the statistics of the process.
    ///
    /// # Errors
    /// The errors of [`ask`](Self::ask); `INVAL` if the descriptor is not a statistics file.
    pub fn statistics(&mut self) -> Result<Statistics, Errno> {
        let answer = self.ask(0, kind::STATISTICS, &[])?;
        Statistics::open(answer.file.ok_or(Errno::PROTO)?)
    }

    /// Has the context at `slot` copy its values to the statistics file now.
    ///
    /// # Errors
    /// The errors of [`ask`](Self::ask).
    pub fn publish(&mut self, slot: u16) -> Result<(), Errno> {
        self.ask(slot, kind::PUBLISH, &[]).map(|_| ())
    }

    /// Asks the context at `slot`, and waits for its answer. After a request that has timed out, the
    /// answer to that one is awaited first.
    ///
    /// # Errors
    /// The context's errno; `TIMEDOUT` without an answer; `PIPE` if the process is gone or refused
    /// us; `PROTO` and `MSGSIZE` for a malformed answer.
    pub fn ask(&mut self, slot: u16, kind: u16, body: &[u8]) -> Result<Answer, Errno> {
        let end = Instant::now() + self.patience;
        while self.is_waiting {
            let (length, _) = self.receive(end)?;
            let (header, _) = Header::decode(&self.bytes[..length], ANSWER_BYTES_MAX)?;
            self.is_waiting = header.request != self.requests;
        }
        self.requests = self.requests.wrapping_add(1);
        let asked = Header {
            kind,
            request: self.requests,
            slot,
            errno: 0,
            body_bytes: body.len() as u32,
        };
        packet::send(&self.socket, &asked.encode(), body, None)?;
        self.is_waiting = true;
        loop {
            let (length, file) = self.receive(end)?;
            let (header, body) = Header::decode(&self.bytes[..length], ANSWER_BYTES_MAX)?;
            // A hostile process may send answers that nobody has asked for.
            if header.request != asked.request {
                continue;
            }
            self.is_waiting = false;
            if header.errno != 0 {
                return Err(Errno::from_raw_os_error(i32::from(header.errno)));
            }
            let body = body.to_vec();
            return Ok(Answer { body, file });
        }
    }

    /// Receives a packet with its descriptor.
    fn receive(&mut self, end: Instant) -> Result<(usize, Option<OwnedFd>), Errno> {
        loop {
            match packet::receive(&self.socket, &mut self.bytes) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(Errno::PIPE),
                Ok(got) => return Ok(got),
                Err(Errno::AGAIN | Errno::INTR) => self.wait(end)?,
                Err(errno) => return Err(errno),
            }
        }
    }

    fn wait(&self, end: Instant) -> Result<(), Errno> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT);
        }
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut polled = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        match poll(&mut polled, Some(&left)) {
            Err(errno) if errno != Errno::INTR => Err(errno),
            _ => Ok(()),
        }
    }
}
