//! `getsockopt` and `setsockopt`.

use rustix::io::Errno;

use crate::call::Reply;
use crate::sockets::{Sockets, Step};

impl Sockets {
    pub(crate) fn getsockopt(
        &mut self,
        fd: i32,
        _level: i32,
        _name: i32,
        _len: usize,
        _reply: &mut Reply,
    ) -> Step {
        self.socket_entry(fd)?;
        Err(Errno::NOPROTOOPT)
    }

    pub(crate) fn setsockopt(&mut self, fd: i32, _level: i32, _name: i32, _value: &[u8]) -> Step {
        self.socket_entry(fd)?;
        Err(Errno::NOPROTOOPT)
    }
}
