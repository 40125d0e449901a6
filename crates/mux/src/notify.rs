//! Status messages to systemd (`Type=notify`, sd_notify(3)).
//!
//! Owns nothing. Does nothing without `NOTIFY_SOCKET` in the environment. Called by `mill mux`.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends one state, such as `READY=1`.
pub fn notify(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET").and_then(|path| path.into_string().ok()) else {
        return;
    };
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        // An error is ignored: the service manager is gone.
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
