//! A channel between two ends: messages, descriptors, and packets that are not allowed.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::*;

fn pair() -> (Channel, OwnedFd) {
    let (near, far) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    (Channel::new(near, &Closer::default()), far)
}

fn memory_file() -> OwnedFd {
    rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
}

fn send_raw(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); 256];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let parts = [IoSlice::new(bytes)];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).unwrap();
}

#[test]
fn message_with_its_descriptor_arrives() {
    let (near, far) = pair();
    let far = Channel::new(far, &Closer::default());
    assert!(matches!(far.receive(), Received::Nothing));
    let file = memory_file();
    rustix::io::write(&file, b"ledger").unwrap();
    let ledger = Message::Ledger {
        context: 1,
        bytes: 6,
    };
    near.send(&ledger, Some(file.as_fd())).unwrap();
    near.send(&Message::Granted { request: 7 }, None).unwrap();
    let Received::Message(message, descriptor) = far.receive() else {
        panic!("no message");
    };
    assert_eq!(message, ledger);
    let copy = descriptor.keep_if("missing", |_| Ok(())).unwrap();
    assert_ne!(copy.as_raw_fd(), file.as_raw_fd());
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::pread(&copy, &mut bytes, 0).unwrap(), 6);
    assert!(matches!(
        far.receive(),
        Received::Message(Message::Granted { request: 7 }, _)
    ));
    drop(near);
    assert!(matches!(far.receive(), Received::Closed));
}

#[test]
fn packet_of_another_length_is_malformed() {
    for length in [1, MESSAGE_LEN - 1, MESSAGE_LEN + 1, 4096] {
        let (near, far) = pair();
        let mut bytes = vec![0; length];
        let whole = Message::Granted { request: 1 }.encode();
        let n = length.min(whole.len());
        bytes[..n].copy_from_slice(&whole[..n]);
        send_raw(&far, &bytes, &[]);
        assert!(matches!(
            near.receive(),
            Received::Malformed(MessageError::Length)
        ));
    }
}

#[test]
fn descriptors_that_do_not_belong_are_malformed() {
    let file = memory_file();
    let one = [file.as_fd()];
    let two = [file.as_fd(), file.as_fd()];
    let many = [file.as_fd(); 20];
    let ledger = Message::Ledger {
        context: 0,
        bytes: 0,
    };
    let granted = Message::Granted { request: 0 };
    for (message, descriptors) in [
        (granted, &one[..]),
        (ledger, &[]),
        (ledger, &two),
        (ledger, &many),
    ] {
        let (near, far) = pair();
        send_raw(&far, &message.encode(), descriptors);
        assert!(matches!(
            near.receive(),
            Received::Malformed(MessageError::Descriptors)
        ));
    }
}

#[test]
fn peer_that_never_reads_fills_the_buffer_without_blocking() {
    let (near, _far) = pair();
    let message = Message::Granted { request: 0 };
    let mut sent = 0;
    while near.send(&message, None).is_ok() {
        sent += 1;
        assert!(sent < 1 << 20);
    }
    assert_eq!(near.send(&message, None), Err(Errno::AGAIN));
}
