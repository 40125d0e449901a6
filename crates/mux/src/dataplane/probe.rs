//! A test of the hop from the NIC's program to a veth's peer, for `mill mux check`.
//!
//! A veth whose peer has neither an XDP program nor GRO drops redirected frames, and counts them
//! nowhere. So the test redirects a few frames to the NIC and asks the driver how many its peer
//! took. The frames have the NIC's own address and an experimental ethertype (IEEE 802 section
//! 9.2.4): the peer's kernel drops them, and a bridge there does not forward them. Called by
//! `check`.

use std::os::fd::AsFd as _;

use packetio::xdp::bpf::{self, INSN_BYTES};
use packetio::xdp::veth_redirects;
use rustix::io::Errno;

use super::{Dataplane, DataplaneError, XdpMode};

/// Number of frames in one test.
const FRAMES: u32 = 4;
/// Size of a frame in bytes.
const FRAME_BYTES: usize = 60;
/// `ETH_P_802_EX1`
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
const LICENSE: &[u8] = b"Dual MIT/GPL\0";
/// `bpf_redirect_map`
const REDIRECT_MAP: i32 = 51;

/// `return bpf_redirect_map(&nic, 0, XDP_ABORTED)`, for the map with this descriptor.
fn program(nic: i32) -> Vec<u8> {
    let instruction = |code: u8, registers: u8, immediate: i32| {
        let mut bytes = [code, registers, 0, 0, 0, 0, 0, 0];
        bytes[4..].copy_from_slice(&immediate.to_ne_bytes());
        bytes
    };
    let program: [[u8; INSN_BYTES]; 6] = [
        instruction(0x18, 0x11, nic), // r1 = map, in two instructions
        instruction(0, 0, 0),
        instruction(0xb7, 2, 0), // r2 = 0
        instruction(0xb7, 3, 0), // r3 = 0
        instruction(0x85, 0, REDIRECT_MAP),
        instruction(0x95, 0, 0), // return r0
    ];
    program.concat()
}

impl Dataplane {
    /// Checks that the other end of the NIC takes redirected frames. A NIC that is not a veth does;
    /// so does a veth in generic XDP, whose frames leave through the kernel's stack. `path=memif`
    /// redirects none.
    ///
    /// # Errors
    /// One line that says what to do.
    pub fn check_peer(&self) -> Result<(), String> {
        let is_native = self.mode != XdpMode::Generic;
        if self.nic.driver != "veth" || !is_native || self.frames.is_some() {
            return Ok(());
        }
        let taken = || {
            veth_redirects(&self.nic.name).map_err(|errno| format!("counters of the veth: {errno}"))
        };
        let before = taken()?;
        self.send_probes().map_err(|error| error.to_string())?;
        match taken()? > before {
            true => Ok(()),
            false => Err(format!(
                "the peer of the veth takes no redirected frames: it has neither an XDP program nor \
                 GRO (on the peer of {}: `ethtool -K PEER gro on`)",
                self.nic.name
            )),
        }
    }

    fn send_probes(&self) -> Result<(), DataplaneError> {
        let failed = |step: &'static str| move |errno: Errno| DataplaneError::io(step, errno);
        let nic = self.maps.map("nic")?.raw_fd();
        let program = bpf::load(&program(nic), LICENSE, "mux_probe")
            .map_err(|refused| failed("BPF_PROG_LOAD of mux_probe")(refused.errno))?;
        let mut frame = [0; FRAME_BYTES];
        frame[..6].copy_from_slice(&self.mac.0);
        frame[6..12].copy_from_slice(&self.mac.0);
        frame[12..14].copy_from_slice(&EXPERIMENT);
        bpf::live_run(program.as_fd(), &frame, FRAMES).map_err(failed("BPF_PROG_TEST_RUN"))
    }
}
