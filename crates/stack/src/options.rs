//! Options of sockets, applied; and what is known of a connection, asked for by number and name above.
//!
//! A connection has its options itself (most are TCP's). A listener keeps those that were set on it, latest last, and each connection that it accepts begins
//! with them, as in Linux.

use ring::socket_block::SocketState;
use tcp::Effects;

use crate::connect::socket_addr;
use crate::context::{InfoQuery, SocketInfo, SocketOption};
use crate::core::{Core, tcp_cx};
use crate::sockets::Role;

/// What of a traffic class is ECN's (RFC 3168).
const ECN_BITS: u8 = 3;

/// IP and TCP headers without options: what lies between MTU and MSS.
const fn headers_len(is_v4: bool) -> u32 {
    let ip = if is_v4 {
        wire::ipv4::HEADER_LEN
    } else {
        wire::ipv6::HEADER_LEN
    };
    (ip + wire::tcp::HEADER_LEN) as u32
}

impl Core {
    /// An option was set on a socket that exists already.
    pub(crate) fn set_option_later(&mut self, socket: u32, option: SocketOption) {
        if let Role::Listener(index) = self.sockets.slot(socket).role {
            if let Some(listener) = self.listeners.by_index_mut(index) {
                listener.set_option(option);
            }
            return;
        }
        let effects = self.set_option(socket, option);
        self.settle(socket, effects);
    }

    /// Sets an option of a connection.
    pub(crate) fn set_option(&mut self, socket: u32, option: SocketOption) -> Effects {
        let slot = self.sockets.slot_mut(socket);
        let Some(conn) = slot.conn.as_mut() else {
            return Effects::NONE;
        };
        let mut cx = tcp_cx!(self);
        match option {
            SocketOption::NoDelay(on) => conn.set_nodelay(&mut cx, on),
            SocketOption::Cork(on) => conn.set_cork(&mut cx, on),
            SocketOption::KeepAlive(times) => conn.set_keepalive(&mut cx, times),
            SocketOption::UserTimeout(ns) => {
                conn.set_user_timeout(ns);
                Effects::NONE
            }
            SocketOption::SendBuffer(bytes) => {
                let bytes_max = self.config.limits.send_buffer_bytes_max;
                self.sockets
                    .block(socket)
                    .set_tx_limit(bytes.min(bytes_max));
                Effects::NONE
            }
            SocketOption::MaxSegment(mss) => conn.set_max_segment(&mut cx, mss),
            SocketOption::Congestion(choice) => {
                conn.set_congestion(&cx, choice);
                Effects::NONE
            }
            SocketOption::SynRetries(retries) => {
                conn.set_syn_retries(retries);
                Effects::NONE
            }
            SocketOption::TrafficClass(class) => {
                slot.header.dscp = class & !ECN_BITS;
                Effects::NONE
            }
            SocketOption::HopLimit(limit) => {
                slot.header.hop_limit = limit;
                Effects::NONE
            }
            SocketOption::FinWait2(wait_ns) => {
                conn.set_fin_wait_2(wait_ns);
                Effects::NONE
            }
            // Those of listeners, and what mattered before the SYN.
            SocketOption::FastOpen(_)
            | SocketOption::FastOpenKey(_)
            | SocketOption::FastOpenNoCookie(_)
            | SocketOption::DeferAccept(_)
            | SocketOption::V6Only(_)
            | SocketOption::RecvBuffer(_) => Effects::NONE,
        }
    }

    /// What is known of a connection.
    #[cold]
    pub(crate) fn answer_info(&mut self, mut query: InfoQuery) {
        let info = self
            .sockets
            .resolve(query.socket)
            .and_then(|socket| self.socket_info(socket));
        // Who asked may have gone.
        let _ = query.answer.push(info.map(Box::new));
    }

    fn socket_info(&mut self, socket: u32) -> Option<SocketInfo> {
        let recv_buffer_max = self.config.limits.recv_buffer_bytes_max;
        let (slot, pool, block) = self.sockets.parts(socket);
        let unread = slot.rx.reclaim(pool, block);
        let conn = slot.conn.as_ref()?;
        debug_assert!(!block.state().contains(SocketState::CLOSED));
        let key = &slot.key;
        Some(SocketInfo {
            tcp: conn.info(),
            local: socket_addr(key.local, key.local_port),
            remote: socket_addr(key.remote, key.remote_port),
            send_buffered: slot.tx.buffered(block),
            send_buffer_max: block.tx_limit(),
            unread,
            recv_buffer_max,
            path_mtu: u32::from(self.network.mss_for(key.remote)) + headers_len(key.remote.is_v4()),
        })
    }
}
