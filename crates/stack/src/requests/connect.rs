//! Active opens: a source address, a local port that makes the flow unique, and a connection in SYN_SENT.
//!
//! Ports are chosen as RFC 6056 section 3.3.3 describes (algorithm 3, "simple hash-based"): a keyed hash of both addresses and the remote port
//! says where to begin, a counter goes on from there. A port is free if its flow is; many connections to different peers share one. The hash is not the flow table's: peers see
//! the ports, and nothing may be seen of the table's.

use std::net::{IpAddr, SocketAddr};

use ring::socket_block::SocketId;
use rustix::io::Errno;
use tcp::ActiveOpen;
use wire::{Addr, FlowKey};

use crate::arrivals::fast_open_in::asks_no_cookie;
use crate::context::{Connect, SocketOption, name_of, socket_addr};
use crate::core::{Core, tcp_cx};
use crate::flows::flow_table::FlowEntry;
use crate::flows::sockets::Role;
use crate::requests::job_queue::refuse;

impl Core {
    /// Opens a connection; a failure is told through the socket's state.
    pub(crate) fn connect(&mut self, connect: Connect) {
        let Some(socket) = self.reserved(connect.socket) else {
            return refuse(connect.answer);
        };
        let outcome = self.open(socket, &connect);
        match outcome {
            Ok(()) => self.queue_opening(socket),
            Err(_) => self.forget_written_ahead(socket),
        }
        self.answer(socket, outcome, connect.answer);
    }

    /// Whether a reserved socket stands on the list of openings.
    pub(crate) fn waits_to_begin(&self, socket: u32) -> bool {
        self.lists.is_opening(socket) && self.sockets.role(socket) == Role::Reserved
    }

    /// A connection that waited on the list of openings begins: its SYN is due. False: it cannot, and the application was told.
    pub(crate) fn begin_waiting(&mut self, socket: u32) -> bool {
        let (_, remote) = self.sockets.block(socket).names();
        let plain = Connect {
            socket: SocketId::default(),
            local: None,
            remote: socket_addr(Addr::from_octets(remote.address), remote.port),
            options: Vec::new(),
            fast_open: false,
            answer: None,
        };
        match self.open(socket, &plain) {
            Ok(()) => true,
            Err(errno) => {
                self.lists.take_out(socket);
                self.fail_socket(socket, errno);
                false
            }
        }
    }

    /// Makes a connection of a reserved socket. Its SYN is for the caller to have sent; no deadline is set before that has left.
    fn open(&mut self, socket: u32, connect: &Connect) -> Result<(), Errno> {
        let remote = connect.remote;
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(Errno::CONNREFUSED);
        }
        if !self.network.may_reach(remote.ip()) {
            return Err(Errno::NETUNREACH);
        }
        let neighbour = self.network.hop(Addr::from(remote.ip()), self.now_ns)?;
        let is_bound = self.sockets.slot(socket).bound;
        let local = self.source_of(connect, is_bound)?;
        let (key, hash) =
            self.unique_key(local, connect.local.map_or(0, |local| local.port()), remote)?;
        let mss_max = connect.options.iter().find_map(|option| match option {
            SocketOption::MaxSegment(mss) => Some(*mss),
            _ => None,
        });
        let mss = self.mss_for(key.remote, mss_max.unwrap_or(0));
        let fast_open = if connect.fast_open {
            self.fast_open_syn(key.remote, mss, asks_no_cookie(&connect.options))
        } else {
            None
        };
        let open = ActiveOpen {
            iss: self.isn.isn(&key, self.now_ns),
            ts_offset: self.isn.timestamp_offset(&key),
            mss,
            mss_default: if key.remote.is_v4() {
                self.config.tcp.mss_default_v4
            } else {
                self.config.tcp.mss_default_v6
            },
            buffers: self.buffers_of(&connect.options),
            fast_open,
        };
        self.flows
            .insert(hash, FlowEntry::Connection(socket))
            .map_err(|_| Errno::NOBUFS)?;
        let (slot, _, block) = self.sockets.parts(socket);
        slot.become_connection(key, hash)
            .connect_in(&mut tcp_cx!(self), &open);
        slot.neighbour = Some(neighbour);
        block.set_names(
            name_of(key.local, key.local_port),
            name_of(key.remote, key.remote_port),
        );
        self.tell_path(socket);
        for &option in &connect.options {
            let effects = self.set_option(socket, option);
            self.settle(socket, effects);
        }
        if connect.fast_open {
            self.write_ahead_of_syn(socket);
        }
        Ok(())
    }

    /// What was written before the open may ride on the SYN.
    fn write_ahead_of_syn(&mut self, socket: u32) {
        let (slot, _, block) = self.sockets.parts(socket);
        if let Some(conn) = slot.conn.as_mut() {
            let buffered = slot.tx.buffered(block);
            let effects = conn.on_write(&mut tcp_cx!(self), buffered);
            self.settle(socket, effects);
        }
    }

    /// What was to ride on the SYN goes with the refusal, before that is told: whoever tries again writes it again.
    #[cold]
    fn forget_written_ahead(&mut self, socket: u32) {
        let (slot, pool, block) = self.sockets.parts(socket);
        let buffered = slot.tx.buffered(block);
        slot.tx.acknowledge(pool, block, buffered);
    }

    fn source_of(&mut self, connect: &Connect, is_bound: bool) -> Result<IpAddr, Errno> {
        match connect.local.map(|local| local.ip()) {
            Some(ip) if !ip.is_unspecified() => {
                let usable = (is_bound || self.network.addresses.is_local(ip))
                    && ip.is_ipv4() == connect.remote.is_ipv4();
                usable.then_some(ip).ok_or(Errno::ADDRNOTAVAIL)
            }
            _ => self
                .network
                .source_to(connect.remote.ip())
                .ok_or(Errno::ADDRNOTAVAIL),
        }
    }

    /// The flow's key with a local port under which it is not in use.
    fn unique_key(
        &mut self,
        local: IpAddr,
        port: u16,
        remote: SocketAddr,
    ) -> Result<(FlowKey, u64), Errno> {
        let mut key = FlowKey {
            local: Addr::from(local),
            remote: Addr::from(remote.ip()),
            local_port: port,
            remote_port: remote.port(),
        };
        if port != 0 {
            let hash = self.hasher.hash(&key);
            // A socket that listens there keeps nobody from it: the flow is looked up first.
            return match self.find_flow(&key, hash) {
                None => Ok((key, hash)),
                Some(_) => Err(Errno::ADDRNOTAVAIL),
            };
        }
        let (first, last) = self.config.local_ports;
        let count = u32::from(last - first) + 1;
        let start = self.port_start(&key);
        for _ in 0..count {
            let offset = start.wrapping_add(self.port_counter) % count;
            self.port_counter = self.port_counter.wrapping_add(1);
            key.local_port = first + offset as u16;
            if self.binds.has_port(key.local_port) {
                continue;
            }
            let hash = self.hasher.hash(&key);
            if self.is_free(&key, hash) {
                // A crowd of connections to one peer: where the next one will ask is a line far away.
                let next = FlowKey {
                    local_port: key.local_port.wrapping_add(1),
                    ..key
                };
                self.flows.prefetch(self.hasher.hash(&next));
                return Ok((key, hash));
            }
        }
        Err(Errno::ADDRNOTAVAIL)
    }

    /// Where the search for a local port begins. `key` has none yet; most opens are like the one before.
    fn port_start(&mut self, key: &FlowKey) -> u32 {
        if !self.port_start.0.is_same(key) {
            self.port_start = (*key, self.isn.port_start(key));
        }
        self.port_start.1
    }

    fn is_free(&self, key: &FlowKey, hash: u64) -> bool {
        self.find_flow(key, hash).is_none()
            && self.listeners.find(key.local, key.local_port).is_none()
    }
}
