//! Tells systemd how the service is (`Type=notify`, sd_notify(3)).
//!
//! Owns nothing. Without `NOTIFY_SOCKET` in the environment nobody is told. Called by `mill mux`.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells one state, such as `READY=1`.
pub fn notify(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET").and_then(|path| path.into_string().ok()) else {
        return;
    };
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        // A manager that has gone away needs no news.
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
