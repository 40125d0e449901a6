//! libc calls that the main executable itself makes on our descriptors.
//!
//! packetdrill calls libc instead of the interface for `TCP_INFO`, for `sendfile`, and to close
//! what is left open. The executable's slots for these functions are redirected to ours, which pass
//! calls on other descriptors to libc. Slots that the linker made read-only are made writable for
//! the moment. Other libraries, this one included, keep libc's functions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::interface_unsafe::option_of;
use crate::plugin::Plugin;
use crate::process_unsafe::set_errno;

/// The plug-ins whose descriptors are intercepted.
static INSTALLED: Mutex<Vec<Weak<Plugin>>> = Mutex::new(Vec::new());

/// Redirects the executable's calls on `plugin`'s descriptors to the plug-in.
pub fn install(plugin: &Arc<Plugin>) {
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    installed.push(Arc::downgrade(plugin));
    // SAFETY: the callback has the required signature and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(patch_first), std::ptr::null_mut()) };
}

/// Ends the redirection for `plugin`.
pub fn uninstall(plugin: &Arc<Plugin>) {
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    installed.retain(|other| !std::ptr::eq(other.as_ptr(), Arc::as_ptr(plugin)));
}

/// The plug-in that owns `fd`.
fn owner(fd: c_int) -> Option<Arc<Plugin>> {
    let installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut plugins = installed.iter().filter_map(Weak::upgrade);
    plugins.find(|plugin| plugin.is_ours(fd))
}

fn answer(result: Result<i64, posix::Errno>) -> i64 {
    result.unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    })
}

extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut c_uint,
) -> c_int {
    match owner(fd) {
        Some(plugin) => answer(option_of(
            &plugin,
            fd,
            level,
            name,
            value as usize,
            len as usize,
        )) as c_int,
        // SAFETY: the caller's own call, passed on.
        None => unsafe { libc::getsockopt(fd, level, name, value, len) },
    }
}

extern "C" fn close(fd: c_int) -> c_int {
    match owner(fd) {
        Some(plugin) => answer(plugin.call(posix::Request::Close { fd }).map(|(v, _)| v)) as c_int,
        // SAFETY: the caller's own call, passed on.
        None => unsafe { libc::close(fd) },
    }
}

extern "C" fn sendfile(fd_out: c_int, fd_in: c_int, offset: *mut libc::off_t, len: usize) -> isize {
    let Some(plugin) = owner(fd_out) else {
        // SAFETY: the caller's own call, passed on.
        return unsafe { libc::sendfile(fd_out, fd_in, offset, len) };
    };
    if offset.is_null() {
        return answer(crate::splice::sendfile(&plugin, fd_out, fd_in, None, len)) as isize;
    }
    // SAFETY: not null, so by sendfile(2) it points to the caller's offset.
    let from = unsafe { *offset };
    let sent = answer(crate::splice::sendfile(
        &plugin,
        fd_out,
        fd_in,
        Some(from as u64),
        len,
    ));
    if sent > 0 {
        // SAFETY: as above.
        unsafe { *offset = from + sent };
    }
    sent as isize
}

/// Our function for a symbol, if we replace it.
fn replacement(name: &CStr) -> Option<usize> {
    match name.to_bytes() {
        b"getsockopt" => Some(getsockopt as *const () as usize),
        b"close" => Some(close as *const () as usize),
        b"sendfile" | b"sendfile64" => Some(sendfile as *const () as usize),
        _ => None,
    }
}

/// Patches the main executable, which is the first loaded object, and ends the iteration.
unsafe extern "C" fn patch_first(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid structure, whose headers are mapped as long as the object
    // is.
    let (info, headers) = unsafe {
        let info = &*info;
        let count = usize::from(info.dlpi_phnum);
        (info, std::slice::from_raw_parts(info.dlpi_phdr, count))
    };
    let base = info.dlpi_addr as usize;
    // If this code is linked into the executable itself, a patched slot would lead us back to
    // ourselves.
    let own = patch_first as *const () as usize;
    let is_own = headers.iter().any(|h| {
        let start = base + h.p_vaddr as usize;
        h.p_type == libc::PT_LOAD && (start..start + h.p_memsz as usize).contains(&own)
    });
    if is_own {
        return 1;
    }
    let dynamic = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC);
    if let Some(dynamic) = dynamic {
        let relro = headers.iter().find(|h| h.p_type == libc::PT_GNU_RELRO);
        let relro = relro.map(|h| {
            let start = base + h.p_vaddr as usize;
            start..start + h.p_memsz as usize
        });
        // SAFETY: the segment is the object's dynamic section.
        if let Some(tables) = unsafe { Tables::read(base, base + dynamic.p_vaddr as usize) } {
            // SAFETY: `tables` are those of the object at `base`, which is loaded and stays.
            unsafe { tables.patch(base, relro.as_ref()) };
        }
    }
    1
}

/// The symbol, string and relocation tables that the dynamic section names.
struct Tables {
    symbols: usize,
    strings: usize,
    /// Address and length in bytes of each table of relocations.
    relocations: [(usize, usize); 2],
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

impl Tables {
    /// # Safety
    /// The dynamic section of the object loaded at `base` must be at `address`.
    unsafe fn read(base: usize, address: usize) -> Option<Self> {
        let (mut symbols, mut strings) = (0, 0);
        let (mut slots, mut slots_len, mut others, mut others_len) = (0, 0, 0, 0);
        let mut entry = address as *const Dynamic;
        loop {
            // SAFETY: within the section, which ends with an entry of tag zero.
            let Dynamic { tag, value } = unsafe { entry.read() };
            match tag {
                DT_NULL => break,
                DT_SYMTAB => symbols = value,
                DT_STRTAB => strings = value,
                DT_JMPREL => slots = value,
                DT_PLTRELSZ => slots_len = value,
                DT_RELA => others = value,
                DT_RELASZ => others_len = value,
                // Tables without addends (`DT_REL`) are not used on our platforms.
                DT_PLTREL if value as i64 != DT_RELA => return None,
                _ => {}
            }
            // SAFETY: not the last entry.
            entry = unsafe { entry.add(1) };
        }
        // Some loaders add the base to these addresses in place, some do not.
        let absolute = |address: usize| match address {
            0 => 0,
            address if address < base => base + address,
            address => address,
        };
        (symbols != 0 && strings != 0).then(|| Self {
            symbols: absolute(symbols),
            strings: absolute(strings),
            relocations: [(absolute(slots), slots_len), (absolute(others), others_len)],
        })
    }

    /// # Safety
    /// The tables must be those of the object loaded at `base`. `relro` must be its segment that is
    /// read-only after relocation.
    unsafe fn patch(&self, base: usize, relro: Option<&std::ops::Range<usize>>) {
        for (table, bytes) in self.relocations {
            if table == 0 {
                continue;
            }
            for at in 0..bytes / size_of::<Relocation>() {
                // SAFETY: within the table.
                let relocation = unsafe { &*(table as *const Relocation).add(at) };
                let (kind, symbol) = (relocation.info as u32, (relocation.info >> 32) as usize);
                if symbol == 0 || !KINDS.contains(&kind) {
                    continue;
                }
                // SAFETY: relocations refer to entries of the symbol table, and those to strings of
                // the string table.
                let name = unsafe {
                    let symbol = &*(self.symbols as *const Symbol).add(symbol);
                    CStr::from_ptr((self.strings as *const c_char).add(symbol.name as usize))
                };
                if let Some(function) = replacement(name) {
                    let slot = base + relocation.offset;
                    let is_read_only = relro.is_some_and(|relro| relro.contains(&slot));
                    // SAFETY: a relocation of these kinds is of a slot for one address.
                    unsafe { set_slot(slot, function, is_read_only) };
                }
            }
        }
    }
}

/// # Safety
/// `slot` must be a place for an address that only the executable uses. It may be read-only.
unsafe fn set_slot(slot: usize, function: usize, is_read_only: bool) {
    let page = rustix::param::page_size();
    let start = (slot & !(page - 1)) as *mut c_void;
    if is_read_only {
        // SAFETY: the page is mapped, and it becomes less protected.
        if unsafe { libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return;
        }
    }
    // SAFETY: by this function's contract, and now writable. Volatile, because the compiler does
    // not see the code that reads it.
    unsafe { (slot as *mut usize).write_volatile(function) };
    if is_read_only {
        // SAFETY: as it was.
        unsafe { libc::mprotect(start, page, libc::PROT_READ) };
    }
}

const DT_NULL: i64 = 0;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_PLTREL: i64 = 20;
const DT_JMPREL: i64 = 23;

/// Kinds of relocations that put a function's address into a slot: `GLOB_DAT`, `JUMP_SLOT` and the
/// plain address.
#[cfg(target_arch = "x86_64")]
const KINDS: [u32; 3] = [6, 7, 1];
/// The same kinds by their numbers on aarch64.
#[cfg(target_arch = "aarch64")]
const KINDS: [u32; 3] = [1_025, 1_026, 257];
