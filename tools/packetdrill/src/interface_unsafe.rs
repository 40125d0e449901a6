//! packetdrill's interface for stacks in shared libraries, declared anew: a structure of functions
//! that `packetdrill_interface_init` fills in.
//!
//! Each function copies its arguments in, asks a [`Plugin`], and copies the results out. All memory
//! behind a pointer is reached through [`copy_in`] and [`copy_out`], so a bad pointer gives
//! `EFAULT`. Calls on other descriptors go to the kernel.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use std::sync::Arc;

use posix::{Address, EpollEvent, Errno, Reply, Request, number};

use crate::interpose_unsafe;
use crate::memory_unsafe::{copy_in, copy_out};
use crate::plugin::Plugin;
use crate::process_unsafe::set_errno;
use posix::c_layout::{
    self as layout, EPOLL_EVENT_LEN, IOVEC_LEN, MSG_CONTROLLEN_AT, MSG_FLAGS_AT, MSG_NAMELEN_AT,
    MSGHDR_LEN, POLLFD_LEN, Piece, SOCKADDR_LEN_MAX,
};

type Fd = c_int;
type Ptr = usize;

/// `struct packetdrill_interface`: pointers, in this order. Each function takes `userdata` first,
/// and reports failure by -1 with `errno`.
///
/// `fcntl` and `ioctl` are variadic in C. On our platforms a variadic call passes one more integer
/// or pointer just where a callee with a fixed parameter expects it.
#[repr(C)]
#[allow(missing_docs)] // The functions are those of the man pages.
pub struct Interface {
    pub userdata: *mut c_void,
    pub free: Option<extern "C" fn(*mut c_void)>,
    pub socket: Option<extern "C" fn(*mut c_void, c_int, c_int, c_int) -> c_int>,
    pub bind: Option<extern "C" fn(*mut c_void, Fd, Ptr, c_uint) -> c_int>,
    pub listen: Option<extern "C" fn(*mut c_void, Fd, c_int) -> c_int>,
    pub accept: Option<extern "C" fn(*mut c_void, Fd, Ptr, Ptr) -> c_int>,
    pub connect: Option<extern "C" fn(*mut c_void, Fd, Ptr, c_uint) -> c_int>,
    pub read: Option<extern "C" fn(*mut c_void, Fd, Ptr, usize) -> isize>,
    pub readv: Option<extern "C" fn(*mut c_void, Fd, Ptr, c_int) -> isize>,
    pub recv: Option<extern "C" fn(*mut c_void, Fd, Ptr, usize, c_int) -> isize>,
    pub recvfrom: Option<extern "C" fn(*mut c_void, Fd, Ptr, usize, c_int, Ptr, Ptr) -> isize>,
    pub recvmsg: Option<extern "C" fn(*mut c_void, Fd, Ptr, c_int) -> isize>,
    pub write: Option<extern "C" fn(*mut c_void, Fd, Ptr, usize) -> isize>,
    pub writev: Option<extern "C" fn(*mut c_void, Fd, Ptr, c_int) -> isize>,
    pub send: Option<extern "C" fn(*mut c_void, Fd, Ptr, usize, c_int) -> isize>,
    pub sendto: Option<extern "C" fn(*mut c_void, Fd, Ptr, usize, c_int, Ptr, c_uint) -> isize>,
    pub sendmsg: Option<extern "C" fn(*mut c_void, Fd, Ptr, c_int) -> isize>,
    pub fcntl: Option<extern "C" fn(*mut c_void, Fd, c_int, c_long) -> c_int>,
    pub ioctl: Option<extern "C" fn(*mut c_void, Fd, c_ulong, Ptr) -> c_int>,
    pub close: Option<extern "C" fn(*mut c_void, Fd) -> c_int>,
    pub shutdown: Option<extern "C" fn(*mut c_void, Fd, c_int) -> c_int>,
    pub getsockopt: Option<extern "C" fn(*mut c_void, Fd, c_int, c_int, Ptr, Ptr) -> c_int>,
    pub setsockopt: Option<extern "C" fn(*mut c_void, Fd, c_int, c_int, Ptr, c_uint) -> c_int>,
    pub poll: Option<extern "C" fn(*mut c_void, Ptr, c_ulong, c_int) -> c_int>,
    pub netdev_send: Option<extern "C" fn(*mut c_void, Ptr, usize) -> c_int>,
    pub netdev_receive: Option<extern "C" fn(*mut c_void, Ptr, Ptr, Ptr) -> c_int>,
    pub usleep: Option<extern "C" fn(*mut c_void, c_uint) -> c_int>,
    pub gettimeofday: Option<extern "C" fn(*mut c_void, Ptr, Ptr) -> c_int>,
    pub epoll_create: Option<extern "C" fn(*mut c_void, c_int) -> c_int>,
    pub epoll_ctl: Option<extern "C" fn(*mut c_void, Fd, c_int, Fd, Ptr) -> c_int>,
    pub epoll_wait: Option<extern "C" fn(*mut c_void, Fd, Ptr, c_int, c_int) -> c_int>,
    pub pipe: Option<extern "C" fn(*mut c_void, Ptr) -> c_int>,
    pub splice: Option<extern "C" fn(*mut c_void, Fd, Ptr, Fd, Ptr, usize, c_uint) -> isize>,
}

const _: () = assert!(size_of::<Interface>() == 33 * size_of::<usize>());

/// The entry point for packetdrill. An error ends the process with a line that names the reason,
/// since the interface cannot report one.
///
/// # Safety
/// `interface` points to a `struct packetdrill_interface`; `flags` is a C string or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(
    flags: *const c_char,
    interface: *mut Interface,
) {
    let flags = if flags.is_null() {
        c""
    } else {
        // SAFETY: a C string, by this function's contract.
        unsafe { CStr::from_ptr(flags) }
    };
    let plugin = Plugin::new(&flags.to_string_lossy()).unwrap_or_else(|reason| {
        eprintln!("millstream: {reason}");
        std::process::exit(1)
    });
    let plugin = Arc::new(plugin);
    interpose_unsafe::install(&plugin);
    // SAFETY: memory for the structure, by this function's contract.
    unsafe { interface.write(interface_of(plugin)) };
}

fn interface_of(plugin: Arc<Plugin>) -> Interface {
    Interface {
        userdata: Arc::into_raw(plugin).cast_mut().cast(),
        free: Some(free),
        socket: Some(socket),
        bind: Some(bind),
        listen: Some(listen),
        accept: Some(accept),
        connect: Some(connect),
        read: Some(read),
        readv: Some(readv),
        recv: Some(recv),
        recvfrom: Some(recvfrom),
        recvmsg: Some(recvmsg),
        write: Some(write),
        writev: Some(writev),
        send: Some(send),
        sendto: Some(sendto),
        sendmsg: Some(sendmsg),
        fcntl: Some(fcntl),
        ioctl: Some(ioctl),
        close: Some(close),
        shutdown: Some(shutdown),
        getsockopt: Some(getsockopt),
        setsockopt: Some(setsockopt),
        poll: Some(poll),
        netdev_send: Some(netdev_send),
        netdev_receive: Some(netdev_receive),
        usleep: Some(usleep),
        gettimeofday: Some(gettimeofday),
        epoll_create: Some(epoll_create),
        epoll_ctl: Some(epoll_ctl),
        epoll_wait: Some(epoll_wait),
        pipe: Some(pipe),
        splice: Some(splice),
    }
}

/// The plug-in behind `userdata`.
fn plugin<'a>(userdata: *mut c_void) -> &'a Plugin {
    // SAFETY: `userdata` is the pointer that `interface_of` made of an `Arc`. It stays valid until
    // `free`, after which packetdrill calls nothing.
    unsafe { &*userdata.cast_const().cast() }
}

/// Copies bytes out to a buffer of the caller.
fn put(address: Ptr, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: the callers below pass the address of a buffer that their own caller gave for this
    // purpose, and no more bytes than it said the buffer has.
    unsafe { copy_out(address, bytes) }
}

/// A result in C's form.
fn answer(result: Result<i64, Errno>) -> isize {
    result.map_or_else(
        |errno| {
            set_errno(errno);
            -1
        },
        |value| value as isize,
    )
}

fn answer_int(result: Result<i64, Errno>) -> c_int {
    answer(result) as c_int
}

/// A call whose only answer is a number.
fn plain(userdata: *mut c_void, request: Request) -> Result<i64, Errno> {
    plugin(userdata).call(request).map(|(value, _)| value)
}

fn address(at: Ptr, len: c_uint) -> Result<Address, Errno> {
    let len = len as usize;
    if len > SOCKADDR_LEN_MAX {
        return Err(Errno::INVAL);
    }
    copy_in(at, len).map(|bytes| layout::to_address(&bytes))
}

/// Copies an address out, cut to the room that the caller has, with its full length.
fn put_address(reply: &Reply, at: Ptr, len_at: Ptr) -> Result<(), Errno> {
    if at == 0 || len_at == 0 {
        return Ok(());
    }
    let bytes = match reply {
        Reply::Address(address) => layout::from_address(*address),
        _ => Vec::new(),
    };
    let room = int_at(len_at)?.max(0) as usize;
    put(at, &bytes[..bytes.len().min(room)])?;
    put(len_at, &(bytes.len() as u32).to_ne_bytes())
}

fn int_at(at: Ptr) -> Result<i32, Errno> {
    let bytes = copy_in(at, 4)?;
    Ok(posix::layout::to_int(&bytes).unwrap_or_default())
}

fn pieces(at: Ptr, count: usize) -> Result<Vec<Piece>, Errno> {
    if count > IOVECS_MAX {
        return Err(Errno::INVAL);
    }
    let pieces = layout::to_pieces(&copy_in(at, count * IOVEC_LEN)?);
    layout::total(&pieces)?;
    Ok(pieces)
}

fn gather(pieces: &[Piece]) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend(copy_in(piece.address, piece.len)?);
    }
    Ok(bytes)
}

fn scatter(mut bytes: &[u8], pieces: &[Piece]) -> Result<(), Errno> {
    for piece in pieces {
        let (now, rest) = bytes.split_at(bytes.len().min(piece.len));
        put(piece.address, now)?;
        bytes = rest;
    }
    Ok(())
}

/// Most pieces of memory in one call (`UIO_MAXIOV`).
const IOVECS_MAX: usize = 1_024;

extern "C" fn free(userdata: *mut c_void) {
    // SAFETY: made by `Arc::into_raw` in `interface_of`; packetdrill frees it once, and calls
    // nothing afterwards.
    let plugin: Arc<Plugin> = unsafe { Arc::from_raw(userdata.cast_const().cast()) };
    interpose_unsafe::uninstall(&plugin);
}

extern "C" fn socket(userdata: *mut c_void, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let request = Request::Socket {
        domain,
        kind,
        protocol,
    };
    answer_int(plain(userdata, request))
}

extern "C" fn bind(userdata: *mut c_void, fd: Fd, at: Ptr, len: c_uint) -> c_int {
    answer_int(address(at, len).and_then(|address| plain(userdata, Request::Bind { fd, address })))
}

extern "C" fn listen(userdata: *mut c_void, fd: Fd, backlog: c_int) -> c_int {
    answer_int(plain(userdata, Request::Listen { fd, backlog }))
}

extern "C" fn accept(userdata: *mut c_void, fd: Fd, at: Ptr, len_at: Ptr) -> c_int {
    let accepted = plugin(userdata).call(Request::Accept { fd, flags: 0 });
    answer_int(accepted.and_then(|(value, reply)| {
        put_address(&reply, at, len_at)?;
        Ok(value)
    }))
}

extern "C" fn connect(userdata: *mut c_void, fd: Fd, at: Ptr, len: c_uint) -> c_int {
    let address = address(at, len);
    answer_int(address.and_then(|address| plain(userdata, Request::Connect { fd, address })))
}

/// Reads into pieces of the caller's memory. If one of them has a null address, the call first
/// peeks. It fails if there is more data than fits before that piece.
fn read_into(
    userdata: *mut c_void,
    mut request: Request,
    pieces: &[Piece],
) -> Result<(i64, Reply), Errno> {
    let (fd, len, flags) = match &mut request {
        Request::Recv { fd, len, flags } | Request::Recvmsg { fd, len, flags, .. } => {
            (*fd, len, *flags)
        }
        Request::Read { fd, len } => (*fd, len, 0),
        _ => return Err(Errno::INVAL),
    };
    let missing = pieces.iter().position(|to| to.address == 0 && to.len > 0);
    if let Some(missing) = missing
        && flags & (number::MSG_TRUNC | number::MSG_ERRQUEUE) == 0
    {
        *len = layout::total(&pieces[..missing])?;
        let look = Request::Recv {
            fd,
            len: *len + 1,
            flags: flags | number::MSG_PEEK,
        };
        match plugin(userdata).call(look)? {
            nothing @ (0, _) => return Ok(nothing),
            (there, _) if there > *len as i64 => return Err(Errno::FAULT),
            _ => {}
        }
    }
    let (value, reply) = plugin(userdata).call(request)?;
    // `MSG_TRUNC` discards the bytes of a stream, so nothing is copied.
    let copies = flags & (number::MSG_TRUNC | number::MSG_ERRQUEUE) != number::MSG_TRUNC;
    if let (true, Reply::Bytes(bytes) | Reply::Message { bytes, .. }) = (copies, &reply) {
        scatter(bytes, pieces)?;
    }
    Ok((value, reply))
}

extern "C" fn read(userdata: *mut c_void, fd: Fd, at: Ptr, len: usize) -> isize {
    if !plugin(userdata).is_ours(fd) {
        // SAFETY: the caller's own call, passed on.
        return unsafe { libc::read(fd, at as *mut c_void, len) };
    }
    let piece = Piece { address: at, len };
    let outcome = read_into(userdata, Request::Read { fd, len }, &[piece]);
    answer(outcome.map(|(value, _)| value))
}

extern "C" fn readv(userdata: *mut c_void, fd: Fd, at: Ptr, count: c_int) -> isize {
    let outcome = pieces(at, count as usize).and_then(|pieces| {
        let len = layout::total(&pieces)?;
        read_into(userdata, Request::Read { fd, len }, &pieces)
    });
    answer(outcome.map(|(value, _)| value))
}

extern "C" fn recv(userdata: *mut c_void, fd: Fd, at: Ptr, len: usize, flags: c_int) -> isize {
    recvfrom(userdata, fd, at, len, flags, 0, 0)
}

extern "C" fn recvfrom(
    userdata: *mut c_void,
    fd: Fd,
    at: Ptr,
    len: usize,
    flags: c_int,
    name_at: Ptr,
    name_len_at: Ptr,
) -> isize {
    let piece = Piece { address: at, len };
    let outcome = read_into(userdata, Request::Recv { fd, len, flags }, &[piece]);
    answer(outcome.and_then(|(value, reply)| {
        put_address(&reply, name_at, name_len_at)?;
        Ok(value)
    }))
}

extern "C" fn recvmsg(userdata: *mut c_void, fd: Fd, at: Ptr, flags: c_int) -> isize {
    answer(receive_message(userdata, fd, at, flags))
}

fn receive_message(userdata: *mut c_void, fd: Fd, at: Ptr, flags: c_int) -> Result<i64, Errno> {
    let header = layout::to_message_header(&copy_in(at, MSGHDR_LEN)?);
    let pieces = pieces(header.pieces.address, header.pieces.len)?;
    let request = Request::Recvmsg {
        fd,
        len: layout::total(&pieces)?,
        control_len: header.control.len,
        flags,
    };
    let (value, reply) = read_into(userdata, request, &pieces)?;
    if let Reply::Message { control, flags, .. } = &reply {
        let control = layout::from_control(control, header.control.len);
        put(header.control.address, &control)?;
        put(at + MSG_CONTROLLEN_AT, &control.len().to_ne_bytes())?;
        put(at + MSG_FLAGS_AT, &flags.to_ne_bytes())?;
        if header.name.address != 0 {
            put(at + MSG_NAMELEN_AT, &0_u32.to_ne_bytes())?;
        }
    }
    Ok(value)
}

extern "C" fn write(userdata: *mut c_void, fd: Fd, at: Ptr, len: usize) -> isize {
    if !plugin(userdata).is_ours(fd) {
        // SAFETY: the caller's own call, passed on.
        return unsafe { libc::write(fd, at as *const c_void, len) };
    }
    let bytes = copy_in(at, len);
    answer(bytes.and_then(|bytes| plain(userdata, Request::Write { fd, bytes })))
}

extern "C" fn writev(userdata: *mut c_void, fd: Fd, at: Ptr, count: c_int) -> isize {
    let bytes = pieces(at, count as usize).and_then(|pieces| gather(&pieces));
    answer(bytes.and_then(|bytes| plain(userdata, Request::Write { fd, bytes })))
}

extern "C" fn send(userdata: *mut c_void, fd: Fd, at: Ptr, len: usize, flags: c_int) -> isize {
    sendto(userdata, fd, at, len, flags, 0, 0)
}

extern "C" fn sendto(
    userdata: *mut c_void,
    fd: Fd,
    at: Ptr,
    len: usize,
    flags: c_int,
    name_at: Ptr,
    name_len: c_uint,
) -> isize {
    let outcome = (|| {
        let to = match name_at {
            0 => None,
            at => Some(address(at, name_len)?),
        };
        let request = Request::Send {
            fd,
            bytes: copy_in(at, len)?,
            flags,
            to,
            control: Vec::new(),
        };
        plain(userdata, request)
    })();
    answer(outcome)
}

extern "C" fn sendmsg(userdata: *mut c_void, fd: Fd, at: Ptr, flags: c_int) -> isize {
    answer(send_message(userdata, fd, at, flags))
}

fn send_message(userdata: *mut c_void, fd: Fd, at: Ptr, flags: c_int) -> Result<i64, Errno> {
    let header = layout::to_message_header(&copy_in(at, MSGHDR_LEN)?);
    let to = match header.name.address {
        0 => None,
        at => Some(address(at, header.name.len as c_uint)?),
    };
    let pieces = pieces(header.pieces.address, header.pieces.len)?;
    let control = copy_in(header.control.address, header.control.len)?;
    let request = Request::Send {
        fd,
        bytes: gather(&pieces)?,
        flags,
        to,
        control: layout::to_control(&control)?,
    };
    plain(userdata, request)
}

extern "C" fn fcntl(userdata: *mut c_void, fd: Fd, command: c_int, argument: c_long) -> c_int {
    if !plugin(userdata).is_ours(fd) {
        // SAFETY: the caller's own call, passed on.
        return unsafe { libc::fcntl(fd, command, argument) };
    }
    let request = Request::Fcntl {
        fd,
        command,
        argument: argument as i32,
    };
    answer_int(plain(userdata, request))
}

extern "C" fn ioctl(userdata: *mut c_void, fd: Fd, request: c_ulong, at: Ptr) -> c_int {
    let request = Request::Ioctl {
        fd,
        request,
        argument: int_at(at).unwrap_or_default(),
    };
    let outcome = plugin(userdata).call(request);
    answer_int(outcome.and_then(|(value, reply)| {
        if let Reply::Int(int) = reply {
            put(at, &int.to_ne_bytes())?;
        }
        Ok(value)
    }))
}

extern "C" fn close(userdata: *mut c_void, fd: Fd) -> c_int {
    if !plugin(userdata).is_ours(fd) {
        // SAFETY: the caller's own call, passed on.
        return unsafe { libc::close(fd) };
    }
    answer_int(plain(userdata, Request::Close { fd }))
}

extern "C" fn shutdown(userdata: *mut c_void, fd: Fd, how: c_int) -> c_int {
    answer_int(plain(userdata, Request::Shutdown { fd, how }))
}

extern "C" fn getsockopt(
    userdata: *mut c_void,
    fd: Fd,
    level: c_int,
    name: c_int,
    at: Ptr,
    len_at: Ptr,
) -> c_int {
    answer_int(option_of(plugin(userdata), fd, level, name, at, len_at))
}

/// `getsockopt`, also called for those that reach libc.
pub(crate) fn option_of(
    plugin: &Plugin,
    fd: Fd,
    level: c_int,
    name: c_int,
    at: Ptr,
    len_at: Ptr,
) -> Result<i64, Errno> {
    let len = usize::try_from(int_at(len_at)?).map_err(|_| Errno::INVAL)?;
    let request = Request::Getsockopt {
        fd,
        level,
        name,
        len,
    };
    let (value, reply) = plugin.call(request)?;
    if let Reply::Bytes(bytes) = reply {
        let bytes = &bytes[..bytes.len().min(len)];
        put(at, bytes)?;
        put(len_at, &(bytes.len() as u32).to_ne_bytes())?;
    }
    Ok(value)
}

extern "C" fn setsockopt(
    userdata: *mut c_void,
    fd: Fd,
    level: c_int,
    name: c_int,
    at: Ptr,
    len: c_uint,
) -> c_int {
    let value = match c_int::try_from(len) {
        Ok(_) => copy_in(at, len as usize),
        Err(_) => Err(Errno::INVAL),
    };
    answer_int(value.and_then(|value| {
        let request = Request::Setsockopt {
            fd,
            level,
            name,
            value,
        };
        plain(userdata, request)
    }))
}

extern "C" fn poll(userdata: *mut c_void, at: Ptr, count: c_ulong, timeout_ms: c_int) -> c_int {
    let fds = copy_in(at, (count as usize).saturating_mul(POLLFD_LEN));
    answer_int(fds.and_then(|bytes| {
        let fds = layout::to_poll_fds(&bytes);
        let (value, reply) = plugin(userdata).call(Request::Poll { fds, timeout_ms })?;
        if let Reply::Poll(fds) = reply {
            put(at, &layout::from_poll_fds(&fds))?;
        }
        Ok(value)
    }))
}

extern "C" fn netdev_send(userdata: *mut c_void, at: Ptr, len: usize) -> c_int {
    let injected = copy_in(at, len).and_then(|packet| plugin(userdata).inject(packet));
    answer_int(injected.map(|()| 0))
}

extern "C" fn netdev_receive(userdata: *mut c_void, at: Ptr, len_at: Ptr, micros_at: Ptr) -> c_int {
    let (packet, micros) = plugin(userdata).next_packet();
    let outcome = (|| {
        let room: [u8; size_of::<usize>()] = copy_in(len_at, size_of::<usize>())?
            .try_into()
            .map_err(|_| Errno::FAULT)?;
        let len = packet.len().min(usize::from_ne_bytes(room));
        put(at, &packet[..len])?;
        put(len_at, &len.to_ne_bytes())?;
        put(micros_at, &c_longlong::from(micros).to_ne_bytes())?;
        Ok(0)
    })();
    answer_int(outcome)
}

extern "C" fn usleep(userdata: *mut c_void, micros: c_uint) -> c_int {
    plugin(userdata).sleep(micros);
    0
}

extern "C" fn gettimeofday(userdata: *mut c_void, at: Ptr, _zone_at: Ptr) -> c_int {
    let micros = plugin(userdata).now_micros();
    let timeval = posix::layout::timeval(micros / 1_000_000, micros % 1_000_000);
    answer_int(put(at, &timeval).map(|()| 0))
}

extern "C" fn epoll_create(userdata: *mut c_void, size: c_int) -> c_int {
    if size <= 0 {
        return answer_int(Err(Errno::INVAL));
    }
    answer_int(plain(userdata, Request::EpollCreate { flags: 0 }))
}

extern "C" fn epoll_ctl(userdata: *mut c_void, epfd: Fd, op: c_int, fd: Fd, at: Ptr) -> c_int {
    let event = match at {
        0 => Ok(EpollEvent { events: 0, data: 0 }),
        at => copy_in(at, EPOLL_EVENT_LEN).map(|bytes| layout::to_epoll_event(&bytes)),
    };
    answer_int(event.and_then(|event| {
        let request = Request::EpollCtl {
            epfd,
            op,
            fd,
            event,
        };
        plain(userdata, request)
    }))
}

extern "C" fn epoll_wait(
    userdata: *mut c_void,
    epfd: Fd,
    at: Ptr,
    max_events: c_int,
    timeout_ms: c_int,
) -> c_int {
    let request = Request::EpollWait {
        epfd,
        max_events,
        timeout_ms,
    };
    let outcome = plugin(userdata).call(request);
    answer_int(outcome.and_then(|(value, reply)| {
        if let Reply::Epoll(events) = reply {
            put(at, &layout::from_epoll_events(&events))?;
        }
        Ok(value)
    }))
}

extern "C" fn pipe(_userdata: *mut c_void, at: Ptr) -> c_int {
    // SAFETY: the caller's own call, passed on.
    unsafe { libc::pipe(at as *mut c_int) }
}

extern "C" fn splice(
    userdata: *mut c_void,
    fd_in: Fd,
    offset_in: Ptr,
    fd_out: Fd,
    offset_out: Ptr,
    len: usize,
    flags: c_uint,
) -> isize {
    let plugin = plugin(userdata);
    // packetdrill passes a pointer to the pointer that a script writes. A zero there means none.
    let is_none = |at: Ptr| copy_in(at, 8).is_ok_and(|pointer| pointer == [0; 8]);
    let offset_in = if is_none(offset_in) { 0 } else { offset_in };
    let offset_out = if is_none(offset_out) { 0 } else { offset_out };
    if plugin.is_ours(fd_in) || plugin.is_ours(fd_out) {
        if offset_in != 0 || offset_out != 0 {
            return answer(Err(Errno::SPIPE));
        }
        return answer(crate::splice::splice(plugin, fd_in, fd_out, len, flags));
    }
    // SAFETY: the caller's own call, passed on.
    unsafe {
        libc::splice(
            fd_in,
            offset_in as *mut libc::loff_t,
            fd_out,
            offset_out as *mut libc::loff_t,
            len,
            flags,
        )
    }
}
