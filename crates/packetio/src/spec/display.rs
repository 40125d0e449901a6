//! Prints a wire in a form that parses to the same wire, without default values.

use std::fmt::{self, Display, Formatter};

use crate::dpdk::DpdkOptions;
use crate::fault::{FaultOptions, LineOptions, Ratio};
use crate::loopback::LoopbackOptions;
use crate::memif::{MemifOptions, MemifRole};
use crate::mux::MuxOptions;
use crate::packet::PacketOptions;
use crate::port::{ChecksumPolicy, MacAddr};
use crate::tap::TapOptions;
use crate::xdp::{Bulk, Take, XdpMode, XdpOptions, Zerocopy};

use super::{Backend, Bits, Bytes, Nanos, WireSpec};

impl Display for WireSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.backend {
            Backend::Xdp(o) => xdp(f, o)?,
            Backend::Memif(o) => memif(f, o)?,
            Backend::Mux(o) => mux(f, o)?,
            Backend::Dpdk(o) => dpdk(f, o)?,
            Backend::Tap(o) => tap(f, o)?,
            Backend::Packet(o) => packet(f, o)?,
            Backend::Loopback(o) => loopback(f, o)?,
        }
        match self.checksum {
            None => {}
            Some(ChecksumPolicy::Verify) => write!(f, ",checksum=verify")?,
            Some(ChecksumPolicy::AcceptPartial) => write!(f, ",checksum=partial")?,
            Some(ChecksumPolicy::Trust) => write!(f, ",checksum=trust")?,
        }
        if let Some(options) = &self.fault {
            fault(f, options)?;
        }
        if let Some(path) = &self.pcap {
            write!(f, ",pcap={}", path.display())?;
        }
        match &self.backend {
            // The last key, because its value is the rest of the line.
            Backend::Dpdk(o) if !o.eal.is_empty() => write!(f, ",eal={}", o.eal),
            _ => Ok(()),
        }
    }
}

/// Writes `,key=value` unless the value is the default.
fn key<T: Display + PartialEq>(
    f: &mut Formatter<'_>,
    name: &str,
    value: T,
    default: T,
) -> fmt::Result {
    match value == default {
        true => Ok(()),
        false => write!(f, ",{name}={value}"),
    }
}

fn option<T: Display>(f: &mut Formatter<'_>, name: &str, value: Option<T>) -> fmt::Result {
    match value {
        Some(value) => write!(f, ",{name}={value}"),
        None => Ok(()),
    }
}

fn mac(f: &mut Formatter<'_>, value: Option<MacAddr>) -> fmt::Result {
    let Some(MacAddr([a, b, c, d, e, g])) = value else {
        return Ok(());
    };
    write!(f, ",mac={a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
}

fn xdp(f: &mut Formatter<'_>, o: &XdpOptions) -> fmt::Result {
    write!(f, "xdp:{}", o.interface)?;
    match o.mode {
        XdpMode::Auto => {}
        XdpMode::Native => write!(f, ",mode=native")?,
        XdpMode::Generic => write!(f, ",mode=generic")?,
    }
    option(f, "queues", o.queues)?;
    option(f, "queue", o.queue)?;
    option(f, "ring", o.ring_slots)?;
    match o.zerocopy {
        Zerocopy::Auto => {}
        Zerocopy::Off => write!(f, ",zerocopy=off")?,
    }
    match o.bulk {
        Bulk::Auto => {}
        Bulk::Off => write!(f, ",bulk=off")?,
    }
    match o.take {
        Take::Tcp => write!(f, ",mirror"),
        Take::Owned | Take::All => Ok(()),
    }
}

fn memif(f: &mut Formatter<'_>, o: &MemifOptions) -> fmt::Result {
    let default = MemifOptions::default();
    write!(f, "memif:{}", o.path)?;
    match o.role {
        MemifRole::Server => {}
        MemifRole::Client => write!(f, ",role=client")?,
    }
    key(f, "id", o.id, default.id)?;
    option(f, "ring", o.ring_slots)?;
    key(f, "buffer", o.buffer_bytes, default.buffer_bytes)?;
    key(f, "queues", o.queues, default.queues)?;
    option(f, "secret", o.secret.as_ref())?;
    mac(f, o.mac)
}

fn mux(f: &mut Formatter<'_>, o: &MuxOptions) -> fmt::Result {
    write!(f, "mux:{}", o.path)?;
    option(f, "ring", o.ring_slots)?;
    option(f, "ports", o.ports)?;
    match o.has_bulk {
        true => Ok(()),
        false => write!(f, ",bulk=off"),
    }
}

fn dpdk(f: &mut Formatter<'_>, o: &DpdkOptions) -> fmt::Result {
    write!(f, "dpdk:{}", o.port)?;
    key(f, "queues", o.queues, 1)?;
    option(f, "mtu", o.mtu)?;
    offload(f, o.offload)?;
    option(f, "plugin", o.plugin.as_ref().map(|file| file.display()))
}

fn tap(f: &mut Formatter<'_>, o: &TapOptions) -> fmt::Result {
    write!(f, "tap:{}", o.name)?;
    mac(f, o.mac)?;
    option(f, "mtu", o.mtu)?;
    if o.up {
        write!(f, ",up=yes")?;
    }
    key(f, "queues", o.queues, 1)?;
    offload(f, o.offload)
}

fn offload(f: &mut Formatter<'_>, is_on: bool) -> fmt::Result {
    match is_on {
        true => Ok(()),
        false => write!(f, ",offload=off"),
    }
}

fn packet(f: &mut Formatter<'_>, o: &PacketOptions) -> fmt::Result {
    write!(f, "packet:{}", o.interface)?;
    mac(f, o.mac)?;
    if !o.promiscuous {
        write!(f, ",promiscuous=no")?;
    }
    option(f, "queues", o.queues)?;
    offload(f, o.offload)
}

fn loopback(f: &mut Formatter<'_>, o: &LoopbackOptions) -> fmt::Result {
    write!(f, "loopback")?;
    if !o.name.is_empty() {
        write!(f, ":{}", o.name)?;
    }
    mac(f, o.mac)?;
    let defaults = LoopbackOptions::default();
    key(f, "mtu", o.mtu, defaults.mtu)?;
    key(f, "batch", o.batch, defaults.batch)
}

fn fault(f: &mut Formatter<'_>, o: &FaultOptions) -> fmt::Result {
    write!(f, ",seed={}", o.seed)?;
    option(f, "slots", o.slots)?;
    if o.rx == o.tx {
        return line(f, "", &o.rx);
    }
    line(f, "rx.", &o.rx)?;
    line(f, "tx.", &o.tx)
}

fn line(f: &mut Formatter<'_>, side: &str, o: &LineOptions) -> fmt::Result {
    let mut ratio = |name: &str, value: Ratio| match value {
        Ratio::ZERO => Ok(()),
        value => write!(f, ",{side}{name}={value}"),
    };
    ratio("loss", o.loss)?;
    ratio("dup", o.duplicate)?;
    ratio("reorder", o.reorder)?;
    ratio("corrupt", o.corrupt)?;
    if o.delay_ns != 0 {
        write!(f, ",{side}delay={}", Nanos(o.delay_ns))?;
    }
    if o.jitter_ns != 0 {
        write!(f, ",{side}jitter={}", Nanos(o.jitter_ns))?;
    }
    if o.rate_bits != 0 {
        write!(f, ",{side}rate={}", Bits(o.rate_bits))?;
    }
    if o.limit_bytes != 0 {
        write!(f, ",{side}limit={}", Bytes(o.limit_bytes))?;
    }
    Ok(())
}
