//! The system call bpf(2): maps, programs and links as owned descriptors.
//!
//! The module defines the layouts of `union bpf_attr` that we use. `attach.rs` calls it, and so
//! does the service `mill mux`, as `packetio::xdp::bpf`. Nothing here is on the data path.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;

use super::program::{INSN_BYTES, Kind, MapDef};

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_MAP_GET_NEXT_KEY: libc::c_long = 4;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_OBJ_PIN: libc::c_long = 6;
const BPF_OBJ_GET: libc::c_long = 7;
const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_LINK_UPDATE: libc::c_long = 29;

const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;
/// Flag: attach before all others, if no program is named.
const BPF_F_BEFORE: u32 = 1 << 3;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
/// Size of the verifier's log, read when a program is refused, bytes.
const VERIFIER_LOG_BYTES: usize = 64 * 1024;
/// Most attempts to load a program if its verification is interrupted, as in libbpf.
const LOAD_TRIES: usize = 5;

/// Length of the names of programs and maps, with the terminating zero.
const NAME_BYTES: usize = 16;

#[repr(C)]
#[derive(Default)]
struct MapCreateAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; NAME_BYTES],
}

#[repr(C)]
#[derive(Default)]
struct MapElementAttr {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; NAME_BYTES],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreateAttr {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

/// The attribute with tcx's part of the union: the program to attach before, and the expected
/// revision. 0 stands for all programs and any revision.
#[repr(C)]
#[derive(Default)]
struct TcxLinkCreateAttr {
    link: LinkCreateAttr,
    relative_fd: u32,
    padding: u32,
    expected_revision: u64,
}

#[repr(C)]
#[derive(Default)]
struct LinkUpdateAttr {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

#[repr(C)]
#[derive(Default)]
struct ObjectAttr {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRunAttr {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    /// Zero, because the kernel refuses non-zero bytes behind the last field.
    padding: u32,
}

/// `struct xdp_md`, in the form for a test run.
#[repr(C)]
#[derive(Default)]
struct TestContext {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

/// A BPF map with its sizes, which make its calls safe.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    /// Creates the map that `def` describes.
    ///
    /// # Errors
    /// The errno of `BPF_MAP_CREATE`.
    pub fn create(def: &MapDef) -> Result<Self, Errno> {
        let mut attr = MapCreateAttr {
            map_type: def.kind,
            key_size: def.key_bytes,
            value_size: def.value_bytes,
            max_entries: def.entries_max,
            map_flags: def.flags,
            map_name: name(&def.name),
            ..MapCreateAttr::default()
        };
        // SAFETY: the attribute is of this command and holds no pointer.
        let fd = unsafe { bpf_fd(BPF_MAP_CREATE, &mut attr) }?;
        Ok(Self {
            fd,
            key_bytes: def.key_bytes as usize,
            value_bytes: def.value_bytes as usize,
        })
    }

    /// Opens the map pinned at `path`; its sizes must be those of `def`.
    ///
    /// # Errors
    /// `NOENT` if nothing is pinned there; `INVAL` if `/proc` shows other sizes.
    pub fn open(path: &Path, def: &MapDef) -> Result<Self, Errno> {
        let (map, entries_max) = Self::open_sized(path, def)?;
        match entries_max == def.entries_max {
            true => Ok(map),
            false => Err(Errno::INVAL),
        }
    }

    /// Opens a map like [`open`](Self::open), with any number of entries; returns that number too.
    ///
    /// # Errors
    /// `NOENT` if nothing is pinned there; `INVAL` if `/proc` shows other sizes.
    pub fn open_sized(path: &Path, def: &MapDef) -> Result<(Self, u32), Errno> {
        let fd = open_pinned(path)?;
        let shown = shown(&fd)?;
        let says = |name: &str| number(&shown, name);
        let found = ["map_type:", "key_size:", "value_size:"].map(says);
        let wanted = [def.kind, def.key_bytes, def.value_bytes].map(Some);
        let (Some(entries_max), true) = (says("max_entries:"), found == wanted) else {
            return Err(Errno::INVAL);
        };
        let map = Self {
            fd,
            key_bytes: def.key_bytes as usize,
            value_bytes: def.value_bytes as usize,
        };
        Ok((map, entries_max))
    }

    /// The keys of the map at the time of the call.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn keys(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut next = vec![0u8; self.key_bytes];
        loop {
            let last = keys.last().map_or(0, |key| key.as_ptr() as u64);
            let mut attr = MapElementAttr {
                map_fd: self.fd.as_raw_fd().cast_unsigned(),
                key: last,
                value: next.as_mut_ptr() as u64,
                ..MapElementAttr::default()
            };
            // SAFETY: the kernel reads a key (or none) and writes a key, both of the map's size.
            match unsafe { bpf(BPF_MAP_GET_NEXT_KEY, &mut attr) } {
                Ok(_) => keys.push(next.clone()),
                Err(Errno::NOENT) => return Ok(keys),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Makes another handle to the same map.
    ///
    /// # Errors
    /// `MFILE` if the process has no descriptor left.
    pub fn try_clone(&self) -> Result<Self, Errno> {
        Ok(Self {
            fd: rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
        })
    }

    /// The raw descriptor, for references in a program.
    pub fn raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Sets the entry of `key`.
    ///
    /// # Errors
    /// `INVAL` if a size is not the map's; else the kernel's error.
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        if key.len() != self.key_bytes || value.len() != self.value_bytes {
            return Err(Errno::INVAL);
        }
        let mut attr = self.element(key, value.as_ptr() as u64);
        // SAFETY: key and value are as long as the map's, and the kernel only reads them.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attr) }.map(|_| ())
    }

    /// Removes the entry of `key`.
    ///
    /// # Errors
    /// `NOENT` if there is no entry; `INVAL` if the size is not the map's.
    pub fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        if key.len() != self.key_bytes {
            return Err(Errno::INVAL);
        }
        let mut attr = self.element(key, 0);
        // SAFETY: the key is as long as the map's, and the kernel only reads it.
        unsafe { bpf(BPF_MAP_DELETE_ELEM, &mut attr) }.map(|_| ())
    }

    /// Reads the entry of `key` into `value`. Per-CPU maps are not supported.
    ///
    /// # Errors
    /// `NOENT` if there is no entry; `INVAL` if a size is not the map's.
    pub fn lookup(&self, key: &[u8], value: &mut [u8]) -> Result<(), Errno> {
        if key.len() != self.key_bytes || value.len() != self.value_bytes {
            return Err(Errno::INVAL);
        }
        let mut attr = self.element(key, value.as_mut_ptr() as u64);
        // SAFETY: the kernel reads a key and writes a value of the map's sizes, which these have.
        // The map is not per-CPU, where the value would be longer: the loader makes none.
        unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &mut attr) }.map(|_| ())
    }

    fn element(&self, key: &[u8], value: u64) -> MapElementAttr {
        MapElementAttr {
            map_fd: self.fd.as_raw_fd().cast_unsigned(),
            key: key.as_ptr() as u64,
            value,
            ..MapElementAttr::default()
        }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The reason why the kernel refused a program.
#[derive(Debug)]
pub struct Refused {
    /// The kernel's answer.
    pub errno: Errno,
    /// The last meaningful line of the verifier's log; empty if the verifier did not run.
    pub verifier: String,
}

/// Loads an XDP program whose map references are already descriptors. `license` ends with a zero.
///
/// # Errors
/// The kernel's error, with the verifier's last line.
pub fn load(insns: &[u8], license: &[u8], title: &str) -> Result<OwnedFd, Refused> {
    load_kind(Kind::Xdp, insns, license, title)
}

/// Loads a program like [`load`], for the hook `kind`.
///
/// # Errors
/// The kernel's error, with the verifier's last line.
pub fn load_kind(
    kind: Kind,
    insns: &[u8],
    license: &[u8],
    title: &str,
) -> Result<OwnedFd, Refused> {
    let (prog_type, expected_attach_type) = match kind {
        Kind::Xdp => (BPF_PROG_TYPE_XDP, BPF_XDP),
        Kind::Tc => (BPF_PROG_TYPE_SCHED_CLS, 0),
    };
    let refused = |errno, verifier| Refused { errno, verifier };
    if !insns.len().is_multiple_of(INSN_BYTES) || license.last() != Some(&0) {
        return Err(refused(Errno::INVAL, String::new()));
    }
    let count = u32::try_from(insns.len() / INSN_BYTES)
        .map_err(|_| refused(Errno::TOOBIG, String::new()))?;
    let mut attr = ProgramLoadAttr {
        prog_type,
        insn_cnt: count,
        insns: insns.as_ptr() as u64,
        license: license.as_ptr() as u64,
        prog_name: name(title),
        expected_attach_type,
        ..ProgramLoadAttr::default()
    };
    // SAFETY: `insns` holds `insn_cnt` instructions, the license ends with NUL, and there is no
    // log.
    let mut try_load = || unsafe { bpf_fd(BPF_PROG_LOAD, &mut attr) };
    let mut first = try_load();
    // A pending signal interrupts the verifier (EAGAIN), even an ignored SIGCHLD. Another thread
    // may get SIGCHLD if the one that started a program still blocks all signals when that program
    // ends. The attempt with a log below could not help: a long verification overflows its log, and
    // the kernel then refuses.
    for _ in 1..LOAD_TRIES {
        if !matches!(first, Err(Errno::AGAIN)) {
            break;
        }
        first = try_load();
    }
    let errno = match first {
        Ok(fd) => return Ok(fd),
        Err(errno @ (Errno::PERM | Errno::NOSYS)) => return Err(refused(errno, String::new())),
        Err(errno) => errno,
    };
    let mut log = vec![0u8; VERIFIER_LOG_BYTES];
    attr.log_level = 1;
    attr.log_size = VERIFIER_LOG_BYTES as u32;
    attr.log_buf = log.as_mut_ptr() as u64;
    // SAFETY: as above; the log has `log_size` bytes that the kernel may write.
    if let Ok(fd) = unsafe { bpf_fd(BPF_PROG_LOAD, &mut attr) } {
        return Ok(fd);
    }
    Err(refused(errno, last_words(&log)))
}

/// The verifier's complaint precedes its statistics.
fn last_words(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let text = text.trim_end_matches('\0');
    let said = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty() && !line.starts_with("processed "));
    said.unwrap_or_default().trim().to_owned()
}

/// Attaches by a BPF link: closing the descriptor, and thus the death of the process, detaches the
/// program.
///
/// # Errors
/// `BUSY` or `EXIST` if another program is attached; `INVAL` if the kernel has no XDP links (before
/// 5.9) or the driver refuses; `OPNOTSUPP` or `RANGE` if the driver cannot.
pub fn link(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> Result<OwnedFd, Errno> {
    let mut attr = LinkCreateAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_ifindex: ifindex,
        attach_type: BPF_XDP,
        flags,
    };
    // SAFETY: the attribute is of this command and holds no pointer.
    unsafe { bpf_fd(BPF_LINK_CREATE, &mut attr) }
}

/// Attaches a program of [`Kind::Tc`] to the receive side of an interface in the calling thread's
/// network namespace, by a BPF link.
///
/// # Errors
/// `INVAL` before Linux 6.6, which has no such links; `NODEV` if there is no such interface.
pub fn link_ingress(program: BorrowedFd<'_>, ifindex: u32) -> Result<OwnedFd, Errno> {
    link_tcx(program, ifindex, BPF_TCX_INGRESS, 0)
}

/// Attaches like [`link_ingress`], but to the send side. Programs of others stay and run after it.
///
/// # Errors
/// The errors of [`link_ingress`].
pub fn link_egress(program: BorrowedFd<'_>, ifindex: u32) -> Result<OwnedFd, Errno> {
    link_tcx(program, ifindex, BPF_TCX_EGRESS, BPF_F_BEFORE)
}

fn link_tcx(
    program: BorrowedFd<'_>,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
) -> Result<OwnedFd, Errno> {
    let mut attr = TcxLinkCreateAttr {
        link: LinkCreateAttr {
            prog_fd: program.as_raw_fd().cast_unsigned(),
            target_ifindex: ifindex,
            attach_type,
            flags,
        },
        ..TcxLinkCreateAttr::default()
    };
    // SAFETY: the attribute is of this command and holds no pointer.
    unsafe { bpf_fd(BPF_LINK_CREATE, &mut attr) }
}

/// Replaces the link's program, without a frame in between that meets none.
///
/// # Errors
/// The errno of `BPF_LINK_UPDATE`.
pub fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut attr = LinkUpdateAttr {
        link_fd: link.as_raw_fd().cast_unsigned(),
        new_prog_fd: program.as_raw_fd().cast_unsigned(),
        ..LinkUpdateAttr::default()
    };
    // SAFETY: the attribute is of this command and holds no pointer.
    unsafe { bpf(BPF_LINK_UPDATE, &mut attr) }.map(|_| ())
}

/// Pins a map, program or link at `path` on a file system of type `bpf`, so that it outlives this
/// process.
///
/// # Errors
/// `EXIST` if something is pinned there; `PERM` on another file system.
pub fn pin(object: impl AsFd, path: &Path) -> Result<(), Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let mut attr = ObjectAttr {
        pathname: path.as_ptr() as u64,
        bpf_fd: object.as_fd().as_raw_fd().cast_unsigned(),
        ..ObjectAttr::default()
    };
    // SAFETY: the path ends with NUL and outlives the call.
    unsafe { bpf(BPF_OBJ_PIN, &mut attr) }.map(|_| ())
}

/// Opens the object pinned at `path`.
///
/// # Errors
/// `NOENT` if nothing is pinned there.
pub fn open_pinned(path: &Path) -> Result<OwnedFd, Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let mut attr = ObjectAttr {
        pathname: path.as_ptr() as u64,
        ..ObjectAttr::default()
    };
    // SAFETY: the path ends with NUL and outlives the call.
    unsafe { bpf_fd(BPF_OBJ_GET, &mut attr) }
}

/// Interface index of the interface on which a link's program runs; 0: the interface is gone.
///
/// # Errors
/// `INVAL` if the object is no link of an interface.
pub fn attached_to(link: &OwnedFd) -> Result<u32, Errno> {
    number(&shown(link)?, "ifindex:").ok_or(Errno::INVAL)
}

/// The kernel's words about an object.
fn shown(fd: &OwnedFd) -> Result<String, Errno> {
    std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// The number behind a name in the kernel's words.
fn number(shown: &str, name: &str) -> Option<u32> {
    let value = shown.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().parse().ok()
}

/// The result of a program for `frame`, of at least 14 bytes (`BPF_PROG_TEST_RUN`). The frame
/// appears to arrive at interface `ifindex` of the calling thread's network namespace; 0: the
/// loopback interface. Nothing is sent, whatever the result.
///
/// # Errors
/// `NODEV` if there is no such interface; `INVAL` for a frame that is too short or too long.
pub fn dry_run(program: BorrowedFd<'_>, frame: &[u8], ifindex: u32) -> Result<u32, Errno> {
    /// Room for the frame that the kernel writes back. Programs may extend it; ours do not.
    const FRAME_BYTES_MAX: usize = 4096;
    let len = u32::try_from(frame.len()).map_err(|_| Errno::INVAL)?;
    let mut out = vec![0u8; FRAME_BYTES_MAX];
    let mut context = TestContext {
        data_end: len,
        ingress_ifindex: ifindex,
        ..TestContext::default()
    };
    let mut attr = TestRunAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        data_size_in: len,
        data_size_out: FRAME_BYTES_MAX as u32,
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        repeat: 1,
        ..TestRunAttr::default()
    };
    if ifindex != 0 {
        attr.ctx_in = std::ptr::from_mut(&mut context) as u64;
        attr.ctx_size_in = size_of::<TestContext>() as u32;
    }
    // SAFETY: frame, output and context have the lengths given and outlive the call.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attr) }?;
    Ok(attr.retval)
}

/// The result of a tc program for `frame`, as if it had arrived at interface `ifindex` of the
/// calling thread's network namespace (`BPF_PROG_TEST_RUN`). `segment_bytes`: its segmentation
/// size; 0: none. Nothing is sent, whatever the result.
///
/// # Errors
/// `NODEV` if there is no such interface; `INVAL` for a frame that the kernel cannot make a packet
/// from.
pub fn dry_run_tc(
    program: BorrowedFd<'_>,
    frame: &[u8],
    ifindex: u32,
    segment_bytes: u16,
) -> Result<u32, Errno> {
    /// Number of words in `struct __sk_buff`, and the indices of two of them.
    const WORDS: usize = 48;
    const IFINDEX: usize = 10;
    const GSO_SIZE: usize = 44;
    let mut context = [0u32; WORDS];
    context[IFINDEX] = ifindex;
    context[GSO_SIZE] = segment_bytes.into();
    let mut attr = TestRunAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        data_size_in: u32::try_from(frame.len()).map_err(|_| Errno::INVAL)?,
        data_in: frame.as_ptr() as u64,
        repeat: 1,
        ctx_in: context.as_mut_ptr() as u64,
        ctx_size_in: size_of_val(&context) as u32,
        ..TestRunAttr::default()
    };
    // SAFETY: frame and context have the lengths given, are only read, and outlive the call.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attr) }?;
    Ok(attr.retval)
}

/// Runs an XDP program `times` times on copies of `frame` and executes its results: redirected
/// frames are sent.
///
/// # Errors
/// `PERM` without the privilege; `INVAL` before Linux 5.18, or for a frame that is too short.
pub fn live_run(program: BorrowedFd<'_>, frame: &[u8], times: u32) -> Result<(), Errno> {
    let mut attr = TestRunAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        data_size_in: u32::try_from(frame.len()).map_err(|_| Errno::INVAL)?,
        data_in: frame.as_ptr() as u64,
        repeat: times,
        flags: BPF_F_TEST_XDP_LIVE_FRAMES,
        ..TestRunAttr::default()
    };
    // SAFETY: the frame has the length given and is only read; the kernel writes no frame back,
    // since the attribute names no room for one.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attr) }.map(|_| ())
}

fn name(text: &str) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    for (to, from) in name[..NAME_BYTES - 1].iter_mut().zip(text.bytes()) {
        *to = from;
    }
    name
}

/// Performs a call that returns a descriptor. BPF sets close-on-exec on all of them.
///
/// # Safety
/// The conditions of `bpf`; and `command` must return a new descriptor.
unsafe fn bpf_fd<Attr>(command: libc::c_long, attr: &mut Attr) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attr) }?;
    let fd = i32::try_from(fd).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel just made it for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// `attr` must have the layout of `command`, and each address in it must be valid for what the
/// command does.
unsafe fn bpf<Attr>(command: libc::c_long, attr: &mut Attr) -> Result<libc::c_long, Errno> {
    // SAFETY: the caller's promise; the size is the attribute's own.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attr),
            size_of::<Attr>(),
        )
    };
    if result < 0 {
        return Err(last_errno());
    }
    Ok(result)
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
