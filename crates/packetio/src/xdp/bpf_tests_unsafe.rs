//! `BPF_PROG_TEST_RUN`: the loaded program decides about a frame without any interface. For the tests of `attach.rs`.

use super::*;

const BPF_PROG_TEST_RUN: libc::c_long = 10;
/// The kernel writes the frame back; programs may grow it, ours does not.
const FRAME_BYTES_MAX: usize = 4096;

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
}

/// What the program returns for `frame`, which must be at least 14 bytes long.
pub(crate) fn run(program: BorrowedFd<'_>, frame: &[u8]) -> Result<u32, Errno> {
    let mut out = vec![0u8; FRAME_BYTES_MAX];
    let mut attr = TestRunAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        data_size_in: u32::try_from(frame.len()).unwrap(),
        data_size_out: u32::try_from(out.len()).unwrap(),
        data_in: frame.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        repeat: 1,
        ..TestRunAttr::default()
    };
    // SAFETY: `data_in` and `data_out` have the lengths given.
    unsafe { bpf(BPF_PROG_TEST_RUN, &mut attr) }?;
    Ok(attr.retval)
}
