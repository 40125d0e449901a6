//! The agent: one thread per process that listens for readers and carries their requests to the
//! contexts.
//!
//! The agent owns the socket, the statistics file and its end of every mailbox. It waits for no
//! reader: a reader whose queue is full, or who sends nonsense, is disconnected.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ring::doorbell::StackBell;
use ring::due::Due;
use ring::published::Flag;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags, accept_with, bind, listen};
use rustix::process::geteuid;

use crate::client::Client;
use crate::limits::{CLIENTS_MAX, FIRST_REQUEST_MS_MAX, REQUEST_BYTES_MAX, SILENT_MS_MAX};
use crate::mailbox::{Mailbox, Sender, mailbox};
use crate::message::{HEADER_BYTES, Header, kind};
use crate::packet;
use crate::place::socket_path;
use crate::segment::{Segment, Vector};

/// The agent of this process. Dropping it ends the thread and removes the socket.
pub struct Agent {
    path: PathBuf,
    /// Device and inode of the socket. They differ if another agent has taken over the path.
    file: Option<(u64, u64)>,
    shared: Arc<Shared>,
}

/// The state that the agent's thread shares with contexts.
struct Shared {
    pid: u32,
    segment: Arc<Segment>,
    mailboxes: Mutex<Vec<ContextMailbox>>,
    /// Wakes the agent's thread.
    bell: StackBell,
    stop: Flag,
}

/// The agent's end of a context.
struct ContextMailbox {
    slot: u16,
    sender: Sender,
}

/// A context's part of the agent: its values and its mailbox. Dropping it signs the context off.
pub struct Joined {
    /// The context's values in the statistics file.
    pub vector: Vector,
    /// Requests to the context.
    pub mailbox: Mailbox,
    /// Tells the context when to look at its values and mailbox next.
    pub due: Arc<Due>,
    agent: Arc<Agent>,
}

impl Joined {
    /// The statistics file, in which names are registered.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        &self.agent.shared.segment
    }

    /// Adds a vector of values for the wire `port`, number `number` of this context. `None`: no
    /// vector is free.
    #[must_use]
    pub fn port(&self, number: usize, port: &str) -> Option<Vector> {
        let segment = &self.agent.shared.segment;
        segment.port_vector(&self.vector, number, port)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let shared = &self.agent.shared;
        if shared.pid != std::process::id() {
            return;
        }
        let slot = self.vector.index() as u16;
        shared.mailboxes().retain(|mailbox| mailbox.slot != slot);
        shared.bell.ring();
    }
}

/// The process's agent, started in `directory` when the first context asks for it and ended with
/// the last one. A child of `fork` gets its own.
///
/// # Errors
/// The kernel's error: the directory is missing or not writable, or no thread can start.
pub fn of_process(directory: &Path) -> io::Result<Arc<Agent>> {
    static AGENT: Mutex<Weak<Agent>> = Mutex::new(Weak::new());
    let mut place = AGENT.lock().unwrap_or_else(PoisonError::into_inner);
    match place.upgrade() {
        Some(agent) if agent.shared.pid == std::process::id() => Ok(agent),
        _ => {
            let agent = Agent::start(directory)?;
            *place = Arc::downgrade(&agent);
            Ok(agent)
        }
    }
}

impl Agent {
    /// Starts an agent with a socket in `directory`, which is created if missing.
    ///
    /// # Errors
    /// The error that the kernel returns.
    pub fn start(directory: &Path) -> io::Result<Arc<Self>> {
        let pid = std::process::id();
        let path = socket_path(directory, pid);
        std::fs::create_dir_all(directory)?;
        let listener = listen_at(&path)?;
        let shared = Arc::new(Shared {
            pid,
            segment: Arc::new(Segment::create(pid, &command())?),
            mailboxes: Mutex::default(),
            bell: StackBell::new()?,
            stop: Flag::new(),
        });
        let serving = shared.clone();
        let agent = Arc::new(Self {
            file: identity(&path),
            path,
            shared,
        });
        std::thread::Builder::new()
            .name("millstream-eye".to_owned())
            .spawn(move || serve(&serving, &listener))?;
        Ok(agent)
    }

    /// Path of the socket at which the agent listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds context `context` on the wire `port`, whose stack sleeps on `bell`. `None`: there are
    /// too many contexts.
    pub fn join(self: &Arc<Self>, context: usize, port: &str, bell: StackBell) -> Option<Joined> {
        let vector = self.shared.segment.vector(context, port)?;
        let due = Arc::new(Due::never());
        let (sender, mailbox) = mailbox(due.clone(), bell, self.shared.bell.clone());
        let slot = vector.index() as u16;
        self.shared
            .mailboxes()
            .push(ContextMailbox { slot, sender });
        Some(Joined {
            vector,
            mailbox,
            due,
            agent: self.clone(),
        })
    }
}

impl Shared {
    fn mailboxes(&self) -> MutexGuard<'_, Vec<ContextMailbox>> {
        self.mailboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.shared.pid != std::process::id() {
            return;
        }
        if self.file.is_some() && identity(&self.path) == self.file {
            // A reader may already have removed the socket.
            let _ = std::fs::remove_file(&self.path);
        }
        self.shared.stop.raise();
        self.shared.bell.insist();
    }
}

/// A socket that listens at `path`, for its own user only. It gets its name once it listens:
/// readers remove sockets at which nobody does.
fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    if Client::connect(path).is_ok() {
        // A process of another PID namespace has the same number.
        return Err(Errno::ADDRINUSE.into());
    }
    let unnamed = path.with_extension("new");
    let _ = std::fs::remove_file(&unnamed);
    let listener = packet::socket()?;
    // The file that `bind` makes has these rights from the beginning.
    rustix::fs::fchmod(&listener, Mode::RUSR | Mode::WUSR)?;
    bind(&listener, &SocketAddrUnix::new(&unnamed)?)?;
    listen(&listener, CLIENTS_MAX as i32)?;
    // A process of the same number may have left its own, or this one before `exec`.
    std::fs::rename(&unnamed, path)?;
    Ok(listener)
}

/// Device and inode of a file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Name of the command: the last component of its first argument.
fn command() -> String {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let first = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let path = String::from_utf8_lossy(first).into_owned();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// A connected reader.
struct Reader {
    /// Identifies the reader in the tokens of its requests.
    key: u32,
    socket: OwnedFd,
    /// Header of the request that has no answer yet. A reader may have one at a time.
    asked: Option<Header>,
    /// Time at which the reader connected or last sent a packet.
    heard: Instant,
    /// The reader has sent a request.
    has_asked: bool,
    is_over: bool,
}

impl Reader {
    /// Whether the reader has been silent for so long that another may have its place.
    fn is_idle(&self, now: Instant) -> bool {
        let silent_max = match self.has_asked {
            true => SILENT_MS_MAX,
            false => FIRST_REQUEST_MS_MAX,
        };
        let silent = now.saturating_duration_since(self.heard);
        self.asked.is_none() && silent >= Duration::from_millis(silent_max)
    }
}

struct Readers {
    all: Vec<Reader>,
    keys: u32,
}

fn serve(agent: &Shared, listener: &OwnedFd) {
    let mut readers = Readers {
        all: Vec::new(),
        keys: 0,
    };
    while !agent.stop.is_raised() {
        agent.bell.prepare_sleep();
        readers.hand_out(agent);
        if sleep(agent, listener, &readers.all).is_err() {
            // `poll` failed for want of memory: try again after a while.
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        agent.bell.cancel_sleep();
        readers.accept(listener);
        readers.read(agent);
        readers.hand_out(agent);
        readers.all.retain(|reader| !reader.is_over);
    }
}

fn sleep(agent: &Shared, listener: &OwnedFd, readers: &[Reader]) -> Result<(), Errno> {
    let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
    let mut polled = vec![of(agent.bell.fd()), of(listener.as_fd())];
    polled.extend(readers.iter().map(|reader| of(reader.socket.as_fd())));
    match poll(&mut polled, None) {
        Err(errno) if errno != Errno::INTR => Err(errno),
        _ => Ok(()),
    }
}

impl Readers {
    /// Accepts readers of our own user and of root. Connections of other users, and those above the
    /// limit, are closed.
    fn accept(&mut self, listener: &OwnedFd) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..CLIENTS_MAX {
            let Ok(socket) = accept_with(listener, flags) else {
                return;
            };
            let peer = rustix::net::sockopt::socket_peercred(&socket);
            let is_ours = peer.is_ok_and(|peer| peer.uid == geteuid() || peer.uid.is_root());
            if is_ours {
                self.make_room(Instant::now());
            }
            if is_ours && self.all.len() < CLIENTS_MAX {
                self.keys = self.keys.wrapping_add(1);
                self.all.push(Reader {
                    key: self.keys,
                    socket,
                    asked: None,
                    heard: Instant::now(),
                    has_asked: false,
                    is_over: false,
                });
            }
        }
    }

    /// Disconnects the idle reader that has been silent for longest, if there is no room for another.
    /// So readers that only connect shut nobody out.
    fn make_room(&mut self, now: Instant) {
        if self.all.len() < CLIENTS_MAX {
            return;
        }
        let idle = self.all.iter().enumerate();
        let idle = idle.filter(|(_, reader)| reader.is_idle(now));
        if let Some((at, _)) = idle.min_by_key(|(_, reader)| reader.heard) {
            self.all.remove(at);
        }
    }

    /// Reads one packet from each reader. A second packet before the answer disconnects the reader.
    fn read(&mut self, agent: &Shared) {
        let mut bytes = [0; HEADER_BYTES + REQUEST_BYTES_MAX + 1];
        for reader in &mut self.all {
            match packet::receive_plain(&reader.socket, &mut bytes) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Ok(length) if length > 0 && reader.asked.is_none() => {
                    reader.heard = Instant::now();
                    reader.has_asked = true;
                    reader.is_over |= reader.request(agent, &bytes[..length]).is_err();
                }
                _ => reader.is_over = true,
            }
        }
    }

    /// Sends answers to the readers that asked. A request to a context that has gone is answered
    /// with an error.
    fn hand_out(&mut self, agent: &Shared) {
        let mut mailboxes = agent.mailboxes();
        for mailbox in mailboxes.iter_mut() {
            while let Some(answered) = mailbox.sender.receive() {
                let token = answered.request.token;
                let reader = self.all.iter_mut().find(|reader| {
                    let asked = reader.asked.map(|asked| asked.request);
                    u64::from(reader.key) == token >> 32 && asked == Some(token as u32)
                });
                if let Some(reader) = reader {
                    let file = answered.request.file.as_ref().map(|file| file.as_fd());
                    reader.answer(&answered.request.answer, answered.outcome, file);
                }
            }
        }
        for reader in &mut self.all {
            let slot = reader.asked.map(|asked| asked.slot);
            if slot.is_some_and(|slot| !mailboxes.iter().any(|mailbox| mailbox.slot == slot)) {
                reader.answer(&[], Err(Errno::SRCH), None);
            }
        }
    }
}

impl Reader {
    /// Executes a reader's packet.
    ///
    /// # Errors
    /// The packet is malformed.
    fn request(&mut self, agent: &Shared, packet: &[u8]) -> Result<(), Errno> {
        let (header, body) = Header::decode(packet, REQUEST_BYTES_MAX)?;
        self.asked = Some(header);
        match header.kind {
            kind::STATISTICS => self.answer(&[], Ok(()), Some(agent.segment.file())),
            kind::CONTEXT_FIRST.. => {
                let token = u64::from(self.key) << 32 | u64::from(header.request);
                let mut mailboxes = agent.mailboxes();
                let mailbox = mailboxes
                    .iter_mut()
                    .find(|mailbox| mailbox.slot == header.slot);
                let sent = mailbox.map_or(Err(Errno::SRCH), |mailbox| {
                    mailbox.sender.send(header.kind, body, token)
                });
                if sent.is_err() {
                    self.answer(&[], sent, None);
                }
            }
            _ => self.answer(&[], Err(Errno::NOSYS), None),
        }
        Ok(())
    }

    /// Sends an answer to a reader. A reader whose queue is full is disconnected.
    fn answer(
        &mut self,
        body: &[u8],
        outcome: Result<(), Errno>,
        file: Option<std::os::fd::BorrowedFd<'_>>,
    ) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let body = if outcome.is_ok() { body } else { &[] };
        let header = Header {
            errno: outcome.map_or_else(|errno| errno.raw_os_error() as u16, |()| 0),
            body_bytes: body.len() as u32,
            ..asked
        };
        self.is_over |= packet::send(&self.socket, &header.encode(), body, file).is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Readers {
        let reader = |key| Reader {
            key,
            socket: packet::socket().unwrap(),
            asked: None,
            heard: Instant::now(),
            has_asked: true,
            is_over: false,
        };
        Readers {
            all: (0..CLIENTS_MAX as u32).map(reader).collect(),
            keys: CLIENTS_MAX as u32,
        }
    }

    #[test]
    fn agent_without_room_lets_the_reader_go_that_was_silent_for_longest() {
        let mut readers = full();
        let now = Instant::now();
        readers.make_room(now);
        assert_eq!(readers.all.len(), CLIENTS_MAX, "all spoke a moment ago");
        let later = now + Duration::from_millis(SILENT_MS_MAX);
        readers.all[0].heard = later;
        readers.make_room(later);
        let keys: Vec<u32> = readers.all.iter().map(|reader| reader.key).collect();
        assert_eq!((keys.len(), keys[0], keys[1]), (CLIENTS_MAX - 1, 0, 2));
    }

    #[test]
    fn reader_that_only_connected_makes_room_after_a_moment() {
        let mut readers = full();
        let now = Instant::now();
        readers.all[3].has_asked = false;
        readers.make_room(now);
        assert_eq!(readers.all.len(), CLIENTS_MAX, "it came a moment ago");
        readers.make_room(now + Duration::from_millis(FIRST_REQUEST_MS_MAX));
        assert!(readers.all.iter().all(|reader| reader.key != 3));
        assert_eq!(readers.all.len(), CLIENTS_MAX - 1);
    }
}
