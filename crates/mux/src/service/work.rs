//! Requests that take long: each makes or removes an interface, pins memory, or looks at every
//! virtual port. A greeting takes long while the dead have the virtual ports that it asks for.
//!
//! The service has one thread. So it acts on one such request in a turn, and then on the short
//! requests of all clients. Users have their turns one after the other, however many clients they
//! have. A client is not heard while a request of it waits, so its messages keep their order.
//! Called by `clients`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use packetio::foreign::Foreign;
use packetio::mux::message::Message;
use rustix::event::epoll;

use super::clients::ClientId;
use super::{CLIENTS, Service};
use crate::limits::LEASE_PORTS_SHORT;
use crate::plane::Plane;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Task {
    client: ClientId,
    message: Message,
    descriptor: Foreign,
}

/// Requests that wait, by user; one of each client at most.
#[derive(Debug, Default)]
pub(super) struct Work {
    of_users: BTreeMap<u32, VecDeque<Task>>,
    /// The user who had the last turn.
    last: u32,
}

impl Work {
    pub(super) fn is_empty(&self) -> bool {
        self.of_users.is_empty()
    }

    fn push(&mut self, uid: u32, task: Task) {
        self.of_users.entry(uid).or_default().push_back(task);
    }

    /// Drops the request of a client that is gone.
    pub(super) fn forget(&mut self, uid: u32, client: ClientId) {
        if let Some(tasks) = self.of_users.get_mut(&uid) {
            tasks.retain(|task| task.client != client);
            if tasks.is_empty() {
                self.of_users.remove(&uid);
            }
        }
    }

    /// The next request of the user whose turn it is.
    fn next(&mut self) -> Option<Task> {
        let behind = self.of_users.range((Excluded(self.last), Unbounded)).next();
        let (&uid, _) = behind.or_else(|| self.of_users.iter().next())?;
        self.last = uid;
        let tasks = self.of_users.get_mut(&uid)?;
        let task = tasks.pop_front();
        if tasks.is_empty() {
            self.of_users.remove(&uid);
        }
        task
    }
}

/// Whether the service takes long for a message.
fn is_long(message: &Message) -> bool {
    match message {
        Message::Memory(_)
        | Message::PortAsk { .. }
        | Message::BulkAsk { .. }
        | Message::Recover { .. }
        | Message::Query { .. } => true,
        Message::Lease(lease) | Message::Return(lease) => lease.ports > LEASE_PORTS_SHORT,
        _ => false,
    }
}

impl<P: Plane> Service<P> {
    /// Acts on a message now, or puts it off. False: the client is not to be heard before its
    /// request had its turn.
    ///
    /// # Errors
    /// The reason for which the connection must end.
    pub(super) fn act_or_put_off(
        &mut self,
        id: ClientId,
        message: Message,
        descriptor: Foreign,
    ) -> Result<bool, &'static str> {
        if !is_long(&message) && !self.waits_for_the_dead(id, &message) {
            return self.act(id, &message, descriptor).map(|()| true);
        }
        let Some(client) = self.clients.get_mut(&id) else {
            return Ok(false);
        };
        client.is_put_off = true;
        // A client that hangs up meanwhile would wake the service again and again.
        let _ = epoll::delete(&self.epoll, &client.channel);
        let task = Task {
            client: id,
            message,
            descriptor,
        };
        self.work.push(client.peer.uid, task);
        Ok(false)
    }

    /// Acts on the next request that was put off.
    pub(super) fn work_on(&mut self) {
        let Some(task) = self.work.next() else {
            return;
        };
        let id = task.client;
        let waits = self.waits_for_the_dead(id, &task.message);
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if waits {
            return self.work.push(client.peer.uid, task);
        }
        client.is_put_off = false;
        let data = epoll::EventData::new_u64(CLIENTS + id.0);
        let outcome = match epoll::add(&self.epoll, &client.channel, data, epoll::EventFlags::IN) {
            Ok(()) => self.act(id, &task.message, task.descriptor),
            Err(_) => Err("epoll has no room"),
        };
        if let Err(cause) = outcome {
            self.end(id, cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use packetio::foreign::Closer;
    use packetio::mux::message::Query;

    use super::*;

    fn task(client: u64) -> Task {
        let query = Query::Status;
        Task {
            client: ClientId(client),
            message: Message::Query { request: 1, query },
            descriptor: Foreign::new(None, &Closer::default()),
        }
    }

    #[test]
    fn users_have_their_turns_one_after_the_other() {
        let mut work = Work::default();
        for client in 0..3 {
            work.push(1000, task(client));
        }
        work.push(0, task(10));
        work.push(2000, task(20));
        let order = std::iter::from_fn(|| work.next()).map(|task| task.client.0);
        assert_eq!(order.collect::<Vec<_>>(), [0, 20, 10, 1, 2]);
        assert!(work.is_empty());
    }

    #[test]
    fn request_of_a_client_that_is_gone_is_dropped() {
        let mut work = Work::default();
        for client in 0..2 {
            work.push(1000, task(client));
        }
        work.forget(1000, ClientId(0));
        assert_eq!(work.next().map(|task| task.client.0), Some(1));
        work.push(1000, task(2));
        work.forget(1000, ClientId(2));
        assert!(work.is_empty());
    }
}
