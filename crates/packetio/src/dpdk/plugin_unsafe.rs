//! Safe wrappers around the plug-in library's C interface: [`Plugin`], an open port ([`Device`])
//! and one of its queues ([`Queue`]).
//!
//! The types mirror `plugins/dpdk/millstream_dpdk.h`. `dlopen` is called through libc, because
//! three calls need no further crate. The library stays open until the process ends, since DPDK has
//! its own threads. What the plug-in says about frames is trusted: it is our code in this process.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use super::DpdkOptions;
use crate::frame_unsafe::{RxChecksum, RxFrame, TxFrame};
use crate::limits::{DPDK_BATCH_MAX, DPDK_LARGE_SLOTS, DPDK_RX_SLOTS, DPDK_TX_SLOTS};

const ABI: u32 = 2;
const SYMBOL: &CStr = c"millstream_dpdk";
const WHY_BYTES: usize = 512;

const OFFLOAD_TX_CHECKSUM: u32 = 2;
const OFFLOAD_RX_INTERRUPTS: u32 = 4;
const LACKS_BUFFERS: u32 = 8;
const CHECKSUM_GOOD: u32 = 1;
const CHECKSUM_BAD: u32 = 2;
const HAS_HASH: u32 = 4;
const HAS_FRAMES: u32 = 1;
const HAS_ROOM: u32 = 2;

#[repr(C)]
struct RawSettings {
    port: *const c_char,
    queues: u32,
    mtu: u32,
    rx_slots: u32,
    tx_slots: u32,
    large_slots: u32,
    reserved: u32,
}

#[repr(C)]
struct RawInfo {
    device: [c_char; 64],
    driver: [c_char; 32],
    number: u32,
    mtu: u32,
    offloads: u32,
    segment_bytes_max: u32,
    mac: [u8; 6],
    reserved: [u8; 2],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct RawFrame {
    data: *const u8,
    len: u32,
    hash: u32,
    flags: u32,
    segment_bytes: u32,
}

impl RawFrame {
    const EMPTY: Self = Self {
        data: std::ptr::null(),
        len: 0,
        hash: 0,
        flags: 0,
        segment_bytes: 0,
    };
}

#[derive(Clone, Copy)]
#[repr(C)]
struct RawSlot {
    data: *mut u8,
    large: *mut u8,
    capacity: u32,
    large_capacity: u32,
}

impl RawSlot {
    const EMPTY: Self = Self {
        data: std::ptr::null_mut(),
        large: std::ptr::null_mut(),
        capacity: 0,
        large_capacity: 0,
    };
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct RawWritten {
    len: u32,
    checksum_from: u32,
    segment_bytes: u32,
    is_large: u32,
}

/// Counters of a queue since it was opened.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct QueueCounters {
    pub rx_frames: u64,
    pub rx_bytes: u64,
    pub tx_frames: u64,
    pub tx_bytes: u64,
    pub rx_runt: u64,
    pub rx_too_long: u64,
    pub rx_chained: u64,
    pub tx_runt: u64,
    pub tx_refused: u64,
    pub tx_pushed_back: u64,
    pub buffers_free: u64,
    pub rx_merged: u64,
    pub rx_cut: u64,
    pub tx_large: u64,
    pub tx_cut: u64,
    pub tx_no_large: u64,
}

/// Counters of the device since its driver reset them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct DeviceCounters {
    pub rx_missed: u64,
    pub rx_errors: u64,
    pub rx_no_buffer: u64,
    pub tx_errors: u64,
    /// 1 if the device has been removed.
    pub is_gone: u64,
}

enum RawPort {}
enum RawQueue {}

#[repr(C)]
struct Table {
    abi: u32,
    batch_max: u32,
    start: unsafe extern "C" fn(*const *const c_char, u32, *mut c_char, usize) -> c_int,
    open:
        unsafe extern "C" fn(*const RawSettings, *mut RawInfo, *mut c_char, usize) -> *mut RawPort,
    close: unsafe extern "C" fn(*mut RawPort),
    take: unsafe extern "C" fn(*mut RawPort, u32) -> *mut RawQueue,
    give_back: unsafe extern "C" fn(*mut RawQueue),
    accept_merged: unsafe extern "C" fn(*mut RawQueue),
    receive: unsafe extern "C" fn(*mut RawQueue, *mut RawFrame) -> u32,
    release: unsafe extern "C" fn(*mut RawQueue),
    reserve: unsafe extern "C" fn(*mut RawQueue, *mut RawSlot, u32) -> u32,
    send: unsafe extern "C" fn(*mut RawQueue, *const RawWritten, u32),
    prepare_wait: unsafe extern "C" fn(*mut RawQueue) -> u32,
    finish_wait: unsafe extern "C" fn(*mut RawQueue),
    wait_fd: unsafe extern "C" fn(*const RawQueue) -> c_int,
    counters: unsafe extern "C" fn(*const RawQueue, *mut QueueCounters),
    device_counters: unsafe extern "C" fn(*const RawQueue, *mut DeviceCounters),
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<RawSettings>() == 32);
    assert!(size_of::<RawInfo>() == 120);
    assert!(size_of::<RawFrame>() == 24);
    assert!(size_of::<RawSlot>() == 24);
    assert!(size_of::<RawWritten>() == 16);
    assert!(size_of::<QueueCounters>() == 128);
    assert!(size_of::<DeviceCounters>() == 40);
    assert!(size_of::<Table>() == 128);
};

/// The loaded plug-in.
#[derive(Clone, Copy)]
pub(super) struct Plugin {
    table: &'static Table,
}

impl Plugin {
    /// Loads the library at `path`; a name without directory is searched by the system's loader.
    ///
    /// # Errors
    /// One line: the loader's message, or that the library has another version.
    pub fn load(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| "its path has a zero".to_owned())?;
        // SAFETY: the name ends in a zero. The library's constructors run, as those of any library
        // that somebody names to be loaded.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(loader_error());
        }
        // SAFETY: the library is open and the symbol's name ends in a zero.
        let symbol = unsafe { libc::dlsym(library, SYMBOL.as_ptr()) };
        if symbol.is_null() {
            return Err(format!("{}: no plug-in of Millstream's", path.display()));
        }
        // SAFETY: a library that exports this name exports it as this function (millstream_dpdk.h).
        let entry: unsafe extern "C" fn(u32) -> *const Table =
            unsafe { std::mem::transmute::<*mut c_void, _>(symbol) };
        // SAFETY: the function returns null or its table, which is constant and lives as long as
        // the library, which is never closed.
        match unsafe { entry(ABI).as_ref() } {
            Some(table) if table.abi == ABI && table.batch_max as usize == DPDK_BATCH_MAX => {
                Ok(Self { table })
            }
            _ => Err(format!(
                "{}: another version's plug-in: build it anew",
                path.display()
            )),
        }
    }

    /// Starts EAL if it does not run. Only one thread at a time may call it.
    ///
    /// # Errors
    /// The plug-in's reason, in one line.
    pub fn start(self, arguments: &[String]) -> Result<(), String> {
        let owned: Result<Vec<CString>, _> = arguments
            .iter()
            .map(|argument| CString::new(argument.as_str()))
            .collect();
        let owned = owned.map_err(|_| "an argument of EAL's has a zero".to_owned())?;
        let pointers: Vec<*const c_char> = owned.iter().map(|argument| argument.as_ptr()).collect();
        let mut why = [0u8; WHY_BYTES];
        // SAFETY: the arguments end in zeros and live during the call, which copies them; `why` has
        // the size that is stated.
        let failed = unsafe {
            (self.table.start)(
                pointers.as_ptr(),
                pointers.len() as u32,
                why.as_mut_ptr().cast(),
                WHY_BYTES,
            )
        };
        match failed {
            0 => Ok(()),
            _ => Err(reason(&why)),
        }
    }

    /// Opens a port of the running EAL. Only one thread at a time may call it.
    ///
    /// # Errors
    /// The plug-in's reason, in one line.
    pub fn open(self, options: &DpdkOptions) -> Result<Device, String> {
        let name = CString::new(options.port.as_str())
            .map_err(|_| "the port's name has a zero".to_owned())?;
        let settings = RawSettings {
            port: name.as_ptr(),
            queues: options.queues as u32,
            mtu: options.mtu.unwrap_or(0) as u32,
            rx_slots: DPDK_RX_SLOTS,
            tx_slots: DPDK_TX_SLOTS,
            large_slots: if options.offload { DPDK_LARGE_SLOTS } else { 0 },
            reserved: 0,
        };
        let mut info = RawInfo {
            device: [0; 64],
            driver: [0; 32],
            number: 0,
            mtu: 0,
            offloads: 0,
            segment_bytes_max: 0,
            mac: [0; 6],
            reserved: [0; 2],
        };
        let mut why = [0u8; WHY_BYTES];
        // SAFETY: all pointers are to values that live during the call, of the sizes that the
        // header states; it keeps none of them.
        let port =
            unsafe { (self.table.open)(&settings, &mut info, why.as_mut_ptr().cast(), WHY_BYTES) };
        let Some(port) = NonNull::new(port) else {
            return Err(reason(&why));
        };
        Ok(Device {
            plugin: self,
            port,
            mac: info.mac,
            mtu: info.mtu as usize,
            has_tx_checksum: info.offloads & OFFLOAD_TX_CHECKSUM != 0,
            has_interrupts: info.offloads & OFFLOAD_RX_INTERRUPTS != 0,
            segment_bytes_max: info.segment_bytes_max as usize,
            lacks_buffers: info.offloads & LACKS_BUFFERS != 0,
        })
    }
}

/// A text of the plug-in, up to its zero byte.
fn reason(why: &[u8]) -> String {
    let why = CStr::from_bytes_until_nul(why).unwrap_or_default();
    why.to_string_lossy().into_owned()
}

/// The loader's message about its last failure.
fn loader_error() -> String {
    // SAFETY: the answer is null or a string of the loader's that lives until this thread's next
    // call of it.
    unsafe {
        let error = libc::dlerror();
        match error.is_null() {
            true => "the loader refuses it".to_owned(),
            false => CStr::from_ptr(error).to_string_lossy().into_owned(),
        }
    }
}

/// The file that this code was loaded from: the program, or a library such as libmtcp.
pub(super) fn own_file() -> Option<PathBuf> {
    // SAFETY: all zeros are a valid `Dl_info`, which is only pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let address = own_file as fn() -> Option<PathBuf> as *const c_void;
    // SAFETY: `info` is valid for writes; the address is only looked up.
    let found = unsafe { libc::dladdr(address, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of a file that is loaded and stays so, for we are in it.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()
}

/// True if the program has more rights than its caller. The environment then must not name code.
pub(super) fn is_privileged() -> bool {
    // SAFETY: a look at the process's auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// An open port. Dropping it closes it; only one thread at a time may do so.
pub(super) struct Device {
    plugin: Plugin,
    port: NonNull<RawPort>,
    pub mac: [u8; 6],
    pub mtu: usize,
    pub has_tx_checksum: bool,
    pub has_interrupts: bool,
    /// Largest IP packet that is cut into TCP segments, bytes; 0: none is cut.
    pub segment_bytes_max: usize,
    /// True if the driver cuts packets but there is no memory for buffers of such packets.
    pub lacks_buffers: bool,
}

// SAFETY: the header says that a port may be used from any thread; the calls that must not run at
// the same time are made behind `registry()` in mod.rs.
unsafe impl Send for Device {}
// SAFETY: as for `Send`; `&Device` alone calls nothing.
unsafe impl Sync for Device {}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the port came from `open`; every queue holds this value alive and has given
        // itself back before it let go.
        unsafe { (self.plugin.table.close)(self.port.as_ptr()) };
    }
}

/// One queue of a port. Dropping it gives it back; only one thread at a time may do so.
pub(super) struct Queue {
    table: &'static Table,
    raw: NonNull<RawQueue>,
    /// Received frames, which the plug-in lends until the next `receive` or `release`.
    lent: Vec<RxFrame>,
    /// Transmit slots, which the plug-in grants until the next `reserve` or `send`.
    granted: Vec<TxFrame>,
    /// Array in which the plug-in describes the frames that it lends and grants.
    frames: Box<[RawFrame; DPDK_BATCH_MAX]>,
    slots: Box<[RawSlot; DPDK_BATCH_MAX]>,
    written: Box<[RawWritten; DPDK_BATCH_MAX]>,
    /// The queue's port; `drop` releases it after the queue.
    device: ManuallyDrop<Arc<Device>>,
    /// Process that opened the queue.
    pid: u32,
}

// SAFETY: the header says that a queue may be used by one thread after another; `&mut self` of
// every call makes it one at a time.
unsafe impl Send for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // In a forked child the port belongs to the parent, which may even hold the lock.
            return;
        }
        let _one_at_a_time = super::registry();
        // SAFETY: the queue came from `take`; nobody reads or writes its frames any more, for they
        // are reachable through `self` only.
        unsafe { (self.table.give_back)(self.raw.as_ptr()) };
        // SAFETY: nothing uses the port behind this; the last queue's stops it here, behind the
        // lock.
        unsafe { ManuallyDrop::drop(&mut self.device) };
    }
}

impl Queue {
    /// Takes queue `index`. `None`: it does not exist or is taken. Only one thread at a time may
    /// call it.
    pub fn take(device: Arc<Device>, index: usize) -> Option<Self> {
        let table = device.plugin.table;
        let index = u32::try_from(index).ok()?;
        // SAFETY: the port is open for as long as `device` lives.
        let raw = NonNull::new(unsafe { (table.take)(device.port.as_ptr(), index) })?;
        Some(Self {
            table,
            raw,
            lent: Vec::with_capacity(DPDK_BATCH_MAX),
            granted: Vec::with_capacity(DPDK_BATCH_MAX),
            frames: Box::new([RawFrame::EMPTY; DPDK_BATCH_MAX]),
            slots: Box::new([RawSlot::EMPTY; DPDK_BATCH_MAX]),
            written: Box::new([RawWritten::default(); DPDK_BATCH_MAX]),
            device: ManuallyDrop::new(device),
            pid: std::process::id(),
        })
    }

    /// Properties of the queue's port.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Accepts received frames of several segments from now on.
    pub fn accept_merged(&mut self) {
        // SAFETY: the queue is taken.
        unsafe { (self.table.accept_merged)(self.raw.as_ptr()) };
    }

    /// Releases the last batch and receives one.
    #[inline]
    pub fn receive(&mut self) -> &[RxFrame] {
        self.lent.clear();
        let frames = &mut self.frames;
        // SAFETY: the queue is taken, and `frames` has room for a batch.
        let n = unsafe { (self.table.receive)(self.raw.as_ptr(), frames.as_mut_ptr()) };
        for frame in frames.iter().take(n as usize) {
            let checksum = match frame.flags & (CHECKSUM_GOOD | CHECKSUM_BAD) {
                0 => RxChecksum::Unknown,
                CHECKSUM_GOOD => RxChecksum::Verified,
                _ => RxChecksum::Bad,
            };
            let hash = (frame.flags & HAS_HASH != 0).then_some(frame.hash);
            // SAFETY: the plug-in lends `len` bytes at `data` until this queue's next `receive` or
            // `release`, both of which first clear `lent`, the only place that the frame is
            // reachable from. No Rust reference to the memory is made.
            let lent = unsafe { RxFrame::new(frame.data, frame.len) };
            self.lent.push(
                lent.with_checksum(checksum)
                    .with_hash(hash)
                    .with_segment_bytes(frame.segment_bytes as u16),
            );
        }
        &self.lent
    }

    /// Returns the last received batch.
    #[inline]
    pub fn release(&mut self) {
        self.lent.clear();
        // SAFETY: the queue is taken, and nothing shows its frames any more.
        unsafe { (self.table.release)(self.raw.as_ptr()) };
    }

    /// Grants up to `n` slots for frames.
    #[inline]
    pub fn reserve(&mut self, n: usize) -> &[TxFrame] {
        self.granted.clear();
        let slots = &mut self.slots;
        let n = n.min(DPDK_BATCH_MAX) as u32;
        // SAFETY: the queue is taken, and `slots` has room for a batch.
        let n = unsafe { (self.table.reserve)(self.raw.as_ptr(), slots.as_mut_ptr(), n) };
        for slot in slots.iter().take(n as usize) {
            // SAFETY: the plug-in grants `capacity` bytes at `data` until this queue's next
            // `reserve` or `send`, both of which first clear `granted`, the only place that the
            // slot is reachable from. No Rust reference to the memory is made.
            let granted = unsafe { TxFrame::new(slot.data, slot.capacity) };
            if let Some(large) = NonNull::new(slot.large) {
                // SAFETY: as above, with `large_capacity` bytes.
                unsafe { granted.attach_bulk(large, slot.large_capacity) };
            }
            self.granted.push(granted);
        }
        &self.granted
    }

    /// The slots of the last [`reserve`](Self::reserve).
    #[inline]
    pub fn reserved(&self) -> &[TxFrame] {
        &self.granted
    }

    /// Sends the frames in the first `n` slots.
    #[inline]
    pub fn send(&mut self, n: usize) {
        let n = n.min(self.granted.len());
        for (to, slot) in self.written.iter_mut().zip(&self.granted[..n]) {
            to.len = slot.len() as u32;
            to.checksum_from = slot
                .checksum_offload()
                .map_or(0, |(from, _)| u32::from(from));
            to.segment_bytes = u32::from(slot.segment_bytes());
            to.is_large = u32::from(slot.is_bulk());
        }
        self.granted.clear();
        // SAFETY: the queue is taken, and `written` has `n` entries.
        unsafe { (self.table.send)(self.raw.as_ptr(), self.written.as_ptr(), n as u32) };
    }

    /// Enables interrupts, then tells whether frames are there and whether there is room to send.
    /// The last batch must have been released.
    pub fn prepare_wait(&mut self) -> (bool, bool) {
        self.release();
        // SAFETY: the queue is taken, and nothing shows received frames.
        let found = unsafe { (self.table.prepare_wait)(self.raw.as_ptr()) };
        (found & HAS_FRAMES != 0, found & HAS_ROOM != 0)
    }

    /// Disables interrupts.
    pub fn finish_wait(&mut self) {
        // SAFETY: the queue is taken.
        unsafe { (self.table.finish_wait)(self.raw.as_ptr()) };
    }

    /// Descriptor that becomes readable when frames arrive after `prepare_wait`.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the queue is taken. The descriptor stays open as long as the port, which outlives
        // the borrow of `self`.
        unsafe {
            let fd = (self.table.wait_fd)(self.raw.as_ptr());
            (fd >= 0).then(|| BorrowedFd::borrow_raw(fd))
        }
    }

    /// The queue's counters.
    pub fn counters(&self) -> QueueCounters {
        let mut counters = QueueCounters::default();
        // SAFETY: the queue is taken, and the place is valid for writes.
        unsafe { (self.table.counters)(self.raw.as_ptr(), &mut counters) };
        counters
    }

    /// Counters of the device. The call is slow: the port's first queue makes it, and not per
    /// batch.
    pub fn device_counters(&mut self) -> DeviceCounters {
        let mut counters = DeviceCounters::default();
        // SAFETY: as for `counters`.
        unsafe { (self.table.device_counters)(self.raw.as_ptr(), &mut counters) };
        counters
    }
}
