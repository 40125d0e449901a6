//! Connections to the service's socket.
//!
//! A connection belongs to an application after `Hello`, and to a command after `Query`. A
//! connection that sends an invalid message, or does not read, is closed; this does not affect
//! others.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use packetio::foreign::{Closer, Foreign, fdinfo};
use packetio::mux::channel::{Channel, Received};
use packetio::mux::message::Message;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, sockopt};

use super::{CLIENTS, LISTENER, PROCESSES, Service, after_ns};
use crate::limits::{
    ACCEPT_REST_NS, ACCEPTS_PER_TURN, CLIENT_SEND_BYTES, CLIENTS_MAX, CLIENTS_PER_UID_MAX,
    CLOSING_PER_UID_MAX, GREETING_NS_MAX, MESSAGES_PER_TURN,
};
use crate::peer_unsafe::{peer, process};
use crate::plane::Plane;
use crate::policy::Peer;
use crate::socket_option_unsafe::let_descriptors_in;

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
    /// The closer of the client's user.
    pub(super) closer: Closer,
    /// Readable once the process has ended; `None` if the kernel does not support that.
    process: Option<OwnedFd>,
    pub(super) peer: Peer,
    pub(super) role: Role,
    /// Number in the application of this process's context 0.
    pub(super) base: u16,
    /// Number of contexts that the process announced.
    pub(super) contexts: u16,
    /// A request of it waits for its turn, and the client is not heard.
    pub(super) is_put_off: bool,
}

impl Client {
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.role, Role::Silent(_))
    }
}

impl<P: Plane> Service<P> {
    /// Takes connections that wait; more of them wake the service again.
    pub(super) fn accept(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..ACCEPTS_PER_TURN {
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => return,
                Err(errno) => return self.rest_from_accepting(errno),
            };
            let Ok(peer) = peer(socket.as_fd()) else {
                continue;
            };
            let Some(closer) = self.may_connect(&peer) else {
                self.turn_away(socket, peer.uid);
                continue;
            };
            // Kernels that cannot keep descriptors out let them in anyway.
            let _ = let_descriptors_in(socket.as_fd(), true);
            let channel = Channel::new(socket, &closer);
            let set = sockopt::set_socket_send_buffer_size_force(&channel, CLIENT_SEND_BYTES);
            if set.is_err() {
                // Without the privilege, `wmem_max` has to do.
                let _ = sockopt::set_socket_send_buffer_size(&channel, CLIENT_SEND_BYTES);
            }
            let id = self.next_client;
            self.next_client = ClientId(id.0 + 1);
            let data = epoll::EventData::new_u64(CLIENTS + id.0);
            if epoll::add(&self.epoll, &channel, data, epoll::EventFlags::IN).is_err() {
                continue;
            }
            let client = Client {
                process: self.watch_process(channel.as_fd(), id),
                channel,
                closer,
                peer,
                role: Role::Silent(after_ns(GREETING_NS_MAX)),
                base: 0,
                contexts: 0,
                is_put_off: false,
            };
            self.clients.insert(id, client);
        }
    }

    /// Closes a connection that is refused. Descriptors may lie in its queue already. They must
    /// wait nowhere, since a user may make any number of such connections.
    fn turn_away(&mut self, socket: OwnedFd, uid: u32) {
        // Nothing comes into the queue from here on.
        let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        let is_harmless = fdinfo(socket.as_fd(), "scm_fds").is_some_and(|queued| queued == "0");
        if !is_harmless && let Err(socket) = self.abandoner.abandon(socket) {
            self.closers.for_refused(uid).close(socket);
        }
    }

    /// No descriptor is free, or no memory. The connections that wait would wake the service again
    /// at once, so it looks away for a moment.
    fn rest_from_accepting(&mut self, errno: Errno) {
        if epoll::delete(&self.epoll, &self.listener).is_ok() {
            (self.say)(&format!("no connection is accepted for a moment: {errno}"));
            self.accept_again = Some(after_ns(ACCEPT_REST_NS));
        }
    }

    /// Looks at the socket again after a rest.
    pub(super) fn end_of_rest(&mut self, now: Instant) {
        if self.accept_again.is_some_and(|at| at <= now) {
            self.accept_again = match self.watch(LISTENER, |service| service.listener.as_fd()) {
                Ok(()) => None,
                Err(_) => Some(after_ns(ACCEPT_REST_NS)),
            };
        }
    }

    /// Watches the process itself: a child that it forked holds a copy of the socket, so the
    /// connection may outlive the process.
    fn watch_process(&self, socket: BorrowedFd<'_>, id: ClientId) -> Option<OwnedFd> {
        let process = process(socket).ok()?;
        let data = epoll::EventData::new_u64(PROCESSES | id.0);
        epoll::add(&self.epoll, &process, data, epoll::EventFlags::IN).ok()?;
        Some(process)
    }

    /// Handles the end of a connection's process, after its last messages.
    pub(super) fn process_ended(&mut self, id: ClientId) {
        self.hear(id);
        self.disconnect(id, "its process has ended");
    }

    /// One user must not take all connections from the others; descriptors that a user sent and
    /// that are slow to close must not pile up. `None`: the connection is closed.
    fn may_connect(&mut self, peer: &Peer) -> Option<Closer> {
        let of_user = self.clients.values().filter(|one| one.peer.uid == peer.uid);
        let has_room = peer.uid == 0 || of_user.count() < CLIENTS_PER_UID_MAX;
        let has_room = has_room && self.clients.len() < CLIENTS_MAX;
        has_room.then(|| self.closers.with_room(peer.uid)).flatten()
    }

    /// Closes a descriptor that a client sent, some time.
    pub(super) fn close(&self, id: ClientId, descriptor: OwnedFd) {
        if let Some(client) = self.clients.get(&id) {
            client.closer.close(descriptor);
        }
    }

    /// Handles a few messages of a connection. Remaining ones wake the service again.
    pub(super) fn hear(&mut self, id: ClientId) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(client) = self.clients.get(&id).filter(|one| !one.is_put_off) else {
                return;
            };
            match client.channel.receive() {
                Received::Nothing => return,
                Received::Closed => return self.disconnect(id, "its socket was closed"),
                Received::Malformed(error) => return self.end(id, &error.to_string()),
                Received::Message(message, descriptor) => {
                    let is_slow = client.closer.waiting() >= CLOSING_PER_UID_MAX;
                    if is_slow && message.takes_descriptor() {
                        let cause = "descriptors of its user wait to be closed";
                        return self.disconnect(id, cause);
                    }
                    match self.act_or_put_off(id, message, descriptor) {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(cause) => return self.end(id, cause),
                    }
                }
            }
        }
    }

    /// Ends a connection whose client is at fault, and says so.
    pub(super) fn end(&mut self, id: ClientId, cause: &str) {
        if let Some(client) = self.clients.get(&id) {
            let peer = &client.peer;
            (self.say)(&format!(
                "pid {} of uid {} is disconnected: {cause}",
                peer.pid, peer.uid
            ));
        }
        self.disconnect(id, cause);
    }

    /// # Errors
    /// The reason why the connection must end.
    pub(super) fn act(
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
                let family = self.cookie_of(id, descriptor)?;
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
            self.end(id, "it does not read its messages");
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
        self.work.forget(client.peer.uid, id);
        self.forget_moves(id);
        self.forget_seeks(id);
        if let Role::Application(number) = client.role {
            self.leave(id, &client, number, cause);
        }
    }

    /// Disconnects clients that sent nothing before their deadline.
    pub(super) fn drop_silent_clients(&mut self, now: Instant) {
        let is_late = |client: &Client| match client.role {
            Role::Silent(until) => until <= now && !client.is_put_off,
            _ => false,
        };
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
