//! Calls that move bytes and block the calling thread until they are done. They are the data path
//! of C programs, so nothing here allocates on an open connection, except receives with flags.

use std::io::{IoSlice, IoSliceMut, Read};
use std::os::fd::OwnedFd;

use millstream::TcpStream;
use rustix::io::Errno;

use crate::call::{Progress, Reply};
use crate::entry::{Entry, File, errno};
use crate::kernel;
use crate::number::*;
use crate::sockets::{Sockets, Step};

/// Flags that do not change the way in which bytes are read.
const PLAIN: i32 = MSG_DONTWAIT | MSG_NOSIGNAL;

impl Sockets {
    /// `read` and `readv`: reads the bytes that are there. One empty piece means a read of zero
    /// bytes.
    ///
    /// # Errors
    /// The call's errno.
    pub fn read_into(&mut self, fd: i32, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        match &self.entry(fd)?.file {
            File::Epoll(_) => Err(Errno::INVAL),
            File::Kernel(_) => {
                let read = self.drive_kernel(fd, 0, |kernel| kernel::read(kernel, pieces));
                self.note_outcome(read)
            }
            _ if pieces.iter().all(|piece| piece.is_empty()) => Ok(0),
            _ => self.recv_into(fd, pieces, 0),
        }
    }

    /// `recv` and `recvmsg`: receives the bytes that are there.
    ///
    /// # Errors
    /// The call's errno.
    #[inline]
    pub fn recv_into(
        &mut self,
        fd: i32,
        pieces: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<usize, Errno> {
        let received = self.recv_pieces(fd, pieces, flags);
        self.note_outcome(received)
    }

    fn recv_pieces(
        &mut self,
        fd: i32,
        pieces: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<usize, Errno> {
        if let Some(read) = self.recv_at_once(fd, pieces, flags)? {
            return read;
        }
        if let File::Kernel(_) = self.entry(fd)?.file {
            return self.drive_kernel(fd, flags, |kernel| kernel::recv(kernel, pieces, flags));
        }
        self.recv_slowly(fd, pieces, flags)
    }

    /// Receives straight into the pieces, if no flag needs more.
    #[inline]
    fn recv_at_once(
        &mut self,
        fd: i32,
        pieces: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<Option<Result<usize, Errno>>, Errno> {
        let entry = self.entry(fd)?;
        let is_nonblocking = entry.nonblocking || flags & MSG_DONTWAIT != 0;
        let File::Stream(stream) = &entry.file else {
            return Ok(None);
        };
        let is_plain = flags & !PLAIN == 0
            && (is_nonblocking || stream.tcp.options().recv_lowat() <= 1)
            && stream.tcp.urgent_mark().is_none();
        if !is_plain {
            return Ok(None);
        }
        Ok(match read_pieces(&stream.tcp, pieces) {
            Some(Err(Errno::AGAIN)) if !is_nonblocking || stream.tcp.has_waiting_error() => None,
            read => read,
        })
    }

    /// One step of `recv`, `recvmsg`, `read` and `readv`, for a caller that waits between steps.
    /// `reply` holds the bytes received so far.
    pub(crate) fn recv_step(
        &mut self,
        fd: i32,
        pieces: &mut [IoSliceMut<'_>],
        flags: i32,
        progress: &mut Progress,
        reply: &mut Reply,
    ) -> Step {
        if progress.done == 0
            && let Some(read) = self.recv_at_once(fd, pieces, flags)?
        {
            return read.map(|count| Some(count as i64));
        }
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let entry = self.entry(fd)?;
        if let File::Kernel(kernel) = &entry.file {
            return found(kernel::recv(kernel, pieces, flags), entry, flags);
        }
        let read = self.recv(fd, len, flags, progress, reply)?;
        if let (Some(_), Reply::Bytes(got)) = (read, &*reply) {
            scatter(got, pieces);
        }
        Ok(read)
    }

    /// One step of `send`, `sendmsg`, `write` and `writev`, for a caller that waits between steps.
    /// `at` is the index of the next piece.
    pub(crate) fn send_step(
        &mut self,
        fd: i32,
        pieces: &[IoSlice<'_>],
        flags: i32,
        at: &mut usize,
        progress: &mut Progress,
    ) -> Step {
        let entry = self.entry(fd)?;
        if let File::Kernel(kernel) = &entry.file {
            return found(kernel::send(kernel, pieces, flags), entry, flags);
        }
        let last = pieces.iter().rposition(|piece| !piece.is_empty());
        loop {
            let piece: &[u8] = pieces.get(*at).map_or(&[], |piece| piece);
            let is_last = last.is_none_or(|last| *at >= last);
            let flags = match is_last {
                true => flags,
                // The record mark and the urgent mark belong to the last byte of all pieces.
                false => flags & !(MSG_EOR | MSG_OOB),
            };
            if !piece.is_empty() || is_last {
                match self.send(fd, piece, flags, None, None, progress) {
                    Ok(None) => return Ok(None),
                    Ok(Some(sent)) => {
                        progress.before += sent as usize;
                        progress.done = 0;
                        if is_last || (sent as usize) < piece.len() {
                            return Ok(Some(progress.before as i64));
                        }
                    }
                    Err(_) if progress.before > 0 => {
                        self.tell_error_again(fd);
                        return Ok(Some(progress.before as i64));
                    }
                    Err(errno) => return Err(errno),
                }
            }
            *at += 1;
        }
    }

    fn recv_slowly(
        &mut self,
        fd: i32,
        pieces: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<usize, Errno> {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let mut reply = Reply::None;
        let read = self.drive(None, |sockets, progress| {
            sockets.recv(fd, len, flags, progress, &mut reply)
        })?;
        if let Reply::Bytes(got) = reply {
            scatter(&got, pieces);
        }
        Ok(read as usize)
    }

    /// `write` and `writev`: writes all bytes on a blocking descriptor, and as many as there is
    /// room for on a non-blocking one.
    ///
    /// # Errors
    /// The call's errno.
    pub fn write_from(&mut self, fd: i32, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
        match &self.entry(fd)?.file {
            File::Epoll(_) => Err(Errno::INVAL),
            File::Kernel(_) => {
                let written = self.drive_kernel(fd, 0, |kernel| kernel::write(kernel, pieces));
                self.note_outcome(written)
            }
            _ => self.send_from(fd, pieces, 0),
        }
    }

    /// `send` and `sendmsg`, like [`write_from`](Self::write_from).
    ///
    /// # Errors
    /// The call's errno.
    #[inline]
    pub fn send_from(
        &mut self,
        fd: i32,
        pieces: &[IoSlice<'_>],
        flags: i32,
    ) -> Result<usize, Errno> {
        let sent = self.send_pieces(fd, pieces, flags);
        if fd == self.polled_last {
            // The program polls and may sleep elsewhere before its next wait, so its answers leave
            // now. Calls that wait report a wire that is gone.
            let _ = self.context.turn();
        }
        self.deliver_sent(fd);
        self.note_outcome(sent)
    }

    fn send_pieces(&mut self, fd: i32, pieces: &[IoSlice<'_>], flags: i32) -> Result<usize, Errno> {
        if let File::Kernel(_) = self.entry(fd)?.file {
            return self.drive_kernel(fd, flags, |kernel| kernel::send(kernel, pieces, flags));
        }
        let Some(last) = pieces.iter().rposition(|piece| !piece.is_empty()) else {
            return self.send_piece(fd, &[], flags);
        };
        let mut done = 0;
        for (at, piece) in pieces[..=last].iter().enumerate() {
            if piece.is_empty() {
                continue;
            }
            let flags = match at == last {
                true => flags,
                // The record mark and the urgent mark belong to the last byte of all pieces.
                false => flags & !(MSG_EOR | MSG_OOB),
            };
            match self.send_piece(fd, piece, flags) {
                Ok(sent) if sent < piece.len() => return Ok(done + sent),
                Ok(sent) => done += sent,
                Err(_) if done > 0 => {
                    self.tell_error_again(fd);
                    return Ok(done);
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    /// Leaves the error of a call that has moved bytes to the next call, as Linux does.
    #[cold]
    pub fn tell_error_again(&mut self, fd: i32) {
        if let Ok(entry) = self.entry(fd)
            && let File::Stream(stream) = &entry.file
        {
            stream.tcp.tell_error_again();
        }
    }

    fn send_piece(&mut self, fd: i32, bytes: &[u8], flags: i32) -> Result<usize, Errno> {
        let sent = self.drive(None, |sockets, progress| {
            sockets.send(fd, bytes, flags, None, None, progress)
        });
        sent.map(|sent| sent as usize)
    }

    /// Makes a call on the kernel descriptor behind `fd`. If `fd` is blocking, repeats the call,
    /// which must not wait itself, and sleeps in between.
    ///
    /// # Errors
    /// The call's errno; `EBADF` if there is no kernel descriptor behind `fd`.
    pub fn on_kernel(
        &mut self,
        fd: i32,
        flags: i32,
        call: impl FnMut(&OwnedFd) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let done = self.drive_kernel(fd, flags, call);
        self.note_outcome(done)
    }

    fn drive_kernel(
        &mut self,
        fd: i32,
        flags: i32,
        mut call: impl FnMut(&OwnedFd) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let done = self.drive(Some(fd), |sockets, _| {
            let entry = sockets.entry(fd)?;
            let File::Kernel(kernel) = &entry.file else {
                return Err(Errno::BADF);
            };
            found(call(kernel), entry, flags)
        });
        done.map(|done| done as usize)
    }
}

/// Copies received bytes into the pieces, one after the other.
pub fn scatter(mut received: &[u8], pieces: &mut [IoSliceMut<'_>]) {
    for piece in pieces {
        let (now, later) = received.split_at(received.len().min(piece.len()));
        piece[..now.len()].copy_from_slice(now);
        received = later;
    }
}

/// The outcome of a kernel call as a step: `EAGAIN` blocks, unless the descriptor is non-blocking.
fn found(outcome: Result<usize, Errno>, entry: &Entry, flags: i32) -> Step {
    let is_nonblocking = entry.nonblocking || flags & MSG_DONTWAIT != 0;
    match outcome {
        Err(Errno::AGAIN) if !is_nonblocking => Ok(None),
        Err(errno) => Err(errno),
        Ok(count) => Ok(Some(count as i64)),
    }
}

/// Reads into one piece after the other; `None` if the pieces have no room.
fn read_pieces(
    mut stream: &TcpStream,
    pieces: &mut [IoSliceMut<'_>],
) -> Option<Result<usize, Errno>> {
    let mut done = 0;
    for piece in pieces.iter_mut().filter(|piece| !piece.is_empty()) {
        match stream.read(piece) {
            Ok(got) if got < piece.len() => return Some(Ok(done + got)),
            Ok(got) => done += got,
            Err(_) if done > 0 => {
                stream.tell_error_again();
                break;
            }
            Err(error) => return Some(Err(errno(&error))),
        }
    }
    (done > 0).then_some(Ok(done))
}
