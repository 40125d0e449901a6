//! Listeners that a program passes to another one over a UNIX socket (`SCM_RIGHTS`).
//!
//! The passed descriptor is the kernel's socket that keeps the number, which does not show that
//! Millstream has a listener there. So the sender writes the listener's specification onto that
//! socket, in front of its packet filter ([`filters_unsafe`]). Every process that has the socket
//! can read it. The receiver then has the listener like a child of `fork`.

use std::mem::size_of;
use std::os::fd::{AsRawFd as _, OwnedFd};

use libc::{c_int, cmsghdr, msghdr, size_t};
use posix::Errno;

use crate::filters_unsafe::{self, Kind};
use crate::handover::{self, Listener};
use crate::marks::{self, Mark};
use crate::tags::{self, Tag};
use crate::{engine, log, memory_unsafe, passes, sharing};

/// The constants that encode a text: a magic number, the length in bytes, the bytes.
fn constants(text: &str) -> Vec<u32> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_ne_bytes(word)
    };
    let words = text.as_bytes().chunks(4).map(word);
    [Kind::Listener as u32, text.len() as u32]
        .into_iter()
        .chain(words)
        .collect()
}

/// The text in the constants of a filter; `None`: it is another filter.
fn text(constants: &[u32]) -> Option<String> {
    let [kind, len, words @ ..] = constants else {
        return None;
    };
    if *kind != Kind::Listener as u32 {
        return None;
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.truncate(*len as usize);
    String::from_utf8(bytes).ok()
}

fn write_on(fd: c_int, listener: &Listener) -> Result<(), Errno> {
    let line = handover::line(&(fd, 0, listener.clone()));
    filters_unsafe::write(fd, &constants(&line))
}

/// The listener that a sender wrote onto a socket; `None`: the descriptor is something else.
fn read_from(fd: c_int) -> Option<Listener> {
    let constants = filters_unsafe::constants(fd)?;
    let mut all = handover::parse(&text(&constants)?)?;
    let (_, _, listener) = all.pop()?;
    // A connection accepted by the kernel's socket inherits the filter, and is no listener.
    let is_listener = !listener.is_both || memory_unsafe::is_listening(fd);
    is_listener.then_some(listener)
}

/// The places of the descriptors in a message.
///
/// # Safety
/// The message is libc's, and its control data is as long as it says.
unsafe fn places(message: &msghdr) -> Vec<*mut c_int> {
    let mut all = Vec::new();
    // SAFETY: the caller's promise, for all of these.
    unsafe {
        let mut at: *const cmsghdr = libc::CMSG_FIRSTHDR(message);
        while !at.is_null() {
            if ((*at).cmsg_level, (*at).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let head = libc::CMSG_LEN(0) as usize;
                let bytes = ((*at).cmsg_len as usize).saturating_sub(head);
                let fds: *mut c_int = libc::CMSG_DATA(at).cast();
                all.extend((0..bytes / size_of::<c_int>()).map(|n| fds.add(n)));
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
    all
}

/// The descriptors in a message.
///
/// # Safety
/// As for [`places`].
unsafe fn descriptors(message: &msghdr) -> Vec<c_int> {
    // SAFETY: the caller's promise.
    let places = unsafe { places(message) }.into_iter();
    // SAFETY: the caller's promise.
    places
        .map(|place| unsafe { place.read_unaligned() })
        .collect()
}

/// A message with sockets of its own in place of connections.
pub struct Replaced {
    /// The message.
    pub message: msghdr,
    _control: Vec<u64>,
    _sockets: Vec<OwnedFd>,
}

/// Before a message is sent over a kernel socket: writes specifications onto the listeners in it,
/// and puts the connections in it on their way. `None`: the message can be sent as it is.
///
/// # Safety
/// The promise of libc's `sendmsg`.
pub unsafe fn before_send(at: *const msghdr, replaces: bool) -> Option<Replaced> {
    // SAFETY: the caller's promise.
    let message = unsafe { memory_unsafe::value(at) }?;
    if message.msg_control.is_null() || message.msg_controllen < CONTROL_LEAST {
        return None;
    }
    if engine::settings().is_none() || engine::is_inside() {
        return None;
    }
    let mut passed = Vec::new();
    // SAFETY: the caller's promise.
    for (place, fd) in unsafe { descriptors(&message) }.into_iter().enumerate() {
        let Mark::Socket(key) = marks::of(fd) else {
            continue;
        };
        let specification = engine::locked(|engine| Ok(engine.specification(key)));
        let told = match specification {
            Ok(Some(listener)) => write_on(fd, &listener),
            _ if replaces => match engine::locked(|engine| Ok(passes::begin(engine, key))) {
                Ok(Some(socket)) => {
                    passed.push((place, socket));
                    continue;
                }
                _ => sharing::before_sending(fd),
            },
            _ => sharing::before_sending(fd),
        };
        if let Err(errno) = told {
            log::once(&format!(
                "a socket on the wire is passed to another program, which finds it unusable: \
                 {errno}"
            ));
        }
    }
    // SAFETY: the caller's promise.
    (!passed.is_empty()).then(|| unsafe { replaced(message, passed) })
}

/// A copy of a message with other descriptors at some places.
///
/// # Safety
/// As for [`descriptors`].
unsafe fn replaced(mut message: msghdr, passed: Vec<(usize, OwnedFd)>) -> Replaced {
    let len = message.msg_controllen;
    let mut control = vec![0_u64; len.div_ceil(size_of::<u64>())];
    // SAFETY: the caller's promise, and as much room.
    unsafe {
        let to: *mut u8 = control.as_mut_ptr().cast();
        std::ptr::copy_nonoverlapping(message.msg_control.cast::<u8>(), to, len);
    }
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: a copy of the caller's.
    let places = unsafe { places(&message) };
    for (place, socket) in &passed {
        // SAFETY: a place in the copy.
        unsafe { places[*place].write_unaligned(socket.as_raw_fd()) };
    }
    Replaced {
        message,
        _control: control,
        _sockets: passed.into_iter().map(|(_, socket)| socket).collect(),
    }
}

/// After a message was received over a kernel socket: adds the listeners in it.
///
/// # Safety
/// The promise of libc's `recvmsg`, which has filled the message.
pub unsafe fn after_receive(at: *const msghdr) {
    // SAFETY: the caller's promise.
    let Some(message) = (unsafe { memory_unsafe::value(at) }) else {
        return;
    };
    if message.msg_control.is_null() || message.msg_controllen < CONTROL_LEAST {
        return;
    }
    if engine::settings().is_none() || engine::is_inside() {
        return;
    }
    // SAFETY: the caller's promise.
    take_over(unsafe { descriptors(&message) });
}

/// Adds listeners and connections of Millstream's that another program had, or has, among these
/// descriptors. The descriptors of one listener share a kernel socket.
pub fn take_over(fds: impl IntoIterator<Item = c_int>) {
    let mut listeners: Vec<(c_int, usize, Listener)> = Vec::new();
    let mut sockets = Vec::new();
    for fd in fds {
        match (read_from(fd), tags::read(fd)) {
            // Only programs of the family may open the listener.
            (Some(_), _) if packetio::mux::family().is_none() => {
                engine::add_strange(fd, Tag::Connection);
            }
            (Some(listener), _) => {
                let cookie = memory_unsafe::cookie(fd);
                let known = sockets.iter().position(|other| *other == cookie);
                let number = known.unwrap_or(sockets.len());
                sockets.push(cookie);
                listeners.push((fd, number, listener));
            }
            (None, Some(tag)) => {
                let is_passed = filters_unsafe::kind(fd) == Some(Kind::Passed);
                if !is_passed || engine::locked(|engine| passes::end(engine, fd)).is_err() {
                    engine::add_strange(fd, tag);
                }
            }
            (None, None) => {}
        }
    }
    if !listeners.is_empty() {
        engine::inherit(listeners);
    }
}

/// Writes the specification of a listener onto its kernel socket, for programs that get the socket
/// by `posix_spawn` or from a child of `vfork`.
pub fn describe(fd: c_int, listener: &Listener) {
    if let Err(errno) = write_on(fd, listener) {
        log::once(&format!(
            "{}: other programs cannot get it: {errno}",
            listener.local
        ));
    }
}

/// Least length of control data with a descriptor.
const CONTROL_LEAST: size_t = size_of::<cmsghdr>() + size_of::<c_int>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_as_constants_of_a_filter() {
        for line in ["", "a", "6 0 10.0.0.2:80 4 1 0 511 1/2=01000000\n"] {
            assert_eq!(text(&constants(line)).as_deref(), Some(line));
        }
        assert_eq!(text(&[]), None);
        assert_eq!(text(&[1, 2, 3]), None);
    }

    #[test]
    fn listener_written_on_a_socket_is_read_from_a_copy_of_it() {
        let socket = memory_unsafe::tcp_socket().expect("a socket");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        assert!(read_from(fd).is_none());
        let listener = Listener {
            local: "10.0.0.2:80".parse().expect("an address"),
            is_v6: false,
            options: vec![(1, 2, vec![1, 0, 0, 0])],
            is_nonblocking: true,
            is_both: false,
            backlog: Some(511),
            is_open: false,
        };
        write_on(fd, &listener).expect("a filter");
        let copy = socket.try_clone().expect("a copy");
        let read = read_from(std::os::fd::AsRawFd::as_raw_fd(&copy)).expect("a listener");
        assert_eq!(format!("{read:?}"), format!("{listener:?}"));
    }
}
