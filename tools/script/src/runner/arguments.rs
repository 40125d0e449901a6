//! Arguments of calls: a script's expressions become the values that `posix` takes.

use std::net::{IpAddr, SocketAddr};

use posix::{Address, EpollEvent, PollFd, number};

use super::Runner;
use super::conn::Stage;
use crate::ast::{EpollData, Expr};
use crate::symbols;

/// The arguments of one call.
pub(super) struct Arguments<'a>(pub &'a [Expr]);

impl<'a> Arguments<'a> {
    /// Checks how many arguments the call `name` has, and the arguments that count a list's
    /// members.
    pub(super) fn check(&self, name: &str) -> Result<(), String> {
        let expected = match name {
            "close" | "epoll_create" | "epoll_create1" | "pipe" => 1..=1,
            "listen" | "shutdown" => 2..=2,
            "open" | "fcntl" | "ioctl" => 2..=3,
            "socket" | "bind" | "accept" | "connect" | "read" | "readv" | "write" | "writev"
            | "recvmsg" | "sendmsg" | "poll" | "cap_set" => 3..=3,
            "accept4" | "recv" | "send" | "epoll_ctl" | "epoll_wait" | "sendfile" => 4..=4,
            "getsockopt" | "setsockopt" => 5..=5,
            "recvfrom" | "sendto" | "splice" => 6..=6,
            _ => return Ok(()),
        };
        let count = self.0.len();
        if !expected.contains(&count) {
            let (least, most) = expected.into_inner();
            return Err(format!("{count} arguments, expected {least} to {most}"));
        }
        let (list, told) = match name {
            "poll" => (0, 1),
            "readv" | "writev" => (1, 2),
            _ => return Ok(()),
        };
        match (self.at(list)?, self.int(told)?) {
            (Expr::List(members), told) if members.len() as i64 != told => {
                Err(format!("{told} members told, {} listed", members.len()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn at(&self, index: usize) -> Result<&'a Expr, String> {
        self.0
            .get(index)
            .ok_or_else(|| format!("argument {} is missing", index + 1))
    }

    pub(super) fn int(&self, index: usize) -> Result<i64, String> {
        int(self.at(index)?).map_err(|cause| format!("argument {}: {cause}", index + 1))
    }

    pub(super) fn i32(&self, index: usize) -> Result<i32, String> {
        Ok(self.int(index)? as i32)
    }

    pub(super) fn len(&self, index: usize) -> Result<usize, String> {
        let len = self.int(index)?;
        usize::try_from(len)
            .ok()
            .filter(|len| *len <= BUFFER_MAX)
            .ok_or_else(|| format!("argument {}: a length of {len} is not supported", index + 1))
    }

    /// Whether a buffer is given: `...`, or 0 or `NULL` for none at all.
    pub(super) fn buffer(&self, index: usize) -> Result<bool, String> {
        match self.at(index)? {
            Expr::Ellipsis => Ok(true),
            Expr::Int(0) => Ok(false),
            Expr::Word(word) if word == "NULL" => Ok(false),
            _ => Err(format!(
                "argument {}: expected ... or 0 for a buffer",
                index + 1
            )),
        }
    }

    /// The sum of the lengths of the buffers in `[{..., 10}, {..., 20}]`, in bytes.
    pub(super) fn vector(&self, index: usize) -> Result<usize, String> {
        let Expr::List(buffers) = self.at(index)? else {
            return Err(format!(
                "argument {}: expected a list of buffers",
                index + 1
            ));
        };
        let mut len = 0u64;
        for buffer in buffers {
            match buffer {
                Expr::IoVec(more) => len += more,
                _ => return Err(format!("argument {}: expected {{..., length}}", index + 1)),
            }
        }
        usize::try_from(len)
            .ok()
            .filter(|len| *len <= BUFFER_MAX)
            .ok_or_else(|| "too long".to_owned())
    }

    /// The number in brackets, as in `[4]`.
    pub(super) fn bracketed(&self, index: usize) -> Result<i64, String> {
        match self.at(index)? {
            Expr::List(list) if list.len() == 1 => int(&list[0]),
            _ => Err(format!("argument {}: expected [value]", index + 1)),
        }
    }
}

/// Largest number of bytes that one call may move.
pub(super) const BUFFER_MAX: usize = 1 << 28;

/// The number that an expression stands for.
pub(super) fn int(expr: &Expr) -> Result<i64, String> {
    match expr {
        Expr::Int(value) => Ok(*value),
        Expr::Word(name) => {
            symbols::value(name).ok_or_else(|| format!("nothing is known by the name {name}"))
        }
        Expr::Or(left, right) => Ok(int(left)? | int(right)?),
        other => Err(format!("expected a number, not {other:?}")),
    }
}

/// The bytes of a socket option's value as C passes them, `len` of them.
pub(super) fn option_value(expr: &Expr, len: usize) -> Result<Vec<u8>, String> {
    let mut bytes = match expr {
        Expr::Linger { on, seconds } => posix::layout::linger(*on != 0, *seconds as i32),
        Expr::Text(text) => text.clone(),
        Expr::In6Addr(addr) => addr.octets().to_vec(),
        Expr::List(list) if list.len() == 1 => posix::layout::int(int(&list[0])? as i32),
        Expr::List(list) => {
            let mut bytes = Vec::new();
            for part in list {
                bytes.extend(int(part)?.to_ne_bytes());
            }
            bytes
        }
        other => posix::layout::int(int(other)? as i32),
    };
    bytes.resize(len, 0);
    Ok(bytes)
}

impl Runner<'_> {
    /// The live descriptor for the script's descriptor in argument `index`.
    pub(super) fn fd(&self, arguments: &Arguments<'_>, index: usize) -> Result<i32, String> {
        self.live_fd(arguments.i32(index)?)
    }

    pub(super) fn live_fd(&self, script_fd: i32) -> Result<i32, String> {
        match self.by_script_fd(script_fd) {
            Some(at) => Ok(self.conns[at].live_fd),
            None => Err(format!("unable to find fd with script fd {script_fd}")),
        }
    }

    fn socket_address(&self, ip: IpAddr, port: u16) -> Address {
        let ip = match ip {
            IpAddr::V4(ip) if self.config.is_v6_socket => IpAddr::V6(ip.to_ipv6_mapped()),
            ip => ip,
        };
        Address::Inet(SocketAddr::new(ip, port))
    }

    fn written_address(family: &str, port: u16, addr: &str) -> Result<Address, String> {
        if !matches!(family, "AF_INET" | "AF_INET6") {
            return Err(format!("a socket address of family {family}"));
        }
        let addr = addr
            .parse()
            .map_err(|_| format!("'{addr}' is no address"))?;
        Ok(Address::Inet(SocketAddr::new(addr, port)))
    }

    /// The local address: `...` for the script's own address and port, or an explicit one.
    pub(super) fn bind_address(
        &self,
        arguments: &Arguments<'_>,
        index: usize,
    ) -> Result<Address, String> {
        match arguments.at(index)? {
            Expr::Ellipsis => Ok(self.socket_address(self.config.local, self.config.bind_port)),
            Expr::Sockaddr { family, port, addr } => Self::written_address(family, *port, addr),
            _ => Err(format!("argument {}: expected an address", index + 1)),
        }
    }

    /// The remote address, given in the same way. Marks the socket as connecting.
    pub(super) fn connect_address(
        &mut self,
        arguments: &Arguments<'_>,
        index: usize,
    ) -> Result<Address, String> {
        let address = match arguments.at(index)? {
            Expr::Ellipsis => self.socket_address(self.config.remote, self.config.connect_port),
            Expr::Sockaddr { family, port, addr } => Self::written_address(family, *port, addr)?,
            other => match int(other)? as i32 {
                number::AF_UNSPEC => Address::Unspec,
                family => Address::Family(family as u16),
            },
        };
        let script_fd = arguments.i32(0)?;
        self.begin_connect(script_fd, &address);
        Ok(address)
    }

    /// The remote address for `sendmsg`. Marks the socket as connecting.
    pub(super) fn message_address(&mut self, script_fd: i32) -> Address {
        let address = self.socket_address(self.config.remote, self.config.connect_port);
        self.begin_connect(script_fd, &address);
        address
    }

    fn begin_connect(&mut self, script_fd: i32, address: &Address) {
        let Some(at) = self.by_script_fd(script_fd) else {
            return;
        };
        let conn = &mut self.conns[at];
        if matches!(address, Address::Unspec) {
            conn.stage = Stage::New;
        } else if conn.stage == Stage::New {
            conn.stage = Stage::Connecting;
            conn.remote = (self.config.remote, self.config.connect_port);
            conn.local = (self.config.local, 0);
        }
    }

    /// The entries of `poll`, with the expected `revents`.
    pub(super) fn poll_fds(&self, expr: &Expr) -> Result<Vec<PollFd>, String> {
        let Expr::List(list) = expr else {
            return Err("expected a list of struct pollfd".to_owned());
        };
        let entry = |expr: &Expr| match expr {
            Expr::PollFd {
                fd,
                events,
                revents,
            } => Ok(PollFd {
                fd: self.live_fd(int(fd)? as i32)?,
                events: int(events)? as i16,
                revents: int(revents)? as i16,
            }),
            _ => Err("expected {fd=.., events=..}".to_owned()),
        };
        list.iter().map(entry).collect()
    }

    /// An event of epoll. A script's descriptor in its data becomes the live one.
    pub(super) fn epoll_event(&self, expr: &Expr) -> Result<EpollEvent, String> {
        let Expr::EpollEvent {
            events,
            data,
            value,
        } = expr
        else {
            return Err("expected {events=.., fd=..}".to_owned());
        };
        let value = int(value)?;
        let data = match data {
            EpollData::Fd => u64::from(self.live_fd(value as i32)? as u32),
            EpollData::U32 => u64::from(value as u32),
            EpollData::Ptr | EpollData::U64 => value as u64,
        };
        Ok(EpollEvent {
            events: int(events)? as u32,
            data,
        })
    }
}
