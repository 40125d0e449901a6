//! The kernel's sockets, called by number.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A socket of the kernel's, on its loopback interface.
pub struct KernelSocket(OwnedFd);

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl KernelSocket {
    pub fn new(domain: i32) -> Self {
        // SAFETY: plain arguments; the result is checked, and nobody else owns the descriptor.
        unsafe {
            let fd = libc::socket(domain, libc::SOCK_STREAM, 0);
            assert!(fd >= 0, "the kernel gives no socket");
            Self(OwnedFd::from_raw_fd(fd))
        }
    }

    pub fn from(fd: impl Into<OwnedFd>) -> Self {
        Self(fd.into())
    }

    pub fn listen(&self) {
        // SAFETY: a descriptor of ours and plain arguments.
        let done = unsafe { libc::listen(self.0.as_raw_fd(), 16) };
        assert_eq!(done, 0);
    }

    pub fn set(&self, level: i32, name: i32, value: &[u8]) -> Result<(), i32> {
        let (place, len) = (value.as_ptr().cast(), value.len() as u32);
        // SAFETY: the kernel reads `len` bytes at `place`, which is what the slice has.
        match unsafe { libc::setsockopt(self.0.as_raw_fd(), level, name, place, len) } {
            0 => Ok(()),
            _ => Err(errno()),
        }
    }

    pub fn get(&self, level: i32, name: i32, len: usize) -> Result<Vec<u8>, i32> {
        let mut value = vec![0_u8; len];
        let mut room = len as u32;
        let place = value.as_mut_ptr().cast();
        // SAFETY: the kernel writes at most `room` bytes at `place`, which is what the vector has,
        // and says in `room` how many.
        match unsafe { libc::getsockopt(self.0.as_raw_fd(), level, name, place, &raw mut room) } {
            0 => {
                value.truncate(room as usize);
                Ok(value)
            }
            _ => Err(errno()),
        }
    }
}
