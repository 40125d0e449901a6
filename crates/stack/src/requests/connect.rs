//! Active opens: choice of a source address and a local port that makes the flow unique, then a
//! connection in SYN_SENT.

use std::net::{IpAddr, SocketAddr};

use ring::socket_block::SocketId;
use rustix::io::Errno;
use tcp::isn::IsnGenerator;
use tcp::{ActiveOpen, FastOpenSyn};
use wire::{Addr, FlowKey};

use crate::config::StackConfig;
use crate::context::{Connect, FastOpenAnswer, FastOpenQuery, SocketOption, name_of, socket_addr};
use crate::effects::{apply_effects, notify, queue_opening};
use crate::engine::{Engine, Parts, tell_path};
use crate::event_queue::EventQueue;
use crate::flows::Flows;
use crate::flows::slot::Role;
use crate::host_wishes::waits_for_port;
use crate::network::addresses::is_link_local;
use crate::network::layer::{FIRST_PORT, Network};
use crate::network::neighbours::NeighbourId;
use crate::requests::answers::{answer, fail_socket, refuse, reserved};
use crate::requests::options::{buffers_of, set_option};
use crate::schedule::Schedule;
use crate::source_pool::SourcePool;
use crate::tcp_env::TcpEnv;

/// Opens a connection. The socket's state word tells a failure.
pub(crate) fn connect(engine: &mut Engine, isn: &mut IsnGenerator, connect: Connect) {
    let Parts { flows, .. } = engine.parts();
    let Some(socket) = reserved(flows, connect.socket) else {
        return refuse(connect.answer);
    };
    let outcome = open(engine, isn, socket, &connect);
    let parts = engine.parts();
    if outcome.is_err() && waits_for_port(parts.host_wishes, parts.network, &connect) {
        return parts.host_wishes.waiting.push(connect);
    }
    match outcome {
        Ok(()) => queue_opening(parts.schedule, socket),
        Err(_) => forget_written_ahead(parts.flows, socket),
    }
    answer(parts.flows, parts.events, socket, outcome, connect.answer);
}

/// True if the socket is reserved and on the list of openings.
pub(crate) fn waits_to_begin(flows: &Flows, schedule: &Schedule, socket: u32) -> bool {
    schedule.lists().is_opening(socket) && flows.role(socket) == Role::Reserved
}

/// Begins a connection from the list of openings, so that its SYN is due. False: it cannot begin,
/// and the application was told or the open waits for a port.
pub(crate) fn begin_waiting(engine: &mut Engine, isn: &mut IsnGenerator, socket: u32) -> bool {
    let Parts { flows, .. } = engine.parts();
    let (_, remote) = flows.block(socket).names();
    let plain = Connect {
        socket: SocketId {
            index: socket,
            generation: flows.block(socket).generation(),
        },
        local: None,
        remote: socket_addr(Addr::from_octets(remote.address), remote.port),
        options: Vec::new(),
        fast_open: false,
        answer: None,
    };
    let Err(errno) = open(engine, isn, socket, &plain) else {
        return true;
    };
    let parts = engine.parts();
    parts.schedule.lists_mut().take_out(socket);
    match waits_for_port(parts.host_wishes, parts.network, &plain) {
        true => parts.host_wishes.waiting.push(plain),
        false => fail_socket(parts.flows, parts.events, socket, errno),
    }
    false
}

/// Makes a connection from a reserved socket. The caller sends the SYN; no timer runs before that
/// has left.
fn open(
    engine: &mut Engine,
    isn: &mut IsnGenerator,
    socket: u32,
    connect: &Connect,
) -> Result<(), Errno> {
    let parts = engine.parts();
    parts.host_wishes.is_short = false;
    let remote = destination_of(parts.network, connect);
    if remote.port() == 0 || remote.ip().is_unspecified() {
        return Err(Errno::CONNREFUSED);
    }
    if !parts.network.may_reach(remote.ip()) {
        return Err(Errno::NETUNREACH);
    }
    // Packets from a loopback address stay within the host, as in Linux.
    if connect.local.is_some_and(|local| local.ip().is_loopback())
        && !parts.network.addresses().is_local(remote.ip())
    {
        return Err(Errno::INVAL);
    }
    let (neighbour, (key, hash)) = ends(&mut engine.parts(), isn, socket, connect, remote)?;
    let parts = engine.parts();
    let mss_max = connect.options.iter().find_map(|option| match option {
        SocketOption::MaxSegment(mss) => Some(*mss),
        _ => None,
    });
    let mss = parts.network.path_mss(
        key.local,
        key.remote,
        mss_max.unwrap_or(0),
        parts.env.now_ns,
    );
    let open = active_open((parts.env, parts.network), isn, connect, &key, mss);
    (parts.flows)
        .add_connection(hash, socket, &key)
        .map_err(|_| Errno::NOBUFS)?;
    let (slot, _, block) = parts.flows.socket_parts(socket);
    slot.become_connection(key, hash)
        .connect_in(&mut parts.env.cx(), &open);
    slot.neighbour = Some(neighbour);
    if neighbour.port() != FIRST_PORT {
        parts
            .schedule
            .lists_mut()
            .move_to_port(socket, neighbour.port());
    }
    block.set_names(
        name_of(key.local, key.local_port),
        name_of(key.remote, key.remote_port),
    );
    tell_path(parts.flows, parts.network, parts.env.now_ns, socket);
    (parts.flows).sample_story(socket, parts.env.now_ns, parts.counters);
    for &option in &connect.options {
        let effects = set_option(engine, socket, option);
        apply_effects(engine, socket, effects);
    }
    if connect.fast_open {
        write_ahead_of_syn(engine, socket);
    }
    Ok(())
}

/// Next hop, flow key and hash of a new connection.
type Ends = (NeighbourId, (FlowKey, u64));

/// Next hop and flow for a connection to `remote`, the destination of `connect`.
fn ends(
    parts: &mut Parts<'_>,
    isn: &IsnGenerator,
    socket: u32,
    connect: &Connect,
    remote: SocketAddr,
) -> Result<Ends, Errno> {
    let flows = &mut *parts.flows;
    let is_bound = flows.slot(socket).bound;
    if flows.sources().is_some_and(|pool| pool.is_for(remote))
        && !is_bound
        && connect.local.is_none()
    {
        return pooled_ends(parts, isn, remote);
    }
    let local = source_of(parts.network, connect, remote, is_bound);
    let from = local.map_or(Addr::UNSPECIFIED_V4, Addr::from);
    let neighbour = (parts.network).hop(from, Addr::from(remote.ip()), parts.env.now_ns)?;
    let local = local?;
    let port = connect.local.map_or(0, |local| local.port());
    let found = flows.unique_key(isn, local, port, remote);
    parts.host_wishes.is_short = port == 0 && found.is_err();
    Ok((neighbour, found?))
}

/// Next hop and flow for a connection from the pool: from the next address with a free port.
#[cold]
fn pooled_ends(
    parts: &mut Parts<'_>,
    isn: &IsnGenerator,
    remote: SocketAddr,
) -> Result<Ends, Errno> {
    let (flows, network) = (&mut *parts.flows, &mut *parts.network);
    let mut outcome = Err(Errno::ADDRNOTAVAIL);
    for _ in 0..flows.sources().map_or(0, SourcePool::len) {
        let source = match flows.take_source() {
            Some(ip) => Some(ip).filter(|&ip| network.addresses().is_local(ip)),
            None => network.source_to(remote.ip()),
        };
        let from = source.map_or(Addr::UNSPECIFIED_V4, Addr::from);
        let neighbour = network.hop(from, Addr::from(remote.ip()), parts.env.now_ns)?;
        let Some(source) = source else { continue };
        outcome = (flows.pooled_key(isn, source, remote)).map(|found| (neighbour, found));
        if outcome.is_ok() {
            break;
        }
    }
    parts.host_wishes.is_short = outcome.is_err();
    outcome
}

/// Our parameters for a connection that begins with segments of at most `mss` bytes.
fn active_open(
    (env, network): (&TcpEnv, &mut Network),
    isn: &mut IsnGenerator,
    connect: &Connect,
    key: &FlowKey,
    mss: u16,
) -> ActiveOpen {
    let fast_open = if connect.fast_open {
        fast_open_syn(
            network,
            &env.config,
            env.now_ns,
            key.remote,
            mss,
            asks_no_cookie(&connect.options),
        )
    } else {
        None
    };
    ActiveOpen {
        iss: isn.isn(key, env.now_ns),
        ts_offset: isn.timestamp_offset(key),
        mss,
        mss_default: if key.remote.is_v4() {
            env.config.tcp.mss_default_v4
        } else {
            env.config.tcp.mss_default_v6
        },
        buffers: buffers_of(&env.config, &connect.options),
        fast_open,
    }
}

/// Fast Open option and data of a SYN to `remote`, with segments of at most `mss` bytes.
pub(crate) fn fast_open_syn(
    network: &mut Network,
    config: &StackConfig,
    now_ns: u64,
    remote: Addr,
    mss: u16,
    no_cookie: bool,
) -> Option<FastOpenSyn> {
    let settings = &config.tcp.fast_open;
    network
        .destinations_mut()
        .fast_open_syn(remote, mss, no_cookie, settings, now_ns)
}

/// Answers how much data a Fast Open could carry.
pub(crate) fn answer_fast_open(
    flows: &mut Flows,
    network: &mut Network,
    events: &mut EventQueue,
    config: &StackConfig,
    now_ns: u64,
    mut query: FastOpenQuery,
) {
    let remote = Addr::from(query.remote.ip());
    let local = network.source_to(query.remote.ip());
    let local = local.map_or(remote, Addr::from);
    let mss = network.path_mss(local, remote, query.mss_max, now_ns);
    let syn = fast_open_syn(network, config, now_ns, remote, mss, query.no_cookie);
    let is_request = |syn: &FastOpenSyn| syn.option.is_some_and(|option| option.is_request());
    let syn = syn.filter(|syn| !is_request(syn));
    let answer = FastOpenAnswer {
        has_cookie: syn.is_some(),
        syn_bytes_max: syn.map_or(0, |syn| u32::from(syn.bytes)),
    };
    // The thread that asked may be gone.
    let _ = query.answer.push(answer);
    if let Some(socket) = reserved(flows, query.socket) {
        notify(flows, events, socket);
    }
}

/// Offers bytes written before the open to the SYN.
fn write_ahead_of_syn(engine: &mut Engine, socket: u32) {
    let Parts { env, flows, .. } = engine.parts();
    let (slot, _, block) = flows.socket_parts(socket);
    if let Some(conn) = slot.conn.as_mut() {
        let buffered = slot.tx.buffered(block);
        let effects = conn.on_write(&mut env.cx(), buffered);
        apply_effects(engine, socket, effects);
    }
}

/// Drops bytes written for the SYN before a refusal is reported: an application that tries again
/// writes them again.
#[cold]
fn forget_written_ahead(flows: &mut Flows, socket: u32) {
    let (slot, pool, block) = flows.socket_parts(socket);
    let buffered = slot.tx.buffered(block);
    slot.tx.acknowledge(pool, block, buffered);
}

/// The peer's address. As in Linux, the unspecified address stands for this host: the address that
/// the socket is bound to, or a loopback address of the stack.
fn destination_of(network: &Network, connect: &Connect) -> SocketAddr {
    let mut remote = connect.remote;
    if remote.ip().is_unspecified() {
        let bound = connect.local.map(|local| local.ip());
        let bound = bound.filter(|ip| !ip.is_unspecified());
        let loopback = network.addresses().loopback(remote.is_ipv4());
        if let (Some(loopback), bound) = (loopback, bound) {
            remote.set_ip(bound.unwrap_or(loopback));
        }
    }
    remote
}

fn source_of(
    network: &mut Network,
    connect: &Connect,
    remote: SocketAddr,
    is_bound: bool,
) -> Result<IpAddr, Errno> {
    match connect.local.map(|local| local.ip()) {
        Some(ip) if !ip.is_unspecified() => {
            let usable =
                (is_bound || network.addresses().is_local(ip)) && ip.is_ipv4() == remote.is_ipv4();
            usable.then_some(ip).ok_or(Errno::ADDRNOTAVAIL)
        }
        _ => match scope_of(&remote) {
            Some(port) => network.source_on(remote.ip(), port),
            None => network.source_to(remote.ip()),
        }
        .ok_or(Errno::ADDRNOTAVAIL),
    }
}

/// The port that a link-local address names by its scope id, which counts from 1.
fn scope_of(remote: &SocketAddr) -> Option<u8> {
    match remote {
        SocketAddr::V6(v6) if is_link_local(Addr::v6(*v6.ip())) => {
            v6.scope_id().checked_sub(1)?.try_into().ok()
        }
        _ => None,
    }
}

/// True if the options of an open include `TCP_FASTOPEN_NO_COOKIE`.
pub(crate) fn asks_no_cookie(options: &[SocketOption]) -> bool {
    options.contains(&SocketOption::FastOpenNoCookie(true))
}
