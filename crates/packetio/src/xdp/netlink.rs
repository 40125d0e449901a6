//! Attaching an XDP program over rtnetlink, for kernels without XDP links (before 5.9).
//!
//! The only message is `RTM_SETLINK` with `IFLA_XDP`. Unlike a link, the program stays when the
//! process is killed. Its map of sockets is then empty, and all frames go to the kernel, until `ip
//! link set dev IFACE xdp off`. `attach.rs` calls the module.

use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// Flag `XDP_FLAGS_UPDATE_IF_NOEXIST`: do not replace another program.
const IF_NONE: u32 = 1 << 0;
/// Flag `XDP_FLAGS_REPLACE`: act only if the attached program is the expected one.
const REPLACE: u32 = 1 << 4;

const RTM_SETLINK: u16 = 19;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const IFLA_XDP: u16 = 43;
const NLA_F_NESTED: u16 = 0x8000;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_EXPECTED_FD: u16 = 8;
const HEADER_BYTES: usize = 16;

/// A program that is attached until this value is dropped.
#[derive(Debug)]
pub(super) struct Attached {
    /// Socket in the interface's network namespace, so that detaching works from any other.
    socket: OwnedFd,
    program: OwnedFd,
    ifindex: u32,
    mode_flags: u32,
    /// Process that attached the program: a forked child must not detach it.
    pid: u32,
}

impl Attached {
    /// Attaches `program` in the mode of `mode_flags` (`XDP_FLAGS_DRV_MODE` or
    /// `XDP_FLAGS_SKB_MODE`).
    ///
    /// # Errors
    /// `BUSY` or `EXIST` if another program is attached; else the driver's error.
    pub(super) fn attach(program: OwnedFd, ifindex: u32, mode_flags: u32) -> Result<Self, Errno> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // NETLINK_ROUTE is 0
        )?;
        let attributes = [
            (IFLA_XDP_FD, program.as_raw_fd().cast_unsigned()),
            (IFLA_XDP_FLAGS, mode_flags | IF_NONE),
        ];
        set_link(&socket, ifindex, &attributes)?;
        Ok(Self {
            socket,
            program,
            ifindex,
            mode_flags,
            pid: std::process::id(),
        })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        let none = u32::MAX; // descriptor -1
        let attributes = [
            (IFLA_XDP_FD, none),
            (IFLA_XDP_FLAGS, self.mode_flags | REPLACE),
            (
                IFLA_XDP_EXPECTED_FD,
                self.program.as_raw_fd().cast_unsigned(),
            ),
        ];
        if set_link(&self.socket, self.ifindex, &attributes) == Err(Errno::INVAL) {
            // Kernels before 5.7 have no REPLACE.
            let attributes = [(IFLA_XDP_FD, none), (IFLA_XDP_FLAGS, self.mode_flags)];
            // A failure cannot be handled; an interface that is gone has no program either.
            let _ = set_link(&self.socket, self.ifindex, &attributes);
        }
    }
}

fn set_link(socket: &OwnedFd, ifindex: u32, attributes: &[(u16, u32)]) -> Result<(), Errno> {
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(
        socket,
        &message(ifindex, attributes),
        SendFlags::empty(),
        &kernel,
    )?;
    let mut reply = [0u8; 1024];
    let (len, _) = recv(socket, &mut reply, RecvFlags::empty())?;
    acknowledgement(reply.get(..len).unwrap_or_default())
}

fn message(ifindex: u32, attributes: &[(u16, u32)]) -> Vec<u8> {
    let nested_bytes = 4 + 8 * attributes.len();
    let total = HEADER_BYTES + 16 + nested_bytes;
    let mut out = Vec::with_capacity(total);
    // struct nlmsghdr
    out.extend((total as u32).to_ne_bytes());
    out.extend(RTM_SETLINK.to_ne_bytes());
    out.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    out.extend(1u32.to_ne_bytes());
    out.extend(0u32.to_ne_bytes());
    // struct ifinfomsg
    out.extend([0; 4]);
    out.extend(ifindex.to_ne_bytes());
    out.extend([0; 8]);
    out.extend((nested_bytes as u16).to_ne_bytes());
    out.extend((IFLA_XDP | NLA_F_NESTED).to_ne_bytes());
    for (kind, value) in attributes {
        out.extend(8u16.to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend(value.to_ne_bytes());
    }
    out
}

/// Decodes a reply: `NLMSG_ERROR` with the negated error, 0 for success.
fn acknowledgement(reply: &[u8]) -> Result<(), Errno> {
    let kind = reply.get(4..6).and_then(|b| b.try_into().ok());
    let code = reply
        .get(HEADER_BYTES..HEADER_BYTES + 4)
        .and_then(|b| b.try_into().ok());
    let (Some(kind), Some(code)) = (kind.map(u16::from_ne_bytes), code.map(i32::from_ne_bytes))
    else {
        return Err(Errno::BADMSG);
    };
    if kind != NLMSG_ERROR {
        return Err(Errno::BADMSG);
    }
    match code {
        0 => Ok(()),
        code => Err(Errno::from_raw_os_error(code.saturating_neg())),
    }
}
