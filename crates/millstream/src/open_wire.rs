//! Opens the queues of the configured wires.

use packetio::mux::MuxOptions;
use packetio::spec::Backend;
use packetio::xdp::Take;
use packetio::{Port, WireSpec};

use crate::config::Config;
use crate::error::Error;
use crate::placement;

/// Opens the context's own queue on the context's CPU.
///
/// # Errors
/// The wire does not open.
pub(crate) fn open_near(
    config: &Config,
    wire: usize,
    index: usize,
) -> Result<Box<dyn Port + Send>, Error> {
    open_on(config, wire, index, Some(index))
}

/// Opens a queue of a wire on the CPU of the context that will drive it. The driver touches its
/// frames' memory at once, which places that memory on the CPU's node. `dpdk` places memory itself.
/// `dpdk` and `mux` start threads, which must not inherit the CPU.
///
/// # Errors
/// The wire does not open.
pub(crate) fn open_on(
    config: &Config,
    wire: usize,
    queue: usize,
    context: Option<usize>,
) -> Result<Box<dyn Port + Send>, Error> {
    let starts_threads =
        |wire: &WireSpec| matches!(wire.backend, Backend::Mux(_) | Backend::Dpdk(_));
    let starts_threads = config.all_wires().nth(wire).is_some_and(starts_threads);
    let cpu = context.and_then(|context| config.core(context));
    placement::on_cpu(cpu.filter(|_| !starts_threads), || {
        open(config, wire, queue)
    })?
}

/// Opens queue `index` of a wire.
fn open(config: &Config, wire: usize, index: usize) -> Result<Box<dyn Port + Send>, Error> {
    let addresses = config.addresses_on(wire);
    let spec = match wire.checked_sub(1) {
        None => &config.wire,
        Some(further) => &config.further_wires[further].wire,
    };
    let mut wire = spec.clone();
    if let Backend::Xdp(options) = &mut wire.backend {
        options.sockets = Some(config.limits.sockets_max);
    }
    if let Backend::Packet(options) = &mut wire.backend {
        options.queues.get_or_insert(config.contexts);
    }
    if let Backend::Mux(options) = &mut wire.backend {
        *options = mux_options(config, options);
    }
    let port = packetio::open(&wire, index)?;
    if let Backend::Xdp(options) = &spec.backend
        && options.take != Take::Tcp
    {
        let owned: Vec<_> = addresses.iter().map(stack::IpCidr::address).collect();
        packetio::xdp::set_owned(&options.interface, &owned)?;
    }
    Ok(port)
}

/// The options of a `mux` wire, completed with the runtime's limits.
pub(crate) fn mux_options(config: &Config, options: &MuxOptions) -> MuxOptions {
    MuxOptions {
        sockets: Some(config.limits.sockets_max),
        waiting: Some(config.limits.time_wait_max + config.limits.half_open_max),
        contexts: config.contexts,
        ..options.clone()
    }
}
