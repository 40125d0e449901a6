//! The application's part: calls in any order, on any socket that it holds.

use std::net::SocketAddr;

use ring::socket_block::{Requests, SocketId};
use stack::context::SocketOption;

use super::{Play, Step, key, pair};
use crate::common::{PEER_V4, PEER_V6, PORT, SECOND, STACK_V4};

impl Play {
    pub(super) fn application(&mut self, step: &Step) {
        match *step {
            Step::Listen { port } => {
                if self.world.app.has_socket() {
                    let port = PORT + u16::from(port % 3);
                    self.world.app.listen(SocketAddr::new(STACK_V4, port), 2);
                }
            }
            Step::Connect { v6, host, from } => self.connect(v6, host, from),
            Step::Accept { listener } => {
                let listeners: Vec<_> = self.world.app.sockets_open();
                let listeners: Vec<_> = listeners
                    .into_iter()
                    .filter(|id| self.world.app.is_listener(*id))
                    .collect();
                if !listeners.is_empty() {
                    let listener = listeners[usize::from(listener) % listeners.len()];
                    self.world.app.accept(listener);
                }
            }
            Step::TakeEvents => self.take_events(),
            Step::StaleJob { index, generation } => {
                let id = SocketId {
                    index: u32::from(index % 70),
                    generation: u32::from(generation),
                };
                // Only ids of sockets that were closed: the library never pushes an id that it was
                // not given.
                if !self.world.app.is_open(id) && self.world.app.is_stale(id) {
                    // The job queue is as long as the socket table. So it is emptied before and
                    // after a job that no socket has.
                    self.rest();
                    self.world.app.push_job(id);
                    self.rest();
                }
            }
            Step::Write { socket, .. }
            | Step::Read { socket, .. }
            | Step::Shutdown { socket }
            | Step::Close { socket }
            | Step::Abort { socket }
            | Step::Option { socket, .. } => {
                if let Some(id) = self.socket(socket) {
                    self.on_socket(step, id);
                }
            }
            _ => {}
        }
    }

    /// Each change since the last look must have caused an event.
    fn take_events(&mut self) {
        let mut told = Vec::new();
        loop {
            self.rest();
            let events = self.world.app.take_events();
            if events.is_empty() {
                break;
            }
            told.extend(events);
        }
        for id in self.world.app.sockets_open() {
            let edges = self.world.app.edges(id);
            let before = self.edges.insert(key(id), edges);
            let moved = before.is_some_and(|before| before != edges);
            assert!(!moved || told.contains(&id), "{id:?} changed in secret");
        }
    }

    fn on_socket(&mut self, step: &Step, id: SocketId) {
        let app = &mut self.world.app;
        let is_listener = app.is_listener(id);
        match *step {
            Step::Write { len, .. } if !is_listener => {
                let start = *self.written.get(&key(id)).unwrap_or(&0);
                let bytes: Vec<u8> = (start..start + u64::from(len % 9_000))
                    .map(|n| n as u8)
                    .collect();
                let n = app.write_if_open(id, &bytes);
                self.written.insert(key(id), start + n as u64);
            }
            Step::Read { len, .. } if !is_listener => {
                for byte in app.read_up_to(id, usize::from(len)) {
                    if let Some(before) = self.last_read.insert(key(id), byte) {
                        assert_eq!(byte, before.wrapping_add(1), "a byte out of place");
                    }
                }
            }
            Step::Shutdown { .. } if !is_listener => app.shutdown_if_open(id),
            Step::Close { .. } => app.close(id),
            Step::Abort { .. } => app.abort(id),
            Step::Option { option, .. } => {
                let on = option & 1 == 1;
                app.option(
                    id,
                    match option >> 1 & 3 {
                        0 => SocketOption::NoDelay(on),
                        1 => SocketOption::Cork(on),
                        2 => SocketOption::KeepAlive(on.then_some(tcp::connection::Keepalive {
                            idle_ns: SECOND,
                            interval_ns: SECOND,
                            probes_max: 2,
                        })),
                        _ => SocketOption::UserTimeout(u64::from(option >> 3) * SECOND),
                    },
                );
            }
            _ => app.request(id, Requests::READ),
        }
    }

    fn connect(&mut self, v6: bool, host: u8, from: u8) {
        if !self.world.app.has_socket() {
            return;
        }
        let remote = match (host % 4, v6) {
            (0 | 1, false) => SocketAddr::new(PEER_V4, 443),
            (0 | 1, true) => SocketAddr::new(PEER_V6, 443),
            (2, _) => "10.0.0.77:80".parse().unwrap(),
            _ => SocketAddr::new("192.0.2.1".parse().unwrap(), u16::from(host)),
        };
        let local = match from % 4 {
            0 => Some(SocketAddr::new(pair(v6).1, 5_000)),
            1 => Some(SocketAddr::new(STACK_V4, 0)),
            _ => None,
        };
        self.world.app.connect_from(local, remote);
    }
}
