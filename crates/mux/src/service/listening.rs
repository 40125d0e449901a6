//! The socket at which applications find the service.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use packetio::seqpacket::{address, new_socket};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use super::ServiceError;
use crate::socket_option_unsafe::let_descriptors_in;

/// Listens at `path`, to which any user may connect. Replaces a socket file without a listener.
pub(super) fn listen(path: &str) -> Result<OwnedFd, ServiceError> {
    let failed = |errno: Errno| ServiceError::new(path, errno);
    let target = address(path).map_err(failed)?;
    let is_file = !path.starts_with('@');
    if is_file {
        remove_old_socket(path, &target)?;
        if let Some(directory) = Path::new(path).parent() {
            fs::create_dir_all(directory).map_err(|error| ServiceError::new(path, error))?;
        }
    }
    let socket = new_socket().map_err(failed)?;
    // Descriptors in the queues of connections that wait or are refused may be slow to close.
    // Accepted sockets begin with the setting of this one. Before Linux 6.16 there is no setting.
    let _ = let_descriptors_in(socket.as_fd(), false);
    rustix::net::bind(&socket, &target).map_err(failed)?;
    if is_file {
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))
            .map_err(|error| ServiceError::new(path, error))?;
    }
    rustix::net::listen(&socket, 64).map_err(failed)?;
    Ok(socket)
}

/// Removes a socket file without a listener. Anything else at the path stays, and is an error.
fn remove_old_socket(path: &str, target: &SocketAddrUnix) -> Result<(), ServiceError> {
    let failed = |errno: Errno| ServiceError::new(path, errno);
    let probe = new_socket().map_err(failed)?;
    match rustix::net::connect(&probe, target) {
        Err(Errno::NOENT) => Ok(()),
        // Linux refuses a connection to any file that is no socket with the same error.
        Err(Errno::CONNREFUSED) => {
            let found =
                fs::symlink_metadata(path).map_err(|error| ServiceError::new(path, error))?;
            if !found.file_type().is_socket() {
                return Err(ServiceError::new(path, "this is a file, and no socket"));
            }
            fs::remove_file(path).map_err(|error| ServiceError::new(path, error))
        }
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => {
            Err(ServiceError::new(path, "another service listens here"))
        }
        Err(errno) => Err(failed(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> String {
        let name = format!("mst-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        path.to_string_lossy().into_owned()
    }

    #[test]
    fn old_socket_is_replaced_and_a_living_one_is_not() {
        let path = path("old.sock");
        drop(listen(&path).unwrap());
        let living = listen(&path).unwrap();
        let refused = listen(&path).unwrap_err().to_string();
        assert!(refused.contains("another service listens"), "{refused}");
        drop(living);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn file_that_is_no_socket_is_left_alone() {
        let path = path("file.sock");
        fs::write(&path, "precious").unwrap();
        let refused = listen(&path).unwrap_err().to_string();
        assert!(refused.contains("no socket"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn path_that_leads_nowhere_says_why() {
        let path = path("plain");
        fs::write(&path, "").unwrap();
        let refused = listen(&format!("{path}/sock")).unwrap_err().to_string();
        assert!(refused.contains("Not a directory"), "{refused}");
        fs::remove_file(&path).unwrap();
    }
}
