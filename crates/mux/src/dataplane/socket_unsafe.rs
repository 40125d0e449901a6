//! An AF_XDP socket on an application's memory file, to be handed to the application.
//!
//! Owns the order of the calls: seals, mapping, UMEM, rings, bind. This process maps the file only
//! during the registration; the kernel holds the pages while the socket lives. Called by `mod`.

use std::os::fd::{BorrowedFd, OwnedFd};

use packetio::mux::message::Memory;
use rustix::fs::{FileType, SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use super::DataplaneError;
use crate::limits::{MEMORY_BYTES_MAX, RING_SLOTS_MAX};

/// Makes the socket and binds it to queue 0 of interface `ifindex` of the calling thread's
/// namespace.
///
/// # Errors
/// `INVAL` for an invalid file or size; other errors of the kernel.
pub(super) fn open(
    file: BorrowedFd<'_>,
    memory: &Memory,
    ifindex: u32,
) -> Result<(OwnedFd, u64), DataplaneError> {
    verify(file, memory)?;
    let step = |step: &'static str| move |errno| DataplaneError::io(step, errno);
    let socket = socket_with(
        AddressFamily::XDP,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(step("socket(AF_XDP)"))?;
    register(&socket, file, memory)?;
    sockopt::set_xdp_umem_fill_ring_size(&socket, memory.fill_slots)
        .map_err(step("XDP_UMEM_FILL_RING"))?;
    sockopt::set_xdp_umem_completion_ring_size(&socket, memory.completion_slots)
        .map_err(step("XDP_UMEM_COMPLETION_RING"))?;
    sockopt::set_xdp_rx_ring_size(&socket, memory.rx_slots).map_err(step("XDP_RX_RING"))?;
    sockopt::set_xdp_tx_ring_size(&socket, memory.tx_slots).map_err(step("XDP_TX_RING"))?;
    // The socket's send buffer must not limit the application below its number of chunks, and the
    // application may not raise the limit itself.
    let charge = memory.tx_slots as usize * 2 * memory.chunk_bytes as usize;
    let _ = sockopt::set_socket_send_buffer_size_force(&socket, charge);
    let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP | SocketAddrXdpFlags::XDP_COPY;
    bind(&socket, &SocketAddrXdp::new(flags, ifindex, 0)).map_err(step("bind"))?;
    let cookie = sockopt::socket_cookie(&socket).map_err(step("SO_COOKIE"))?;
    Ok((socket, cookie))
}

/// Checks that the file is sealed memory of the given length, and that the sizes are valid.
fn verify(file: BorrowedFd<'_>, memory: &Memory) -> Result<(), DataplaneError> {
    let refuse = |why: &str| Err(DataplaneError::refused("memory", why.to_owned()));
    let stat = fstat(file).map_err(|errno| DataplaneError::io("fstat", errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return refuse("not a file");
    }
    // Only files of `memfd_create` can have seals; others fail with `EINVAL`.
    let seals = fcntl_get_seals(file).map_err(|errno| DataplaneError::io("F_GET_SEALS", errno))?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL) {
        return refuse("its size is not sealed");
    }
    if memory.bytes == 0
        || memory.bytes > MEMORY_BYTES_MAX
        || u64::try_from(stat.st_size) != Ok(memory.bytes)
    {
        return refuse("another length than it says");
    }
    let is_chunk = matches!(memory.chunk_bytes, 2048 | 4096)
        && memory.bytes.is_multiple_of(u64::from(memory.chunk_bytes));
    if !is_chunk || memory.headroom_bytes >= memory.chunk_bytes / 2 {
        return refuse("chunks must have 2,048 or 4,096 bytes and fill the file");
    }
    let rings = [
        memory.fill_slots,
        memory.completion_slots,
        memory.rx_slots,
        memory.tx_slots,
    ];
    match rings
        .iter()
        .all(|slots| slots.is_power_of_two() && *slots <= RING_SLOTS_MAX)
    {
        true => Ok(()),
        false => refuse("a ring must be a power of two within the limit"),
    }
}

fn register(socket: &OwnedFd, file: BorrowedFd<'_>, memory: &Memory) -> Result<(), DataplaneError> {
    let length = usize::try_from(memory.bytes)
        .map_err(|_| DataplaneError::io("mmap of the memory", Errno::NOMEM))?;
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing; its length is the sealed file's.
    let mapping = unsafe {
        mmap(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            file,
            0,
        )
    }
    .map_err(|errno| DataplaneError::io("mmap of the memory", errno))?;
    let region = XdpUmemReg {
        addr: mapping as u64,
        len: memory.bytes,
        chunk_size: memory.chunk_bytes,
        headroom: memory.headroom_bytes,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    let registered = sockopt::set_xdp_umem_reg(socket, region);
    // SAFETY: the mapping is ours alone and nothing here points into it; the kernel holds its pages by itself.
    let _ = unsafe { munmap(mapping, length) };
    registered.map_err(|errno| DataplaneError::io("XDP_UMEM_REG", errno))
}
