//! Options of sockets for which no crate has a function.
//!
//! Owns nothing. Called for the raw sockets of resets, for the listener, and for each connection
//! that is accepted.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::{self, Errno};

/// asm-generic/socket.h
const SO_PASSRIGHTS: libc::c_int = 83;

/// Binds `socket` to the interface `index`, by which alone it sends then (`SO_BINDTOIFINDEX`).
///
/// # Errors
/// Those of `setsockopt`: no such interface, no `CAP_NET_RAW`.
pub fn bind_to_device(socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let index = libc::c_int::try_from(index).map_err(|_| Errno::NODEV)?;
    set(socket, libc::SO_BINDTOIFINDEX, index)
}

/// Lets peers send descriptors to a UNIX socket, or refuses them (`PERM`) together with the message
/// (`SO_PASSRIGHTS`).
///
/// # Errors
/// `NOPROTOOPT` before Linux 6.16.
pub fn let_descriptors_in(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    set(socket, SO_PASSRIGHTS, on.into())
}

/// Sets an option of the level `SOL_SOCKET` whose value is an `int`.
fn set(socket: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads one `int` from `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use packetio::foreign::Closer;
    use packetio::mux::channel::{Channel, Received};
    use packetio::mux::message::{Hello, Message};
    use packetio::seqpacket::{address, new_socket};
    use packetio::text::Text;
    use rustix::net::{accept, bind, listen};

    use super::*;

    #[test]
    fn descriptor_for_a_connection_that_is_not_accepted_is_refused() {
        let path = format!("@mux-rights-{}", std::process::id());
        let listener = new_socket().unwrap();
        if let_descriptors_in(listener.as_fd(), false) == Err(Errno::NOPROTOOPT) {
            // The kernel is older than 6.16.
            return;
        }
        bind(&listener, &address(&path).unwrap()).unwrap();
        listen(&listener, 8).unwrap();
        let client = Channel::connect(&path, &Closer::default()).unwrap();
        let name = Text::new("early");
        let join = Message::Join(Hello { name, contexts: 1 });
        let sent = client.send(&join, Some(listener.as_fd()));
        assert_eq!(sent, Err(Errno::PERM));
        let accepted = accept(&listener).unwrap();
        assert_eq!(client.send(&join, Some(listener.as_fd())), Err(Errno::PERM));
        let_descriptors_in(accepted.as_fd(), true).unwrap();
        client.send_first(&join, Some(listener.as_fd())).unwrap();
        let channel = Channel::new(accepted, &Closer::default());
        assert!(matches!(channel.receive(), Received::Message(..)));
    }
}
