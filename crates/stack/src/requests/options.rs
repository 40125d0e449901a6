//! Socket options and `TCP_INFO` in the stack. The layers above map option numbers and names.
//!
//! A connection stores its options itself; most are TCP's. A listener remembers the options set on
//! it in order, and each accepted connection begins with them, as in Linux.

use tcp::{Buffers, Effects};

use crate::config::StackConfig;
use crate::context::{InfoQuery, SocketInfo, SocketOption, socket_addr};
use crate::effects::{apply_effects, notify_room};
use crate::engine::{Engine, Parts};
use crate::flows::Flows;
use crate::flows::half_opens::ListenerId;
use crate::flows::listeners::Listener;
use crate::flows::slot::Role;
use crate::network::layer::Network;
use crate::tcp_env::TcpEnv;

/// Sets an option on a connection or listener.
pub(crate) fn set_option_later(engine: &mut Engine, socket: u32, option: SocketOption) {
    let Parts { flows, .. } = engine.parts();
    if let Role::Listener(index) = flows.role(socket) {
        if let Some(listener) = flows.listeners_mut().by_index_mut(index) {
            listener.set_option(option);
        }
        return;
    }
    let effects = set_option(engine, socket, option);
    apply_effects(engine, socket, effects);
}

/// Applies an option of the listener to a new connection.
pub(crate) fn inherit_option(engine: &mut Engine, socket: u32, option: SocketOption) -> Effects {
    let Parts { env, flows, .. } = engine.parts();
    if let SocketOption::RtoMin(us) = option
        && let Some(conn) = flows.slot(socket).conn.as_mut()
    {
        conn.begin_with_rto_min_us(&env.cx(), us);
        return Effects::NONE;
    }
    set_option(engine, socket, option)
}

/// Sets an option of a connection.
pub(crate) fn set_option(engine: &mut Engine, socket: u32, option: SocketOption) -> Effects {
    let parts = engine.parts();
    let slot = parts.flows.slot(socket);
    let is_v4 = slot.key.local.is_v4();
    if slot.role != Role::Connection || option.sets_header(&mut slot.header, is_v4) {
        return Effects::NONE;
    }
    match option {
        SocketOption::ReceiveErrors { v4, v6 } => {
            parts.flows.set_receive_errors(socket, v4, v6);
        }
        SocketOption::StampSent(end, kinds) => {
            let lost = parts.flows.sockets_mut().await_stamps(socket, end, kinds);
            parts.counters.stamps_lost += lost;
        }
        SocketOption::StampArrivals(on) => {
            slot.stamps.get_or_insert_default().of_arrivals = on;
            slot.watch();
        }
        SocketOption::EndOfRecord(position) => {
            if let Some(conn) = slot.conn.as_mut() {
                let offset = slot.tx.offset_of(position);
                conn.end_record(&mut parts.env.cx(), offset);
            }
        }
        SocketOption::Urgent(position) => {
            let offset = slot.tx.offset_of(position);
            if let Some(conn) = slot.conn.as_mut() {
                return conn.mark_urgent(&mut parts.env.cx(), offset);
            }
        }
        SocketOption::SendBuffer(_) | SocketOption::NotSentLowat(_) => {
            let effects = set_tcp_option(parts.env, parts.flows, socket, option);
            notify_room(engine, socket);
            return effects;
        }
        option => return set_tcp_option(parts.env, parts.flows, socket, option),
    }
    Effects::NONE
}

fn set_tcp_option(
    env: &mut TcpEnv,
    flows: &mut Flows,
    socket: u32,
    option: SocketOption,
) -> Effects {
    let Some(conn) = flows.slot(socket).conn.as_mut() else {
        return Effects::NONE;
    };
    option.set_in_tcp(conn, &mut env.cx())
}

/// The buffer sizes of a connection that begins with these options.
pub(crate) fn buffers_of(config: &StackConfig, options: &[SocketOption]) -> Buffers {
    let config = &config.tcp;
    options
        .iter()
        .fold(Buffers::of(config), |buffers, option| match *option {
            SocketOption::RecvBuffer(asked) => buffers.with_recv(asked),
            SocketOption::SendBuffer(asked) => buffers.with_send(asked),
            SocketOption::WindowClamp(asked) => buffers.with_window_clamp(asked),
            _ => buffers,
        })
}

/// The buffer sizes of a connection that a listener will accept.
#[inline]
pub(crate) fn buffers_to_accept(
    flows: &Flows,
    config: &StackConfig,
    listener: ListenerId,
) -> Buffers {
    match flows.listeners().at(listener) {
        Some(listening) => buffers_of_listener(config, listening),
        None => Buffers::of(&config.tcp),
    }
}

/// The buffer sizes that a listener's options choose.
pub(crate) fn buffers_of_listener(config: &StackConfig, listener: &Listener) -> Buffers {
    match listener.sizes_buffers {
        true => buffers_of(config, &listener.options),
        false => Buffers::of(&config.tcp),
    }
}

/// Answers a request for the state of a connection.
#[cold]
pub(crate) fn answer_info(flows: &mut Flows, network: &Network, now_ns: u64, mut query: InfoQuery) {
    let info = flows
        .resolve(query.socket)
        .and_then(|socket| socket_info(flows, network, now_ns, socket));
    // The thread that asked may be gone.
    let _ = query.answer.push(info.map(Box::new));
}

fn socket_info(
    flows: &mut Flows,
    network: &Network,
    now_ns: u64,
    socket: u32,
) -> Option<SocketInfo> {
    let (slot, pool, block) = flows.socket_parts(socket);
    let unread = slot.rx.reclaim(pool, block);
    let conn = slot.conn.as_ref()?;
    let key = &slot.key;
    let tcp = conn.info_at(now_ns);
    let path_mtu = network.path_mtu(&tcp, key.local);
    Some(SocketInfo {
        tcp,
        local: socket_addr(key.local, key.local_port),
        remote: socket_addr(key.remote, key.remote_port),
        send_buffered: slot.tx.buffered(block),
        send_buffer_max: conn.send_buffer(),
        unread,
        recv_buffer_max: conn.recv_buffer(),
        path_mtu,
    })
}
