//! AF_PACKET sockets: the address structure and the socket options that rustix does not name.
//!
//! `packet`, the bulk lane of `xdp` and the mirror use the module.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{
    AddressFamily, Protocol, SendFlags, SocketFlags, SocketType, bind, sendto, socket_with,
};

/// `PACKET_IGNORE_OUTGOING`, linux/if_packet.h.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// `struct sockaddr_ll` for an interface and all protocols.
struct LinkAddr(libc::sockaddr_ll);

// SAFETY: `with_sockaddr` passes a pointer to a whole `sockaddr_ll` that lives during the call, and
// its length.
unsafe impl SocketAddrArg for LinkAddr {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let len = size_of::<libc::sockaddr_ll>() as SocketAddrLen;
        f((&raw const self.0).cast(), len)
    }
}

/// Makes a raw packet socket that is not bound, so that nothing arrives before its options are set.
pub(crate) fn raw_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let no_protocol: Option<Protocol> = None;
    socket_with(AddressFamily::PACKET, SocketType::RAW, flags, no_protocol)
}

impl LinkAddr {
    fn of(index: i32) -> Self {
        Self::with_protocol(index, libc::ETH_P_ALL as u16)
    }

    fn with_protocol(index: i32, protocol: u16) -> Self {
        Self(libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        })
    }
}

/// Binds a socket to an interface for all protocols, so that frames arrive from now on.
pub(crate) fn bind_to(fd: impl AsFd, index: i32) -> Result<(), Errno> {
    bind(fd, &LinkAddr::of(index))
}

/// Binds a socket to an interface for sending only: no frame has protocol 0.
pub(crate) fn bind_to_send(fd: impl AsFd, index: i32) -> Result<(), Errno> {
    bind(fd, &LinkAddr::with_protocol(index, 0))
}

/// Sends one frame on an interface, from an unbound socket.
pub(crate) fn send_by(fd: impl AsFd, index: i32, frame: &[u8]) -> Result<(), Errno> {
    sendto(fd, frame, SendFlags::DONTWAIT, &LinkAddr::of(index)).map(|_| ())
}

/// Index of the interface to which the socket is bound; -1 once that is gone.
pub(crate) fn bound_index(fd: impl AsFd) -> Result<i32, Errno> {
    let mut address = LinkAddr::of(0);
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes at `address`, a whole `sockaddr_ll` that any
    // bytes are valid for, and the length at `len`.
    let rc = unsafe { libc::getsockname(fd, (&raw mut address.0).cast(), &raw mut len) };
    succeeded(rc).map(|()| address.0.sll_ifindex)
}

fn succeeded(rc: libc::c_int) -> Result<(), Errno> {
    if rc == 0 {
        return Ok(());
    }
    let os = std::io::Error::last_os_error().raw_os_error();
    Err(Errno::from_raw_os_error(os.unwrap_or(libc::EIO)))
}

fn set<T>(fd: impl AsFd, level: libc::c_int, option: libc::c_int, value: &T) -> Result<(), Errno> {
    let len = size_of::<T>() as libc::socklen_t;
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the pointer and the length are those of `value`, which the kernel only reads; each
    // caller passes the type that its option takes.
    succeeded(unsafe { libc::setsockopt(fd, level, option, (&raw const *value).cast(), len) })
}

/// Has each frame preceded by a `virtio_net_hdr`, which tells of unfinished offloads.
pub(crate) fn want_virtio_header(fd: impl AsFd) -> Result<(), Errno> {
    set::<libc::c_int>(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)
}

/// Excludes frames that this host sends through the interface.
pub(crate) fn ignore_outgoing(fd: impl AsFd) -> Result<(), Errno> {
    set::<libc::c_int>(fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1)
}

/// Sets the receive buffer in bytes. The call needs a privilege and ignores the system's limit.
pub(crate) fn receive_room(fd: impl AsFd, bytes: libc::c_int) -> Result<(), Errno> {
    set::<libc::c_int>(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
}

/// Sets the send buffer in bytes. The call needs a privilege and ignores the system's limit.
pub(crate) fn send_room(fd: impl AsFd, bytes: libc::c_int) -> Result<(), Errno> {
    set::<libc::c_int>(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
}

/// Number of frames that found no room in the socket since the last call.
pub(crate) fn dropped_since_asked(fd: impl AsFd) -> Result<u64, Errno> {
    let mut statistics = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    let fd = fd.as_fd().as_raw_fd();
    let option = libc::PACKET_STATISTICS;
    let into = (&raw mut statistics).cast();
    // SAFETY: the kernel writes at most `len` bytes at `statistics`, a whole `tpacket_stats` that
    // any bytes are valid for, and the length at `len`.
    let rc = unsafe { libc::getsockopt(fd, libc::SOL_PACKET, option, into, &raw mut len) };
    succeeded(rc).map(|()| u64::from(statistics.tp_drops))
}

/// Mode of `PACKET_FANOUT`: spread by hash, in a group whose number the kernel chooses.
const FANOUT_UNIQUE: u32 = libc::PACKET_FANOUT_HASH << 16 | libc::PACKET_FANOUT_FLAG_UNIQUEID << 16;

/// Makes a group that shares the interface's frames, with this bound socket as its first; returns
/// its number.
pub(crate) fn fanout_make(fd: impl AsFd) -> Result<u16, Errno> {
    set::<u32>(&fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &FANOUT_UNIQUE)?;
    let mut value: u32 = 0;
    let mut len = size_of::<u32>() as libc::socklen_t;
    let fd = fd.as_fd().as_raw_fd();
    let (option, into) = (libc::PACKET_FANOUT, (&raw mut value).cast());
    // SAFETY: the kernel writes at most `len` bytes at `value`, a whole word that any bytes are
    // valid for, and the length at `len`.
    let rc = unsafe { libc::getsockopt(fd, libc::SOL_PACKET, option, into, &raw mut len) };
    succeeded(rc).map(|()| value as u16)
}

/// Adds a bound socket to a group.
pub(crate) fn fanout_join(fd: impl AsFd, group: u16) -> Result<(), Errno> {
    let value = u32::from(group) | libc::PACKET_FANOUT_HASH << 16;
    set::<u32>(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &value)
}

/// Makes the interface take frames for any MAC address while the socket is open.
pub(crate) fn promiscuous(fd: impl AsFd, index: i32) -> Result<(), Errno> {
    let request = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}
