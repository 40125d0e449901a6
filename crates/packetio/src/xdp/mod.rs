//! Placeholder: the AF_XDP backend (engineer G's).

use crate::open::OpenError;
use crate::port::Port;

/// How the XDP program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// Native, or generic where the driver has none.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's generic path (skb).
    Generic,
}

/// Whether the driver shares its buffers with us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zerocopy {
    /// If the driver can.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// `xdp:IFACE[,mode=auto|native|generic][,queues=N][,queue=K][,zerocopy=auto|off]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpOptions {
    /// The interface's name.
    pub interface: String,
    /// How the program is attached.
    pub mode: XdpMode,
    /// Queues to use; `None` for all that the interface has.
    pub queues: Option<usize>,
    /// The first (or only) queue; `None` for 0.
    pub queue: Option<usize>,
    /// Whether the driver shares its buffers with us.
    pub zerocopy: Zerocopy,
}

/// Opens queue `queue` of the interface.
///
/// # Errors
/// One line that says what and where.
pub fn open(options: &XdpOptions, queue: usize) -> Result<Box<dyn Port + Send>, OpenError> {
    let _ = queue;
    Err(OpenError::refused(
        format_args!("xdp:{}", options.interface),
        "xdp is not built in yet",
    ))
}
