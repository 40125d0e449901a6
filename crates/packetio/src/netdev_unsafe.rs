//! Network devices of the kernel, by ioctl: index, MTU, MAC address, up; and the attachment of a
//! descriptor to a TAP.
//!
//! A [`NetDevice`] owns the socket for its ioctls, and thereby the network namespace in which it
//! was opened. `tap` and `packet` use it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::limits::NAME_BYTES_MAX;
use crate::port::MacAddr;

/// `TUNSETIFF`, linux/if_tun.h: `_IOW('T', 202, int)`.
const TUNSETIFF: Opcode = rustix::ioctl::opcode::write::<libc::c_int>(b'T', 202);
/// `TUNSETOFFLOAD`, linux/if_tun.h: `_IOW('T', 208, unsigned int)`.
const TUNSETOFFLOAD: Opcode = rustix::ioctl::opcode::write::<libc::c_uint>(b'T', 208);
/// `TUNSETIFINDEX`, linux/if_tun.h: `_IOW('T', 218, unsigned int)`.
const TUNSETIFINDEX: Opcode = rustix::ioctl::opcode::write::<libc::c_uint>(b'T', 218);
/// `TUNSETPERSIST`, linux/if_tun.h: `_IOW('T', 203, int)`.
const TUNSETPERSIST: Opcode = rustix::ioctl::opcode::write::<libc::c_int>(b'T', 203);
/// `TUNGETIFF`, linux/if_tun.h: `_IOR('T', 210, unsigned int)`.
const TUNGETIFF: Opcode = rustix::ioctl::opcode::read::<libc::c_uint>(b'T', 210);
const SIOCGIFFLAGS: Opcode = libc::SIOCGIFFLAGS as Opcode;
const SIOCSIFFLAGS: Opcode = libc::SIOCSIFFLAGS as Opcode;
const SIOCGIFMTU: Opcode = libc::SIOCGIFMTU as Opcode;
const SIOCSIFMTU: Opcode = libc::SIOCSIFMTU as Opcode;
const SIOCGIFHWADDR: Opcode = libc::SIOCGIFHWADDR as Opcode;
const SIOCGIFINDEX: Opcode = libc::SIOCGIFINDEX as Opcode;
const SIOCGIFTXQLEN: Opcode = libc::SIOCGIFTXQLEN as Opcode;
const SIOCSIFTXQLEN: Opcode = libc::SIOCSIFTXQLEN as Opcode;

/// `struct ifreq` on 64-bit and 32-bit Linux: a name, and a union of 24 bytes whose meaning depends
/// on the request.
#[repr(C, align(8))]
struct IfReq {
    name: [u8; NAME_BYTES_MAX + 1],
    union: [u8; 24],
}

impl IfReq {
    fn new(name: &str) -> Result<Self, Errno> {
        if name.len() > NAME_BYTES_MAX || name.is_empty() {
            return Err(Errno::NODEV);
        }
        let mut req = Self {
            name: [0; NAME_BYTES_MAX + 1],
            union: [0; 24],
        };
        req.name[..name.len()].copy_from_slice(name.as_bytes());
        Ok(req)
    }

    fn int(&self) -> i32 {
        i32::from_ne_bytes([self.union[0], self.union[1], self.union[2], self.union[3]])
    }

    fn set_int(&mut self, value: i32) {
        self.union[..4].copy_from_slice(&value.to_ne_bytes());
    }

    fn short(&self) -> u16 {
        u16::from_ne_bytes([self.union[0], self.union[1]])
    }

    fn set_short(&mut self, value: u16) {
        self.union[..2].copy_from_slice(&value.to_ne_bytes());
    }
}

/// Performs an `ioctl` with an `ifreq`.
fn call<const OPCODE: Opcode>(fd: impl AsFd, req: &mut IfReq) -> Result<(), Errno> {
    // SAFETY: every opcode of this file takes a pointer to `struct ifreq`, which `IfReq` lays out
    // (16 bytes of name, a 24-byte union), and reads and writes nothing beyond it. The union holds
    // no pointers for these requests.
    unsafe { ioctl(fd, Updater::<OPCODE, IfReq>::new(req)) }
}

/// Attaches an open `/dev/net/tun` to the interface `name` with `flags` (`IFF_TAP | …`), and
/// creates the interface if needed.
pub(crate) fn tun_attach(fd: impl AsFd, name: &str, flags: u16) -> Result<(), Errno> {
    let mut req = IfReq::new(name)?;
    req.set_short(flags);
    call::<TUNSETIFF>(fd, &mut req)
}

/// Sets the index of the interface that [`tun_attach`] is about to create.
pub(crate) fn tun_index(fd: impl AsFd, index: u32) -> Result<(), Errno> {
    let mut index = index;
    // SAFETY: the request reads an `unsigned int` at the address, which outlives the call.
    unsafe {
        let request = Updater::<TUNSETIFINDEX, libc::c_uint>::new(&mut index);
        ioctl(fd, request)
    }
}

/// Makes the interface of a TAP outlive its descriptor.
pub(crate) fn tun_persist(fd: impl AsFd) -> Result<(), Errno> {
    // SAFETY: the request takes a number, no pointer.
    unsafe { ioctl(fd, IntegerSetter::<TUNSETPERSIST>::new_usize(1)) }
}

/// True if the descriptor is a non-blocking TAP with a virtio header.
pub(crate) fn is_tap(fd: impl AsFd) -> bool {
    let Ok(mut req) = IfReq::new("-") else {
        return false;
    };
    let wanted = (libc::IFF_TAP | libc::IFF_VNET_HDR) as u16;
    let is_tap = call::<TUNGETIFF>(&fd, &mut req).is_ok() && req.short() & wanted == wanted;
    let flags = rustix::fs::fcntl_getfl(&fd);
    is_tap && flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
}

/// Sets what the TAP's owner accepts unfinished (`TUN_F_CSUM | …`): checksums, segmentation.
pub(crate) fn tun_offloads(fd: impl AsFd, offloads: u32) -> Result<(), Errno> {
    // SAFETY: the request takes a number, no pointer.
    unsafe {
        ioctl(
            fd,
            IntegerSetter::<TUNSETOFFLOAD>::new_usize(offloads as usize),
        )
    }
}

/// A network device in the calling thread's namespace.
#[derive(Debug)]
pub(crate) struct NetDevice {
    socket: OwnedFd,
    name: String,
}

impl NetDevice {
    /// Opens the device `name`. The first query shows whether it exists.
    pub(crate) fn open(name: &str) -> Result<Self, Errno> {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok(Self {
            socket,
            name: name.to_owned(),
        })
    }

    fn ask<const OPCODE: Opcode>(&self) -> Result<IfReq, Errno> {
        let mut req = IfReq::new(&self.name)?;
        call::<OPCODE>(&self.socket, &mut req)?;
        Ok(req)
    }

    /// Index of the device.
    pub(crate) fn index(&self) -> Result<i32, Errno> {
        Ok(self.ask::<SIOCGIFINDEX>()?.int())
    }

    /// MTU of the device, bytes.
    pub(crate) fn mtu(&self) -> Result<usize, Errno> {
        let mtu = self.ask::<SIOCGIFMTU>()?.int();
        usize::try_from(mtu).map_err(|_| Errno::RANGE)
    }

    /// Sets the MTU of the device, bytes.
    pub(crate) fn set_mtu(&self, mtu: usize) -> Result<(), Errno> {
        let mut req = IfReq::new(&self.name)?;
        req.set_int(i32::try_from(mtu).map_err(|_| Errno::INVAL)?);
        call::<SIOCSIFMTU>(&self.socket, &mut req)
    }

    /// Makes the device's own queue hold at least `frames` frames. A longer one keeps its length.
    pub(crate) fn lengthen_queue(&self, frames: i32) -> Result<(), Errno> {
        let mut req = self.ask::<SIOCGIFTXQLEN>()?;
        if req.int() >= frames {
            return Ok(());
        }
        req.set_int(frames);
        call::<SIOCSIFTXQLEN>(&self.socket, &mut req)
    }

    /// Ethernet address of the device; `EPROTONOSUPPORT` if it has none.
    pub(crate) fn mac(&self) -> Result<MacAddr, Errno> {
        let req = self.ask::<SIOCGIFHWADDR>()?;
        let u = &req.union;
        match req.short() {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => {
                Ok(MacAddr([u[2], u[3], u[4], u[5], u[6], u[7]]))
            }
            _ => Err(Errno::PROTONOSUPPORT),
        }
    }

    /// Brings the device up.
    pub(crate) fn bring_up(&self) -> Result<(), Errno> {
        let mut req = self.ask::<SIOCGIFFLAGS>()?;
        let flags = req.short();
        if flags & libc::IFF_UP as u16 != 0 {
            return Ok(());
        }
        req.set_short(flags | libc::IFF_UP as u16);
        call::<SIOCSIFFLAGS>(&self.socket, &mut req)
    }
}
