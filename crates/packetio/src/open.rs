//! Opening a port from a wire's specification.
//!
//! `millstream::Runtime` calls it for each context; so does `mill wire`.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::fault::Fault;
use crate::open_error::OpenError;
use crate::packet::Packet;
use crate::pcap::Pcap;
use crate::port::{Capabilities, ChecksumPolicy, Port};
use crate::spec::{Backend, WireSpec};
use crate::tap::Tap;
use crate::{dpdk, loopback, memif, mux, xdp};

/// Opens queue `queue` of a wire: the backend, wrapped in faults, wrapped in the capture, which
/// therefore sees what the stack sees.
///
/// Call it on a thread in the wanted network namespace. The wrappers of queue K > 0 use the seed
/// plus K, and the file name with `.K` appended.
///
/// # Errors
/// [`OpenError`]: one line that names cause and place.
pub fn open(spec: &WireSpec, queue: usize) -> Result<Box<dyn Port + Send>, OpenError> {
    let mut port: Box<dyn Port + Send> = match &spec.backend {
        Backend::Xdp(options) => xdp::open(options, queue)?,
        Backend::Memif(options) => memif::open(options, queue)?,
        Backend::Mux(options) => Box::new(mux::open(options, queue)?),
        Backend::Dpdk(options) => dpdk::open(options, queue)?,
        Backend::Tap(options) => Box::new(Tap::open(options, queue)?),
        Backend::Packet(options) => Box::new(Packet::open(options, queue)?),
        Backend::Loopback(options) => Box::new(loopback::open(options, queue)?),
    };
    if let Some(policy) = spec.checksum {
        port = Box::new(WithPolicy::new(port, policy));
    }
    if let Some(options) = &spec.fault {
        let mut options = options.clone();
        options.seed = options.seed.wrapping_add(queue as u64);
        port = Box::new(Fault::new(port, &options));
    }
    if let Some(path) = &spec.pcap {
        let path = numbered(path, queue);
        let pcap = Pcap::new(port, &path).map_err(|e| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            OpenError::io(spec, format!("create {}", path.display()), errno)
        })?;
        port = Box::new(pcap);
    }
    Ok(port)
}

fn numbered(path: &Path, queue: usize) -> PathBuf {
    if queue == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{queue}"));
    name.into()
}

/// A port with the checksum policy that the user set.
struct WithPolicy<P> {
    inner: P,
    capabilities: Capabilities,
}

impl<P: Port> WithPolicy<P> {
    fn new(inner: P, policy: ChecksumPolicy) -> Self {
        let mut capabilities = inner.capabilities().clone();
        capabilities.rx_checksum = policy;
        Self {
            inner,
            capabilities,
        }
    }
}

impl<P: Port> Port for WithPolicy<P> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    crate::forward_port!(self => self.inner; receive release drain waiting accept_merged
        reserve reserved send prepare_wait finish_wait poll_fds deadline_ns host counters);
}
