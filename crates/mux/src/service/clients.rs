//! Connections to the service's socket.
//!
//! A connection belongs to an application after `Hello`, and to a command after `Query`. A
//! connection that sends an invalid message, or does not read, is closed; this does not affect
//! others.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use packetio::foreign::Foreign;
use packetio::mux::channel::{Channel, Received};
use packetio::mux::message::Message;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};

use super::{CLIENTS, PROCESSES, Service, after_ns};
use crate::limits::{
    CLIENT_SEND_BYTES, CLIENTS_MAX, CLIENTS_PER_UID_MAX, GREETING_NS_MAX, MESSAGES_PER_TURN,
};
use crate::peer_unsafe::{peer, process};
use crate::plane::Plane;
use crate::policy::Peer;

/// A connection's number; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientId(pub(super) u64);

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The client has sent nothing yet, and must do so before the deadline.
    Silent(Instant),
    Application(u16),
    /// The connection of a command such as `mill mux status`.
    Asker,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) channel: Channel,
    /// Readable once the process has ended; `None` if the kernel does not support that.
    process: Option<OwnedFd>,
    pub(super) peer: Peer,
    pub(super) role: Role,
    /// Number in the application of this process's context 0.
    pub(super) base: u16,
    /// Number of contexts that the process announced.
    pub(super) contexts: u16,
}

impl Client {
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.role, Role::Silent(_))
    }
}

impl<P: Plane> Service<P> {
    /// Accepts all waiting connections.
    pub(super) fn accept(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(_) => return,
            };
            let Ok(peer) = peer(socket.as_fd()) else {
                continue;
            };
            if !self.may_connect(&peer) {
                continue;
            }
            let _ = sockopt::set_socket_send_buffer_size(&socket, CLIENT_SEND_BYTES);
            let id = self.next_client;
            self.next_client = ClientId(id.0 + 1);
            let data = epoll::EventData::new_u64(CLIENTS + id.0);
            if epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN).is_err() {
                continue;
            }
            let client = Client {
                process: self.watch_process(&socket, id),
                channel: Channel::new(socket, &self.closer),
                peer,
                role: Role::Silent(after_ns(GREETING_NS_MAX)),
                base: 0,
                contexts: 0,
            };
            self.clients.insert(id, client);
        }
    }

    /// Watches the process itself: a child that it forked holds a copy of the socket, so the
    /// connection may outlive the process.
    fn watch_process(&self, socket: &OwnedFd, id: ClientId) -> Option<OwnedFd> {
        let process = process(socket.as_fd()).ok()?;
        let data = epoll::EventData::new_u64(PROCESSES | id.0);
        epoll::add(&self.epoll, &process, data, epoll::EventFlags::IN).ok()?;
        Some(process)
    }

    /// Handles the end of a connection's process, after its last messages.
    pub(super) fn process_ended(&mut self, id: ClientId) {
        self.hear(id);
        self.disconnect(id, "its process has ended");
    }

    /// Limits the connections of one user, so that others get some. Refuses connections while slow
    /// closes of received descriptors pile up.
    fn may_connect(&self, peer: &Peer) -> bool {
        let of_user = self.clients.values().filter(|one| one.peer.uid == peer.uid);
        let has_room = peer.uid == 0 || of_user.count() < CLIENTS_PER_UID_MAX;
        has_room && self.clients.len() < CLIENTS_MAX && !self.closer.is_full()
    }

    /// Handles a few messages of a connection. Remaining ones wake the service again.
    pub(super) fn hear(&mut self, id: ClientId) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(client) = self.clients.get(&id) else {
                return;
            };
            match client.channel.receive() {
                Received::Nothing => return,
                Received::Closed => return self.disconnect(id, "its socket was closed"),
                Received::Malformed(error) => {
                    self.tell_malformed(id, &error.to_string());
                    return self.disconnect(id, &error.to_string());
                }
                Received::Message(message, descriptor) => {
                    if let Err(cause) = self.act(id, &message, descriptor) {
                        self.tell_malformed(id, cause);
                        return self.disconnect(id, cause);
                    }
                }
            }
        }
    }

    fn tell_malformed(&self, id: ClientId, cause: &str) {
        if let Some(client) = self.clients.get(&id) {
            let peer = &client.peer;
            (self.say)(&format!(
                "pid {} of uid {} is disconnected: {cause}",
                peer.pid, peer.uid
            ));
        }
    }

    /// # Errors
    /// The reason why the connection must end.
    fn act(
        &mut self,
        id: ClientId,
        message: &Message,
        descriptor: Foreign,
    ) -> Result<(), &'static str> {
        let Some(client) = self.clients.get_mut(&id) else {
            return Ok(());
        };
        match (client.role, message) {
            (Role::Silent(_), Message::Hello(hello)) => self.greet(id, hello, None),
            (Role::Silent(_), Message::Join(hello)) => {
                let family = self.cookie_of(descriptor)?;
                self.greet(id, hello, Some(family))
            }
            (Role::Silent(_) | Role::Asker, Message::Query { request, query }) => {
                client.role = Role::Asker;
                self.answer(id, *request, *query)
            }
            (Role::Application(number), _) => self.serve(id, number, message, descriptor),
            _ => Err("the first message is neither Hello nor Join nor Query"),
        }
    }

    /// Sends a message without a descriptor. A client that does not read is disconnected when it is
    /// next looked at.
    pub(super) fn send(&mut self, id: ClientId, message: &Message) {
        self.send_with(id, message, None);
    }

    /// Sends a message and its descriptor.
    pub(super) fn send_with(
        &mut self,
        id: ClientId,
        message: &Message,
        descriptor: Option<BorrowedFd<'_>>,
    ) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        if client.channel.send(message, descriptor) == Err(Errno::AGAIN) {
            self.tell_malformed(id, "it does not read its messages");
            self.disconnect(id, "it does not read its messages");
        }
    }

    /// Sends the refusal of a request.
    pub(super) fn refuse(&mut self, id: ClientId, request: u32, errno: Errno) {
        let errno = u16::try_from(errno.raw_os_error()).unwrap_or(0);
        self.send(id, &Message::Refused { request, errno });
    }

    /// Ends a connection, and its part of the application.
    pub(super) fn disconnect(&mut self, id: ClientId, cause: &str) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        // Remove the socket from the epoll set: a copy elsewhere would keep it there after the
        // close.
        let _ = epoll::delete(&self.epoll, &client.channel);
        if let Some(process) = &client.process {
            let _ = epoll::delete(&self.epoll, process);
        }
        self.resolving.retain(|waiting| waiting.client != id);
        self.forget_moves(id);
        if let Role::Application(number) = client.role {
            self.leave(id, &client, number, cause);
        }
    }

    /// Disconnects clients that sent nothing before their deadline.
    pub(super) fn drop_silent_clients(&mut self, now: Instant) {
        let is_late = |client: &Client| matches!(client.role, Role::Silent(until) if until <= now);
        let late: Vec<ClientId> = self
            .clients
            .iter()
            .filter(|(_, client)| is_late(client))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.disconnect(id, "it said nothing");
        }
    }
}
