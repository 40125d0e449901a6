//! Veth pairs by rtnetlink: with chosen interface indices, set up, given an MTU, removed.
//!
//! Owns the few messages for this. Each call acts in the network namespace of the calling thread.
//! Called by `mod`.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLA_F_NESTED: u16 = 0x8000;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const AF_INET6: u16 = 10;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFF_UP: u32 = 1;
const IFF_NOARP: u32 = 0x80;

/// Makes a pair with one queue at each end. Both ends are up and have no addresses.
///
/// # Errors
/// `EXIST` if a name or an index is taken; other errors of the kernel.
pub(super) fn add(near: (&str, u32), far: (&str, u32), mtu: u32) -> Result<(), Errno> {
    make(near, far, None, (mtu, 1))?;
    set(near.1, mtu)?;
    set(far.1, mtu)
}

/// Makes a pair with the given number of queues. Both ends are down; the second one is in
/// `namespace` if given.
fn make(
    near: (&str, u32),
    far: (&str, u32),
    namespace: Option<BorrowedFd<'_>>,
    (mtu, queues): (u32, u32),
) -> Result<(), Errno> {
    let mut message = Message::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    message.interface(near.1, 0);
    end(&mut message, near.0, (mtu, queues));
    let info = message.open(IFLA_LINKINFO | NLA_F_NESTED);
    message.attribute(IFLA_INFO_KIND, b"veth\0");
    let data = message.open(IFLA_INFO_DATA | NLA_F_NESTED);
    let peer = message.open(VETH_INFO_PEER | NLA_F_NESTED);
    message.interface(far.1, 0);
    end(&mut message, far.0, (mtu, queues));
    if let Some(namespace) = namespace {
        message.attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
    }
    for nest in [peer, data, info] {
        message.close(nest);
    }
    message.ask()
}

/// The attributes of one end.
fn end(message: &mut Message, name: &str, (mtu, queues): (u32, u32)) {
    let mut text = name.as_bytes().to_vec();
    text.push(0);
    message.attribute(IFLA_IFNAME, &text);
    message.attribute(IFLA_MTU, &mtu.to_ne_bytes());
    message.attribute(IFLA_NUM_TX_QUEUES, &queues.to_ne_bytes());
    message.attribute(IFLA_NUM_RX_QUEUES, &queues.to_ne_bytes());
}

/// Like [`add`], with several queues and with the second end in another network namespace, where
/// the kernel chooses its index. The caller has to [set](set) both ends up.
///
/// # Errors
/// `EXIST` if a name or an index is taken; other errors of the kernel.
pub(super) fn add_across(
    here: (&str, u32),
    there: (&str, BorrowedFd<'_>),
    (mtu, queues): (u32, u32),
) -> Result<(), Errno> {
    make(here, (there.0, 0), Some(there.1), (mtu, queues))
}

/// Sets an interface up with this MTU, and keeps the kernel from giving it addresses.
///
/// # Errors
/// `NODEV` if there is none.
pub(super) fn set(index: u32, mtu: u32) -> Result<(), Errno> {
    let mut message = Message::new(RTM_NEWLINK, 0);
    message.interface(index, IFF_UP | IFF_NOARP);
    message.attribute(IFLA_MTU, &mtu.to_ne_bytes());
    // An end has no addresses, so that it carries only our frames.
    let families = message.open(IFLA_AF_SPEC | NLA_F_NESTED);
    let v6 = message.open(AF_INET6 | NLA_F_NESTED);
    message.attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
    message.close(v6);
    message.close(families);
    message.ask()
}

/// Removes an interface, and with it the other end of the pair.
///
/// # Errors
/// `NODEV` if there is none.
pub(super) fn remove(index: u32) -> Result<(), Errno> {
    let mut message = Message::new(RTM_DELLINK, 0);
    message.interface(index, 0);
    message.ask()
}

/// A request to rtnetlink.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; 4]; // the length comes last
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        bytes.extend([0; 8]);
        Self(bytes)
    }

    /// `struct ifinfomsg`: the index, and the flags to set.
    fn interface(&mut self, index: u32, flags: u32) {
        self.0.extend([0; 4]);
        self.0.extend(index.to_ne_bytes());
        self.0.extend(flags.to_ne_bytes());
        self.0.extend(flags.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let nest = self.open(kind);
        self.0.extend(value);
        self.close(nest);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn open(&mut self, kind: u16) -> usize {
        let at = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend(kind.to_ne_bytes());
        at
    }

    fn close(&mut self, at: usize) {
        let length = (self.0.len() - at) as u16;
        self.0[at..at + 2].copy_from_slice(&length.to_ne_bytes());
    }

    fn ask(mut self) -> Result<(), Errno> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // NETLINK_ROUTE is 0
        )?;
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&socket, &self.0, SendFlags::empty(), &kernel)?;
        let mut reply = [0u8; 4096];
        let (length, _) = recv(&socket, &mut reply, RecvFlags::empty())?;
        acknowledgement(reply.get(..length).unwrap_or_default())
    }
}

/// A reply is `NLMSG_ERROR` with the negated error, 0 for success.
fn acknowledgement(reply: &[u8]) -> Result<(), Errno> {
    let kind = reply.get(4..6).and_then(|bytes| bytes.try_into().ok());
    let code = reply.get(16..20).and_then(|bytes| bytes.try_into().ok());
    match (kind.map(u16::from_ne_bytes), code.map(i32::from_ne_bytes)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(code)) => Err(Errno::from_raw_os_error(code.saturating_neg())),
        _ => Err(Errno::BADMSG),
    }
}
