//! rtnetlink sockets for lists, requests with an answer, and notifications.
//!
//! A [`Netlink`] owns one socket for requests and one for notifications, in the network namespace
//! in which they were opened. The kernel answers a request within the system call that sends it, so
//! reading the answer does not wait. `mirror` uses the module.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{self, Errno};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use super::message::{
    List, Neighbour, Notice, list_request, manage_neighbour, neighbour_request, notices,
    remove_neighbour,
};
use crate::limits::{NETLINK_BYTES_MAX, NETLINK_QUEUE_BYTES};

/// The groups `RTMGRP_LINK | RTMGRP_NEIGH | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE |
/// RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE`.
const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x100 | 0x400;

/// Both sockets of a mirror.
#[derive(Debug)]
pub(super) struct Netlink {
    requests: OwnedFd,
    notifications: OwnedFd,
    buffer: Vec<u8>,
}

impl Netlink {
    /// # Errors
    /// The errors of `socket` and `bind`.
    pub(super) fn open() -> io::Result<Self> {
        let open = |flags| {
            socket_with(
                AddressFamily::NETLINK,
                SocketType::RAW,
                flags | SocketFlags::CLOEXEC,
                None, // NETLINK_ROUTE is 0
            )
        };
        let notifications = open(SocketFlags::NONBLOCK)?;
        let _ =
            rustix::net::sockopt::set_socket_recv_buffer_size(&notifications, NETLINK_QUEUE_BYTES);
        rustix::net::bind(&notifications, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self {
            requests: open(SocketFlags::empty())?,
            notifications,
            buffer: vec![0; NETLINK_BYTES_MAX],
        })
    }

    /// Descriptor that is readable when a notification waits.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.notifications.as_fd()
    }

    /// Passes the waiting notifications to `each`. False: the kernel dropped some.
    pub(super) fn notifications(&mut self, mut each: impl FnMut(Notice)) -> bool {
        let mut is_complete = true;
        loop {
            match recv(
                &self.notifications,
                &mut self.buffer[..],
                RecvFlags::DONTWAIT,
            ) {
                Ok((length, _)) => notices(&self.buffer[..length]).for_each(&mut each),
                Err(Errno::NOBUFS) => is_complete = false,
                Err(Errno::INTR) => {}
                Err(_) => return is_complete,
            }
        }
    }

    /// Passes all entries of a list to `each`.
    ///
    /// # Errors
    /// The errors of the system calls, and the kernel's answer.
    pub(super) fn list(&mut self, list: List, mut each: impl FnMut(Notice)) -> io::Result<()> {
        self.send(&list_request(list))?;
        loop {
            let mut is_done = None;
            self.receive(|notice| match notice {
                Notice::Done => is_done = Some(Ok(())),
                Notice::Answer(answer) => is_done = Some(answer),
                entry => each(entry),
            })?;
            if let Some(outcome) = is_done {
                return outcome;
            }
        }
    }

    /// Has the kernel resolve `address` and keep it resolved.
    ///
    /// # Errors
    /// The kernel's error: `NETDOWN` while the interface is down, `NODEV` if it is gone.
    pub(super) fn manage_neighbour(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        self.request(&manage_neighbour(index, address))
    }

    /// Removes `address` from the neighbour table.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn remove_neighbour(&mut self, index: u32, address: IpAddr) -> io::Result<()> {
        self.request(&remove_neighbour(index, address))
    }

    /// The neighbour table's entry for `address`.
    ///
    /// # Errors
    /// `NOENT` if there is no entry.
    pub(super) fn neighbour(&mut self, index: u32, address: IpAddr) -> io::Result<Neighbour> {
        self.send(&neighbour_request(index, address))?;
        let mut found = Err(Errno::BADMSG);
        self.receive(|notice| match notice {
            Notice::Neighbour(neighbour) => found = Ok(neighbour),
            Notice::Answer(Err(errno)) => found = Err(errno),
            _ => {}
        })?;
        found
    }

    fn request(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send(bytes)?;
        let mut outcome = Err(Errno::BADMSG);
        self.receive(|notice| {
            if let Notice::Answer(answer) = notice {
                outcome = answer;
            }
        })?;
        outcome
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.requests, bytes, SendFlags::empty(), &kernel).map(drop)
    }

    fn receive(&mut self, each: impl FnMut(Notice)) -> io::Result<()> {
        let receive = || recv(&self.requests, &mut self.buffer[..], RecvFlags::empty());
        let (length, _) = io::retry_on_intr(receive)?;
        notices(&self.buffer[..length]).for_each(each);
        Ok(())
    }
}
