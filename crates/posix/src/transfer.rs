//! Calls that move bytes: `send`, `recv` and their relatives, `fcntl` and `ioctl`.

use std::io::{Read, Write};

use rustix::io::Errno;

use crate::call::{Progress, Reply};
use crate::entry::{File, Stream, errno};
use crate::error_queue::fit;
use crate::fast_open::FastSend;
use crate::kernel;
use crate::number::*;
use crate::open::blocked;
use crate::request::{Address, ControlMessage};
use crate::sockets::{Sockets, Step};
use crate::timestamping;
use crate::urgent::{self, AtEnd, Before, at_end};

/// Descriptor flags that a socket remembers without effect.
const KEPT_FLAGS: i32 = O_APPEND | O_NOATIME;

/// Flags that read something other than the stream: the error queue, the urgent byte.
const APART: i32 = MSG_ERRQUEUE | MSG_OOB;

impl Sockets {
    pub(crate) fn sendmsg(
        &mut self,
        fd: i32,
        bytes: &[u8],
        flags: i32,
        to: Option<Address>,
        control: &[ControlMessage],
        progress: &mut Progress,
    ) -> Step {
        self.socket_entry(fd)?;
        let stamps = match timestamping::sent_flags(control) {
            Ok(stamps) => stamps,
            Err(errno) => {
                // An error of the connection comes first (Linux).
                self.send_now(fd, &[], flags, to, progress)?;
                return Err(errno);
            }
        };
        self.has_notifications |= stamps.is_some();
        self.send(fd, bytes, flags, to, stamps, progress)
    }

    /// Sends bytes. `stamps`: flags of `SO_TIMESTAMPING` for this call only.
    pub(crate) fn send(
        &mut self,
        fd: i32,
        bytes: &[u8],
        flags: i32,
        to: Option<Address>,
        stamps: Option<u32>,
        progress: &mut Progress,
    ) -> Step {
        let step = self.send_now(fd, bytes, flags, to, progress)?;
        if let (Some(sent @ 1..), Ok(entry)) = (step, self.entry(fd)) {
            entry.zero_copy.note_sent(sent as usize, flags);
            timestamping::note_sent(entry, stamps)?;
        }
        Ok(step)
    }

    fn send_now(
        &mut self,
        fd: i32,
        bytes: &[u8],
        flags: i32,
        to: Option<Address>,
        progress: &mut Progress,
    ) -> Step {
        let now_ns = self.context.now_ns();
        let entry = self.socket_entry(fd)?;
        let is_deferred = matches!(entry.file, File::Deferred(..));
        if flags & MSG_FASTOPEN != 0 || is_deferred || progress.connecting {
            match self.send_fast(fd, bytes, flags, to, progress)? {
                FastSend::Over(step) => return Ok(step),
                FastSend::Connected => {}
            }
        }
        let entry = self.socket_entry(fd)?;
        let nonblocking = entry.nonblocking || flags & MSG_DONTWAIT != 0;
        let File::Stream(stream) = &mut entry.file else {
            return Err(entry.error.take().unwrap_or(Errno::PIPE));
        };
        if progress.done == 0 {
            waiting_error(stream)?;
        } else if stream.tcp.has_waiting_error() {
            // The error ends the wait. This call reports the bytes taken, the next call the error.
            return Ok(Some(progress.done as i64));
        }
        let timeout = stream.tcp.options().send_timeout();
        match write_on(stream, bytes, flags, progress) {
            Ok(()) => Ok(Some(progress.done as i64)),
            Err(found) => {
                let step = blocked(found, nonblocking, progress, now_ns, timeout);
                match step {
                    // This call returns the bytes taken, and the next one the error.
                    Err(_) if progress.done > 0 => {
                        stream.tcp.tell_error_again();
                        Ok(Some(progress.done as i64))
                    }
                    step => step,
                }
            }
        }
    }

    pub(crate) fn recv(
        &mut self,
        fd: i32,
        len: usize,
        flags: i32,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Step {
        let now_ns = self.context.now_ns();
        let entry = self.socket_entry(fd)?;
        if flags & APART != 0 {
            let done = self.recv_apart(fd, len, 0, flags, reply)?;
            if let Reply::Message { bytes, .. } = std::mem::take(reply) {
                *reply = Reply::Bytes(bytes);
            }
            return Ok(done);
        }
        let nonblocking = entry.nonblocking || flags & MSG_DONTWAIT != 0;
        let stream = match &mut entry.file {
            File::Stream(stream) => stream,
            File::Deferred(socket, _) => {
                let timeout = socket.options().recv_timeout();
                return blocked(Errno::AGAIN, nonblocking, progress, now_ns, timeout);
            }
            _ => {
                let is_shut = entry.read_shut.get();
                return recv_unconnected(entry.error.take(), is_shut, reply);
            }
        };
        let options = stream.tcp.options();
        let timeout = options.recv_timeout();
        let target = match flags & MSG_WAITALL {
            0 => len.min(options.recv_lowat() as usize),
            _ => len,
        };
        let mut got = match std::mem::take(reply) {
            Reply::Bytes(bytes) => bytes,
            _ => Vec::new(),
        };
        let found = read_on(stream, &mut got, len, flags);
        progress.done = got.len();
        let is_enough = got.len() >= target.max(1) || (len == 0 && found.is_ok());
        let step = match found {
            Ok(AtEnd::Yes) => Ok(Some(0)),
            _ if is_enough => Ok(Some(0)),
            Ok(AtEnd::No) | Err(Errno::AGAIN) if got.is_empty() => waiting_error(stream)
                .and_then(|()| blocked(Errno::AGAIN, nonblocking, progress, now_ns, timeout)),
            Ok(AtEnd::No) => blocked(Errno::AGAIN, nonblocking, progress, now_ns, timeout),
            Err(found) => blocked(found, nonblocking, progress, now_ns, timeout),
        };
        let done = got.len() as i64;
        match step {
            Err(errno) if done == 0 => Err(errno),
            Ok(None) if flags & MSG_PEEK != 0 => Ok(None),
            Ok(None) => {
                *reply = Reply::Bytes(got);
                Ok(None)
            }
            Ok(Some(_)) | Err(_) => {
                if flags & MSG_TRUNC != 0 {
                    // The bytes are counted, and the caller's memory stays as it is.
                    got.clear();
                }
                *reply = Reply::Bytes(got);
                Ok(Some(done))
            }
        }
    }

    pub(crate) fn recvmsg(
        &mut self,
        fd: i32,
        len: usize,
        control_len: usize,
        flags: i32,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Step {
        let done = match flags & APART {
            0 => self.recv_in_order(fd, len, control_len, flags, progress, reply),
            _ => self.recv_apart(fd, len, control_len, flags, reply),
        }?;
        if let Reply::Message { flags: told, .. } = reply {
            *told |= flags & MSG_CMSG_CLOEXEC;
        }
        Ok(done)
    }

    /// `recvmsg` from the stream.
    fn recv_in_order(
        &mut self,
        fd: i32,
        len: usize,
        control_len: usize,
        flags: i32,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Step {
        let done = self.recv(fd, len, flags, progress, reply)?;
        if done.is_none() {
            return Ok(None);
        }
        let bytes = match std::mem::take(reply) {
            Reply::Bytes(bytes) => bytes,
            _ => Vec::new(),
        };
        let (context, entry) = self.socket_with_context(fd)?;
        let mut messages = match done {
            Some(1..) => timestamping::arrival(context, entry),
            _ => Vec::new(),
        };
        messages.extend(inq_message(&entry.file));
        let (control, flags) = fit(messages, control_len);
        *reply = Reply::Message {
            bytes,
            control,
            flags,
        };
        Ok(done)
    }

    /// `recvmsg` from the error queue, or of the urgent byte.
    fn recv_apart(
        &mut self,
        fd: i32,
        len: usize,
        control_len: usize,
        flags: i32,
        reply: &mut Reply,
    ) -> Step {
        if flags & MSG_ERRQUEUE != 0 {
            return self.recv_error_queue(fd, len, control_len, reply);
        }
        let file = &self.socket_entry(fd)?.file;
        let (mut bytes, told) = urgent::recv(file, len, flags)?;
        let done = bytes.len() as i64;
        if flags & MSG_TRUNC != 0 {
            bytes.clear();
        }
        let (control, cut) = fit(inq_message(file).into_iter().collect(), control_len);
        *reply = Reply::Message {
            bytes,
            control,
            flags: told | cut,
        };
        Ok(Some(done))
    }

    pub(crate) fn fcntl(&mut self, fd: i32, command: i32, argument: i32) -> Step {
        let entry = self.entry(fd)?;
        let flag = |on: bool, flag: i32| if on { flag } else { 0 };
        let value = match command {
            F_GETFL => {
                let others = match &entry.file {
                    File::Kernel(kernel) => kernel::flags(kernel)?,
                    _ => O_RDWR | entry.kept_flags,
                };
                others | flag(entry.nonblocking, O_NONBLOCK)
            }
            F_SETFL => {
                match &entry.file {
                    File::Kernel(kernel) => kernel::set_flags(kernel, argument)?,
                    _ if argument & O_DIRECT != 0 => return Err(Errno::INVAL),
                    _ => entry.kept_flags = argument & KEPT_FLAGS,
                }
                entry.nonblocking = argument & O_NONBLOCK != 0;
                0
            }
            F_GETFD => flag(self.is_close_on_exec(fd), FD_CLOEXEC),
            F_SETFD => {
                self.set_close_on_exec(fd, argument & FD_CLOEXEC != 0);
                0
            }
            F_DUPFD | F_DUPFD_CLOEXEC => {
                return self.dup(fd, argument, command == F_DUPFD_CLOEXEC);
            }
            // Descriptors here send no signals: there is no owner, and the signal number 0 means
            // the default.
            F_GETOWN | F_GETSIG => 0,
            F_SETOWN | F_SETSIG if argument == 0 => 0,
            _ => return Err(Errno::INVAL),
        };
        Ok(Some(value.into()))
    }

    pub(crate) fn ioctl(
        &mut self,
        fd: i32,
        request: u64,
        argument: i32,
        reply: &mut Reply,
    ) -> Step {
        let entry = self.entry(fd)?;
        match request {
            FIONBIO => entry.nonblocking = argument != 0,
            FIOCLEX | FIONCLEX => self.set_close_on_exec(fd, request == FIOCLEX),
            _ => return self.ask_file(fd, request, reply),
        }
        Ok(Some(0))
    }

    /// `ioctl` requests that ask about the file.
    fn ask_file(&mut self, fd: i32, request: u64, reply: &mut Reply) -> Step {
        let entry = self.entry(fd)?;
        if matches!(entry.file, File::Epoll(_)) {
            return Err(Errno::INVAL);
        }
        let asks_whom = matches!(request, FIOGETOWN | SIOCGPGRP);
        if !asks_whom && !matches!(request, SIOCINQ | SIOCOUTQ | SIOCOUTQNSD | SIOCATMARK) {
            return Err(Errno::NOTTY);
        }
        let value = match &entry.file {
            File::Kernel(kernel) if request == SIOCINQ => {
                let waiting = rustix::io::ioctl_fionread(kernel)?;
                i32::try_from(waiting).unwrap_or(i32::MAX)
            }
            File::Kernel(_) => return Err(Errno::NOTTY),
            _ if asks_whom => 0,
            File::Listener(_) if request == SIOCATMARK => 0,
            File::Listener(_) => return Err(Errno::INVAL),
            File::Stream(stream) => match request {
                SIOCINQ => urgent::readable(&stream.tcp) as i32,
                SIOCATMARK => urgent::is_at_mark(&stream.tcp).into(),
                SIOCOUTQ => stream.info()?.map_or(0, |info| waiting(&info)),
                SIOCOUTQNSD => stream
                    .info()?
                    .map_or(0, |info| info.tcp.notsent_bytes as i32),
                _ => 0,
            },
            _ => 0,
        };
        *reply = Reply::Int(value);
        Ok(Some(0))
    }
}

/// The number of bytes that the peer has not acknowledged; a FIN counts as one.
fn waiting(info: &millstream::SocketInfo) -> i32 {
    use millstream::TcpState::{Closing, FinWait1, LastAck};
    let has_fin = matches!(info.tcp.state, FinWait1 | Closing | LastAck);
    info.send_buffered as i32 + i32::from(has_fin)
}

/// A read of a socket without a connection returns a pending error first, then the end if reading
/// was shut.
fn recv_unconnected(error: Option<Errno>, is_shut: bool, reply: &mut Reply) -> Step {
    match error {
        None if is_shut => {
            *reply = Reply::Bytes(Vec::new());
            Ok(Some(0))
        }
        error => Err(error.unwrap_or(Errno::NOTCONN)),
    }
}

/// The message of `TCP_INQ`: the number of bytes that wait, plus one for the peer's FIN, so that a
/// program does not forget to read the end.
fn inq_message(file: &File) -> Option<ControlMessage> {
    let File::Stream(Stream { tcp, .. }) = file else {
        return None;
    };
    let waiting = tcp.readable() as i32 + i32::from(tcp.is_read_closed());
    tcp.options().inq().then(|| ControlMessage {
        level: SOL_TCP,
        kind: TCP_CM_INQ,
        data: waiting.to_ne_bytes().to_vec(),
    })
}

/// Writes the remainder of `bytes`.
fn write_on(
    stream: &Stream,
    bytes: &[u8],
    flags: i32,
    progress: &mut Progress,
) -> Result<(), Errno> {
    // A writer that has waited continues when a third of the send buffer is free, as in Linux.
    if progress.began && !stream.tcp.may_write_on() {
        return Err(Errno::AGAIN);
    }
    if bytes.is_empty() {
        return stream.tcp.check_write().map_err(|error| errno(&error));
    }
    loop {
        // The next call reports the connection's error if this one has taken bytes.
        if progress.done > 0 && !stream.tcp.is_open() {
            return Ok(());
        }
        let rest = &bytes[progress.done..];
        if rest.is_empty() {
            let marked = match flags & (MSG_EOR | MSG_OOB) {
                0 => Ok(()),
                MSG_EOR => stream.tcp.end_record(),
                _ => stream.tcp.mark_urgent(),
            };
            return marked.map_err(|error| errno(&error));
        }
        let written = match flags & MSG_MORE {
            0 => (&stream.tcp).write(rest),
            _ => stream.tcp.write_more(rest),
        };
        match written {
            Ok(0) => return Ok(()),
            Ok(n) => progress.done += n,
            Err(error) => return Err(errno(&error)),
        }
    }
}

/// The error of an open connection (`IP_RECVERR`), once.
fn waiting_error(stream: &Stream) -> Result<(), Errno> {
    if !stream.tcp.has_waiting_error() {
        return Ok(());
    }
    match stream.tcp.take_soft_error() {
        Ok(Some(error)) => Err(errno(&error)),
        Ok(None) => Ok(()),
        Err(error) => Err(errno(&error)),
    }
}

/// Reads the bytes that are there, up to `len`. Allocates for those only, since `len` may be huge.
fn read_on(stream: &Stream, got: &mut Vec<u8>, len: usize, flags: i32) -> Result<AtEnd, Errno> {
    let peeks = flags & MSG_PEEK != 0;
    if len == 0 {
        // A read of zero bytes still returns an end or an error, and waits if there is nothing, as
        // in Linux.
        return match stream.tcp.peek(&mut [0]) {
            Ok(0) => Ok(AtEnd::Yes),
            Ok(_) => Ok(AtEnd::No),
            Err(error) => Err(errno(&error)),
        };
    }
    loop {
        let before_mark = match urgent::before(&stream.tcp, got.is_empty(), peeks) {
            Before::Bytes(bytes) => bytes,
            Before::Stop => return Ok(AtEnd::Yes),
            Before::Peek => return urgent::peek_behind(&stream.tcp, got, len),
        };
        let room = (len - got.len()).min(before_mark);
        let end = at_end(&stream.tcp);
        let ready = stream.tcp.readable();
        if room == 0 {
            return Ok(AtEnd::No);
        }
        if ready == 0 && !got.is_empty() {
            // The next call reports an end or an error after these bytes, as in Linux.
            return Ok(end);
        }
        let from = got.len();
        got.resize(from + room.min(ready.max(1)), 0);
        let read = match peeks {
            true => stream.tcp.peek(&mut got[from..]),
            false => (&stream.tcp).read(&mut got[from..]),
        };
        got.truncate(from + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return Ok(AtEnd::Yes),
            Ok(_) if peeks || stream.tcp.readable() == 0 => return Ok(end),
            Ok(_) => {}
            Err(error) => return Err(errno(&error)),
        }
    }
}
