//! bpf(2): maps, programs and links as owned descriptors.
//!
//! Owns the layouts of `union bpf_attr` that we use. Called by `attach.rs`; nothing here is on the data path.

use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

use super::program::{INSN_BYTES, MapDef};

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;

const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
/// Bytes of the verifier's log that we ask for when it refuses the program.
const VERIFIER_LOG_BYTES: usize = 64 * 1024;

/// Length of names of programs and maps, with the final NUL.
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

/// A BPF map and the sizes that make its calls safe.
#[derive(Debug)]
pub(super) struct Map {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    /// Makes the map that `def` describes.
    ///
    /// # Errors
    /// What `BPF_MAP_CREATE` says.
    pub(super) fn create(def: &MapDef) -> Result<Self, Errno> {
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

    /// The descriptor, for the program's references.
    pub(super) fn raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Sets the entry of `key`.
    ///
    /// # Errors
    /// `INVAL` if a size is not the map's; else what the kernel says.
    pub(super) fn update(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
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
    /// `NOENT` if there is none; `INVAL` if the size is not the map's.
    pub(super) fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        if key.len() != self.key_bytes {
            return Err(Errno::INVAL);
        }
        let mut attr = self.element(key, 0);
        // SAFETY: the key is as long as the map's, and the kernel only reads it.
        unsafe { bpf(BPF_MAP_DELETE_ELEM, &mut attr) }.map(|_| ())
    }

    /// Reads the entry of `key` into `value`. Not for per-CPU maps.
    ///
    /// # Errors
    /// `NOENT` if there is none; `INVAL` if a size is not the map's.
    pub(super) fn lookup(&self, key: &[u8], value: &mut [u8]) -> Result<(), Errno> {
        if key.len() != self.key_bytes || value.len() != self.value_bytes {
            return Err(Errno::INVAL);
        }
        let mut attr = self.element(key, value.as_mut_ptr() as u64);
        // SAFETY: the kernel reads a key and writes a value of the map's sizes, which these have; the map is not per-CPU
        // (the loader makes none), where the value would be longer.
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

/// Why the kernel refused a program.
#[derive(Debug)]
pub(super) struct Refused {
    pub errno: Errno,
    /// The last line of the verifier's log that says something; empty if it never ran.
    pub verifier: String,
}

/// Loads an XDP program whose references to maps are already descriptors. `license` ends with NUL.
///
/// # Errors
/// The kernel's, with the verifier's last words.
pub(super) fn load(insns: &[u8], license: &[u8], title: &str) -> Result<OwnedFd, Refused> {
    let refused = |errno, verifier| Refused { errno, verifier };
    if !insns.len().is_multiple_of(INSN_BYTES) || license.last() != Some(&0) {
        return Err(refused(Errno::INVAL, String::new()));
    }
    let count = u32::try_from(insns.len() / INSN_BYTES)
        .map_err(|_| refused(Errno::TOOBIG, String::new()))?;
    let mut attr = ProgramLoadAttr {
        prog_type: BPF_PROG_TYPE_XDP,
        insn_cnt: count,
        insns: insns.as_ptr() as u64,
        license: license.as_ptr() as u64,
        prog_name: name(title),
        expected_attach_type: BPF_XDP,
        ..ProgramLoadAttr::default()
    };
    // SAFETY: `insns` holds `insn_cnt` instructions, the license ends with NUL, and there is no log.
    let first = unsafe { bpf_fd(BPF_PROG_LOAD, &mut attr) };
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

/// The verifier's complaint stands before its statistics.
fn last_words(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let text = text.trim_end_matches('\0');
    let said = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty() && !line.starts_with("processed "));
    said.unwrap_or_default().trim().to_owned()
}

/// Attaches by a BPF link: the program goes when the descriptor is closed, and so when the process dies.
///
/// # Errors
/// `BUSY` or `EXIST` if another program is there; `INVAL` if the kernel knows no XDP links (before 5.9) or the driver
/// refuses; `OPNOTSUPP` or `RANGE` if the driver cannot.
pub(super) fn link(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> Result<OwnedFd, Errno> {
    let mut attr = LinkCreateAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_ifindex: ifindex,
        attach_type: BPF_XDP,
        flags,
    };
    // SAFETY: the attribute is of this command and holds no pointer.
    unsafe { bpf_fd(BPF_LINK_CREATE, &mut attr) }
}

fn name(text: &str) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    for (to, from) in name[..NAME_BYTES - 1].iter_mut().zip(text.bytes()) {
        *to = from;
    }
    name
}

/// A call that returns a descriptor (BPF sets close-on-exec on all of them).
///
/// # Safety
/// As `bpf`, and `command` returns a new descriptor.
unsafe fn bpf_fd<Attr>(command: libc::c_long, attr: &mut Attr) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attr) }?;
    let fd = i32::try_from(fd).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel just made it for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// # Safety
/// `attr` is the layout of `command`, and each address in it is valid for what the command does with it.
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

#[cfg(test)]
#[path = "bpf_tests_unsafe.rs"]
pub(super) mod tests;
