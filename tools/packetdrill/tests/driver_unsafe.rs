//! Tests that drive the plug-in as packetdrill does, without packetdrill. The plug-in is loaded at
//! run time and called through the structure that it fills in. A second thread makes calls that
//! block, and libc's own functions are called on its descriptors.

use std::ffi::{CString, c_int, c_void};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use millstream_packetdrill::interface_unsafe::Interface;

/// The plug-in, as a program that loaded it holds it.
struct Driver(Interface);

// SAFETY: the interface may be called from any thread, as packetdrill does.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

/// Calls a function of the interface.
macro_rules! call {
    ($driver:expr, $name:ident $(, $argument:expr)*) => {
        ($driver.0.$name.unwrap())($driver.0.userdata $(, $argument)*)
    };
}

const LOCAL: [u8; 4] = [10, 9, 8, 7];
const REMOTE: [u8; 4] = [192, 0, 2, 1];
const SYN: u8 = 2;
const FIN: u8 = 1;
const ACK: u8 = 16;
const PSH: u8 = 8;

impl Driver {
    fn load() -> Self {
        let library = library();
        let library = CString::new(library.to_str().unwrap()).unwrap();
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE | libc::RTLD_DEEPBIND;
        // SAFETY: the library is ours and the symbol has this signature. The structure has only
        // pointers, for which zeros are valid.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), flags);
            assert!(!handle.is_null(), "{library:?}");
            let init = libc::dlsym(handle, c"packetdrill_interface_init".as_ptr());
            assert!(!init.is_null());
            let init: extern "C" fn(*const libc::c_char, *mut Interface) =
                std::mem::transmute(init);
            let mut interface = std::mem::zeroed();
            init(c"shims=no".as_ptr(), &mut interface);
            Self(interface)
        }
    }

    fn micros(&self) -> i64 {
        let mut now = [0_i64; 2];
        assert_eq!(call!(self, gettimeofday, now.as_mut_ptr() as usize, 0), 0);
        now[0] * 1_000_000 + now[1]
    }

    fn send(&self, segment: &Segment<'_>) {
        let packet = segment.packet();
        let sent = call!(self, netdev_send, packet.as_ptr() as usize, packet.len());
        assert_eq!(sent, 0);
    }

    /// Flags, sequence number and ACK number of the next segment that leaves, and its time in
    /// microseconds.
    fn receive(&self) -> (u8, u32, u32, i64) {
        let mut packet = [0_u8; 2_048];
        let (mut len, mut micros) = (packet.len(), 0_i64);
        let received = call!(
            self,
            netdev_receive,
            packet.as_mut_ptr() as usize,
            &raw mut len as usize,
            &raw mut micros as usize
        );
        assert_eq!(received, 0);
        assert!(len >= 40 && packet[9] == 6 && packet[12..16] == LOCAL);
        let number = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
        (packet[33], number(24), number(28), micros)
    }

    /// A listener at the address that the peer writes to.
    fn listener(&self) -> c_int {
        let fd = call!(self, socket, libc::AF_INET, libc::SOCK_STREAM, 0);
        assert!(fd >= 0);
        let mut address = [0_u8; 16];
        address[0] = libc::AF_INET as u8;
        address[2..4].copy_from_slice(&8080_u16.to_be_bytes());
        address[4..8].copy_from_slice(&LOCAL);
        assert_eq!(call!(self, bind, fd, address.as_ptr() as usize, 16), 0);
        assert_eq!(call!(self, listen, fd, 1), 0);
        fd
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        (self.0.free.unwrap())(self.0.userdata);
    }
}

/// The plug-in that cargo built beside this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let name = "libmillstream_packetdrill.so";
    let places = own.ancestors().skip(1).take(2);
    let mut found = places.map(|directory| directory.join(name));
    found.find(|path| path.exists()).expect(name)
}

/// A segment from the peer.
struct Segment<'a> {
    flags: u8,
    seq: u32,
    ack: u32,
    payload: &'a [u8],
}

impl Segment<'_> {
    fn packet(&self) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(50_000_u16.to_be_bytes());
        tcp.extend(8080_u16.to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.extend([5 << 4, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(self.payload);
        let mut pseudo = [REMOTE, LOCAL].concat();
        pseudo.extend((6_u32 << 16 | tcp.len() as u32).to_be_bytes());
        let sum = checksum(&[&pseudo[..], &tcp].concat());
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut ip = vec![0x45, 0];
        ip.extend((20 + tcp.len() as u16).to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        ip.extend([REMOTE, LOCAL].concat());
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip.extend(tcp);
        ip
    }
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let mut sum: u32 = words
        .map(|w| u32::from(w[0]) << 8 | w.get(1).map_or(0, |b| u32::from(*b)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum as u16
}

/// Waits until the kernel shows a thread asleep, as packetdrill does after starting a blocking
/// call.
fn wait_until_asleep(thread: i32) {
    let path = format!("/proc/self/task/{thread}/stat");
    let give_up = Instant::now() + Duration::from_secs(10);
    loop {
        let stat = std::fs::read_to_string(&path).unwrap();
        if stat.rsplit_once(") ").unwrap().1.starts_with('S') {
            return;
        }
        assert!(Instant::now() < give_up, "the call does not sleep");
        std::thread::yield_now();
    }
}

/// Makes `call` in another thread, and runs `meanwhile` in this one once that thread sleeps in it.
fn while_blocked<T: Send, U>(call: impl FnOnce() -> T + Send, meanwhile: impl FnOnce() -> U) -> T {
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let blocked = scope.spawn(move || {
            // SAFETY: `gettid` has no preconditions.
            tell.send(unsafe { libc::gettid() }).unwrap();
            call()
        });
        wait_until_asleep(told.recv().unwrap());
        meanwhile();
        blocked.join().unwrap()
    })
}

#[test]
fn a_connection_is_accepted_read_looked_at_and_closed() {
    let driver = &Driver::load();
    let listener = driver.listener();
    let start = driver.micros();

    let accept = || (call!(driver, accept, listener, 0, 0), driver.micros());
    let mut iss = 0;
    let (fd, at) = while_blocked(accept, || {
        driver.send(&Segment {
            flags: SYN,
            seq: 0,
            ack: 0,
            payload: b"",
        });
        let (flags, seq, ack, _) = driver.receive();
        assert_eq!((flags, ack), (SYN | ACK, 1));
        iss = seq;
        assert_eq!(call!(driver, usleep, 250_000 - 20), 0);
        driver.send(&Segment {
            flags: ACK,
            seq: 1,
            ack: seq + 1,
            payload: b"",
        });
        // Time goes on, but the call keeps the time at which it ended.
        assert_eq!(call!(driver, usleep, 3_600_000_000), 0);
    });
    assert!(fd >= 0);
    // Two packets arrived, each a few microseconds late.
    assert!((250_001..250_100).contains(&(at - start)), "{}", at - start);

    let mut bytes = [0_u8; 100];
    let buffer = bytes.as_mut_ptr() as usize;
    let read = while_blocked(
        || call!(driver, read, fd, buffer, 100),
        || {
            driver.send(&Segment {
                flags: ACK | PSH,
                seq: 1,
                ack: iss + 1,
                payload: b"question",
            })
        },
    );
    assert_eq!(&bytes[..read as usize], b"question");
    assert_eq!(driver.receive().2, 9);

    // packetdrill itself calls these functions of libc.
    let mut info = [0_u8; 280];
    let mut len = info.len() as libc::socklen_t;
    let at = info.as_mut_ptr().cast::<c_void>();
    // SAFETY: a buffer and its length.
    let outcome = unsafe { libc::getsockopt(fd, libc::SOL_TCP, libc::TCP_INFO, at, &mut len) };
    assert_eq!((outcome, info[0]), (0, 1), "ESTABLISHED");
    // SAFETY: the descriptor is the plug-in's and is not used afterwards.
    assert_eq!(unsafe { libc::close(fd) }, 0);
    let (flags, seq, ack, _) = driver.receive();
    assert_eq!((flags & FIN, seq, ack), (FIN, iss + 1, 9));
}

/// A connection with `payload` to read.
fn connection_with(driver: &Driver, payload: &[u8]) -> c_int {
    let listener = driver.listener();
    let segment = |flags, seq, ack, payload| {
        driver.send(&Segment {
            flags,
            seq,
            ack,
            payload,
        });
    };
    segment(SYN, 0, 0, b"");
    let (_, iss, _, _) = driver.receive();
    segment(ACK, 1, iss + 1, b"");
    let fd = call!(driver, accept, listener, 0, 0);
    segment(ACK | PSH, 1, iss + 1, payload);
    fd
}

fn readable(driver: &Driver, fd: c_int) -> c_int {
    let mut bytes: c_int = -1;
    let at = &raw mut bytes as usize;
    assert_eq!(call!(driver, ioctl, fd, libc::FIONREAD, at), 0);
    bytes
}

#[test]
fn reads_into_no_buffer_are_efault_and_keep_the_bytes() {
    let driver = Driver::load();
    let fd = connection_with(&driver, &[7; 200]);
    assert_eq!(call!(driver, read, fd, 0, 50), -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EFAULT)
    );
    assert_eq!(readable(&driver, fd), 200);
    assert_eq!(call!(driver, recv, fd, 0, 50, libc::MSG_TRUNC), 50);
    let mut bytes = [0_u8; 50];
    let buffer = bytes.as_mut_ptr() as usize;
    assert_eq!(call!(driver, recv, fd, buffer, 50, libc::MSG_TRUNC), 50);
    assert_eq!((bytes, readable(&driver, fd)), ([0; 50], 100));
}

#[test]
fn readv_with_a_missing_piece_fills_those_before_it_if_they_take_all() {
    let driver = Driver::load();
    let mut bytes = [0_u8; 50];
    let pieces = [(bytes.as_mut_ptr() as usize, 50_usize), (0, 50)];
    let at = pieces.as_ptr() as usize;
    let fd = connection_with(&driver, &[7; 51]);
    assert_eq!(call!(driver, readv, fd, at, 2), -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EFAULT)
    );
    assert_eq!(readable(&driver, fd), 51);
    let mut first = [0_u8; 1];
    assert_eq!(call!(driver, read, fd, first.as_mut_ptr() as usize, 1), 1);
    assert_eq!(call!(driver, readv, fd, at, 2), 50);
    assert_eq!((bytes, readable(&driver, fd)), ([7; 50], 0));
}

#[test]
fn splice_takes_a_pointer_to_zero_for_none() {
    let driver = Driver::load();
    let fd = connection_with(&driver, &[7; 200]);
    let mut pipe: [c_int; 2] = [0; 2];
    assert_eq!(call!(driver, pipe, pipe.as_mut_ptr() as usize), 0);
    let splice = |from, to, at: &i64| {
        let at = at as *const i64 as usize;
        call!(driver, splice, from, at, to, at, 100, 0)
    };
    assert_eq!(splice(fd, pipe[1], &0), 100);
    assert_eq!(splice(pipe[0], fd, &0), 100);
    assert_eq!(splice(fd, pipe[1], &8), -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::ESPIPE)
    );
}

#[test]
fn a_bad_address_is_efault_and_not_a_crash() {
    let driver = Driver::load();
    let fd = call!(driver, socket, libc::AF_INET, libc::SOCK_STREAM, 0);
    assert_eq!(call!(driver, bind, fd, 8, 16), -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EFAULT)
    );
    assert_eq!(call!(driver, sendmsg, fd, 8, 0), -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EFAULT)
    );
}

#[test]
fn a_retransmission_leaves_at_its_time_although_nobody_waits_for_it() {
    let driver = Driver::load();
    driver.listener();
    driver.send(&Segment {
        flags: SYN,
        seq: 7,
        ack: 0,
        payload: b"",
    });
    let (_, seq, _, first) = driver.receive();
    let (flags, again_seq, _, again) = driver.receive();
    assert_eq!((flags, again_seq), (SYN | ACK, seq));
    assert!(
        (900_000..1_100_000).contains(&(again - first)),
        "{}",
        again - first
    );
    assert!(driver.micros() >= again);
}
