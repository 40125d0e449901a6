//! Active opens: a source address, a local port that makes the flow unique, and a connection in
//! SYN_SENT.

use std::net::{IpAddr, SocketAddr};

use ring::socket_block::SocketId;
use rustix::io::Errno;
use tcp::{ActiveOpen, FastOpenSyn};
use wire::Addr;

use crate::context::{Connect, FastOpenAnswer, FastOpenQuery, SocketOption, name_of, socket_addr};
use crate::core::Core;
use crate::flows::flow_table::FlowEntry;
use crate::flows::slot::Role;
use crate::requests::job_queue::refuse;

impl Core {
    /// Opens a connection. The socket's state tells a failure.
    pub(crate) fn connect(&mut self, connect: Connect) {
        let Some(socket) = self.reserved(connect.socket) else {
            return refuse(connect.answer);
        };
        let outcome = self.open(socket, &connect);
        if outcome.is_err() && self.waits_for_port(&connect) {
            return self.host_wishes.waiting.push(connect);
        }
        match outcome {
            Ok(()) => self.queue_opening(socket),
            Err(_) => self.forget_written_ahead(socket),
        }
        self.answer(socket, outcome, connect.answer);
    }

    /// True if a reserved socket is on the list of openings.
    pub(crate) fn waits_to_begin(&self, socket: u32) -> bool {
        self.schedule.lists.is_opening(socket) && self.flows.sockets.role(socket) == Role::Reserved
    }

    /// Begins a connection that waited on the list of openings: its SYN is due. False: it cannot
    /// begin, and the application was told.
    pub(crate) fn begin_waiting(&mut self, socket: u32) -> bool {
        let (_, remote) = self.flows.sockets.block(socket).names();
        let plain = Connect {
            socket: SocketId {
                index: socket,
                generation: self.flows.sockets.block(socket).generation(),
            },
            local: None,
            remote: socket_addr(Addr::from_octets(remote.address), remote.port),
            options: Vec::new(),
            fast_open: false,
            answer: None,
        };
        match self.open(socket, &plain) {
            Ok(()) => true,
            Err(_) if self.waits_for_port(&plain) => {
                self.schedule.lists.take_out(socket);
                self.host_wishes.waiting.push(plain);
                false
            }
            Err(errno) => {
                self.schedule.lists.take_out(socket);
                self.fail_socket(socket, errno);
                false
            }
        }
    }

    /// Makes a connection of a reserved socket. The caller has its SYN sent; no deadline is set
    /// before that has left.
    fn open(&mut self, socket: u32, connect: &Connect) -> Result<(), Errno> {
        self.host_wishes.is_short = false;
        let remote = self.destination_of(connect);
        if remote.port() == 0 || remote.ip().is_unspecified() {
            return Err(Errno::CONNREFUSED);
        }
        if !self.network.may_reach(remote.ip()) {
            return Err(Errno::NETUNREACH);
        }
        // As in Linux, packets from a loopback address stay within the host.
        if connect.local.is_some_and(|local| local.ip().is_loopback())
            && !self.network.addresses.is_local(remote.ip())
        {
            return Err(Errno::INVAL);
        }
        let neighbour = self.network.hop(Addr::from(remote.ip()), self.env.now_ns)?;
        let is_bound = self.flows.sockets.slot(socket).bound;
        let local = self.source_of(connect, remote.ip(), is_bound)?;
        let port = connect.local.map_or(0, |local| local.port());
        let found = self.flows.unique_key(&self.isn, local, port, remote);
        self.host_wishes.is_short = port == 0 && found.is_err();
        let (key, hash) = found?;
        let mss_max = connect.options.iter().find_map(|option| match option {
            SocketOption::MaxSegment(mss) => Some(*mss),
            _ => None,
        });
        let mss = self
            .network
            .path_mss(key.remote, mss_max.unwrap_or(0), self.env.now_ns);
        let fast_open = if connect.fast_open {
            self.fast_open_syn(key.remote, mss, asks_no_cookie(&connect.options))
        } else {
            None
        };
        let open = ActiveOpen {
            iss: self.isn.isn(&key, self.env.now_ns),
            ts_offset: self.isn.timestamp_offset(&key),
            mss,
            mss_default: if key.remote.is_v4() {
                self.env.config.tcp.mss_default_v4
            } else {
                self.env.config.tcp.mss_default_v6
            },
            buffers: self.buffers_of(&connect.options),
            fast_open,
        };
        self.flows
            .table
            .insert(hash, FlowEntry::Connection(socket))
            .map_err(|_| Errno::NOBUFS)?;
        let (slot, _, block) = self.flows.sockets.parts(socket);
        slot.become_connection(key, hash)
            .connect_in(&mut self.env.cx(), &open);
        slot.neighbour = Some(neighbour);
        block.set_names(
            name_of(key.local, key.local_port),
            name_of(key.remote, key.remote_port),
        );
        self.flows.ledger.begin(socket, &key);
        self.tell_path(socket);
        self.sample_story(socket);
        for &option in &connect.options {
            let effects = self.set_option(socket, option);
            self.settle(socket, effects);
        }
        if connect.fast_open {
            self.write_ahead_of_syn(socket);
        }
        Ok(())
    }

    /// The Fast Open option and data of a SYN to `remote`, with segments of at most `mss` bytes.
    pub(crate) fn fast_open_syn(
        &mut self,
        remote: Addr,
        mss: u16,
        no_cookie: bool,
    ) -> Option<FastOpenSyn> {
        let settings = &self.env.config.tcp.fast_open;
        self.network
            .destinations
            .fast_open_syn(remote, mss, no_cookie, settings, self.env.now_ns)
    }

    /// Tells an application what a Fast Open could carry.
    pub(crate) fn answer_fast_open(&mut self, mut query: FastOpenQuery) {
        let remote = Addr::from(query.remote.ip());
        let mss = self
            .network
            .path_mss(remote, query.mss_max, self.env.now_ns);
        let syn = self.fast_open_syn(remote, mss, query.no_cookie);
        let is_request = |syn: &FastOpenSyn| syn.option.is_some_and(|option| option.is_request());
        let syn = syn.filter(|syn| !is_request(syn));
        let answer = FastOpenAnswer {
            has_cookie: syn.is_some(),
            syn_bytes_max: syn.map_or(0, |syn| u32::from(syn.bytes)),
        };
        // The asking thread may have gone.
        let _ = query.answer.push(answer);
        if let Some(socket) = self.reserved(query.socket) {
            self.tell(socket);
        }
    }

    /// Offers bytes that were written before the open to the SYN.
    fn write_ahead_of_syn(&mut self, socket: u32) {
        let (slot, _, block) = self.flows.sockets.parts(socket);
        if let Some(conn) = slot.conn.as_mut() {
            let buffered = slot.tx.buffered(block);
            let effects = conn.on_write(&mut self.env.cx(), buffered);
            self.settle(socket, effects);
        }
    }

    /// Drops bytes that were to ride on the SYN, before the refusal is told: an application that
    /// tries again writes them again.
    #[cold]
    fn forget_written_ahead(&mut self, socket: u32) {
        let (slot, pool, block) = self.flows.sockets.parts(socket);
        let buffered = slot.tx.buffered(block);
        slot.tx.acknowledge(pool, block, buffered);
    }

    /// The peer's address. As in Linux, the unspecified one stands for this host: the address that
    /// the socket is bound to, or the loopback address where the stack has one.
    fn destination_of(&self, connect: &Connect) -> SocketAddr {
        let mut remote = connect.remote;
        if remote.ip().is_unspecified() {
            let bound = connect.local.map(|local| local.ip());
            let bound = bound.filter(|ip| !ip.is_unspecified());
            let loopback = self.network.addresses.loopback(remote.is_ipv4());
            if let (Some(loopback), bound) = (loopback, bound) {
                remote.set_ip(bound.unwrap_or(loopback));
            }
        }
        remote
    }

    fn source_of(
        &mut self,
        connect: &Connect,
        remote: IpAddr,
        is_bound: bool,
    ) -> Result<IpAddr, Errno> {
        match connect.local.map(|local| local.ip()) {
            Some(ip) if !ip.is_unspecified() => {
                let usable = (is_bound || self.network.addresses.is_local(ip))
                    && ip.is_ipv4() == remote.is_ipv4();
                usable.then_some(ip).ok_or(Errno::ADDRNOTAVAIL)
            }
            _ => self.network.source_to(remote).ok_or(Errno::ADDRNOTAVAIL),
        }
    }
}

/// `TCP_FASTOPEN_NO_COOKIE` among the options of an open.
pub(crate) fn asks_no_cookie(options: &[SocketOption]) -> bool {
    options.contains(&SocketOption::FastOpenNoCookie(true))
}
