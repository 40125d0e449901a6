//! A thread to which the kernel refuses packet sockets, as in a service with
//! `RestrictAddressFamilies=`.

use rustix::io::Errno;

/// Offset in `struct seccomp_data` of the call's number; below, of the low half of its first
/// argument.
const NUMBER_AT: u32 = 0;
const FIRST_ARGUMENT_AT: u32 = if cfg!(target_endian = "big") { 20 } else { 16 };

/// Makes `socket(AF_PACKET, …)` of the calling thread fail with `EACCES` from now on.
///
/// # Errors
/// The kernel does not support filters of system calls.
pub fn deny_packet_sockets() -> Result<(), Errno> {
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0);
    let jump = |value, skip| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, skip);
    let give = |verdict| step(libc::BPF_RET | libc::BPF_K, verdict, 0);
    let program = [
        load(NUMBER_AT),
        jump(libc::SYS_socket as u32, 3),
        load(FIRST_ARGUMENT_AT),
        jump(libc::AF_PACKET as u32, 1),
        give(libc::SECCOMP_RET_ERRNO | libc::EACCES as u32),
        give(libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the first call takes numbers. The second one reads a whole `sock_fprog` and the
    // program that it names, which both outlive the call.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter,
            ) != 0
    };
    match refused {
        true => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        false => Ok(()),
    }
}

/// An instruction. A comparison that fails skips `skip` instructions.
fn step(code: u32, k: u32, skip: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skip,
        k,
    }
}
