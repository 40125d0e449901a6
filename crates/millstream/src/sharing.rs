//! The ways in which the contexts of a process share its wires: a port each, queues of one port
//! each, or a switch in front of one port.

use std::sync::Arc;

use packetio::mesh::{Mesh, MeshReceiver, MeshSender};
use packetio::shared_queues::SharedQueues;
use packetio::spec::Backend;
use packetio::spread::Spread;
use packetio::switch::{Switch, ports_of};
use packetio::{Port, WireSpec};
use stack::StackConfig;
use stack::config::OwnQueue;

use crate::config::Config;
use crate::error::Error;
use crate::open_wire::{open_near, open_on};

/// Queues of a wire that contexts share at most, if there are fewer contexts than that.
const QUEUES_SHARED_MAX: usize = 8;

/// The way in which contexts share one wire.
enum Share {
    /// Each context opens a port of its own.
    Own,
    /// A thread hands each frame to its owner.
    Switch(Arc<Switch>),
    /// Each context drives queues of its own.
    Queues(Arc<SharedQueues>),
}

/// See the module's documentation.
pub(crate) struct Sharing {
    wires: Vec<Share>,
    /// Passes frames between contexts that share queues.
    mesh: Option<Arc<Mesh>>,
    /// The secret of all stacks of a mesh, which have to hash flows alike.
    seed: Option<[u64; 4]>,
    /// Computes the context at which a flow's segments arrive, where the driver's hash is known.
    spread: Option<Arc<Spread>>,
}

/// The number of a context at the switches and the mesh.
pub(crate) struct Membership {
    switches: Vec<Arc<Switch>>,
    mesh: Option<Arc<Mesh>>,
    index: usize,
}

impl Membership {
    /// Notes that a socket of the context begins or ends listening at `port`.
    pub fn listens(&self, port: u16, on: bool) {
        for switch in &self.switches {
            switch.listens(self.index, port, on);
        }
        if let Some(mesh) = &self.mesh {
            mesh.listens(self.index, port, on);
        }
    }
}

impl Sharing {
    /// Opens what the contexts share. `are_all_coming`: all contexts are made at once.
    ///
    /// # Errors
    /// A wire that does not open.
    pub fn new(config: &Config, are_all_coming: bool) -> Result<Self, Error> {
        let wires = config.all_wires().enumerate();
        let wires: Result<Vec<_>, Error> = wires
            .map(|(index, wire)| share(config, index, wire, are_all_coming))
            .collect();
        let wires = wires?;
        let queues = wires.iter().filter_map(|share| match share {
            Share::Queues(queues) => Some(queues.frame_bytes()),
            Share::Own | Share::Switch(_) => None,
        });
        let frame_bytes = queues.max().filter(|_| config.contexts > 1);
        let mesh = match frame_bytes {
            Some(bytes) => {
                let flows = config.limits.flows_max() * config.contexts;
                Some(Arc::new(Mesh::new(config.contexts, bytes, flows)?))
            }
            None => None,
        };
        let seed = match (&mesh, config.seed) {
            (Some(_), None) => Some(stack::new_seed()?),
            (Some(_), seed) => seed,
            (None, _) => None,
        };
        Ok(Self {
            wires,
            spread: mesh.as_ref().and_then(|_| spread(config)),
            mesh,
            seed,
        })
    }

    /// An empty sharing, for contexts whose ports are open already.
    pub fn none() -> Self {
        Self {
            wires: Vec::new(),
            mesh: None,
            seed: None,
            spread: None,
        }
    }

    /// The ports of context `index`, one for each wire.
    ///
    /// # Errors
    /// A wire that does not open.
    pub fn ports(&self, config: &Config, index: usize) -> Result<Vec<Box<dyn Port + Send>>, Error> {
        let each = self.wires.iter().enumerate();
        each.map(|(wire, share)| match share {
            Share::Own => open_near(config, wire, index),
            Share::Switch(switch) => Ok(switch.member(index)?),
            Share::Queues(queues) => Ok(Box::new(queues.port(index)?) as Box<dyn Port + Send>),
        })
        .collect()
    }

    /// The context's ends of the mesh, if there is one.
    ///
    /// # Errors
    /// The context's last stack is still there.
    pub fn mesh_ends(&self, index: usize) -> Result<Option<(MeshSender, MeshReceiver)>, Error> {
        let ends = self.mesh.as_ref().map(|mesh| mesh.join(index));
        Ok(ends.transpose()?)
    }

    /// Completes a context's settings with its part: addresses on an Ethernet of the process's own,
    /// local ports on other shared wires.
    pub fn divide(&self, config: &Config, stack: &mut StackConfig, index: usize) {
        if self.wires.iter().all(|share| matches!(share, Share::Own)) {
            return;
        }
        match is_ethernet(config) {
            true => stack.addresses = config.addresses_of(index),
            false => stack.local_ports = ports_of(stack.local_ports, index, config.contexts),
        }
        // Stacks of a mesh hash flows alike.
        stack.seed = self.seed.or(stack.seed);
        stack.spread = self.spread.clone().map(|spread| OwnQueue {
            spread,
            queue: index,
        });
    }

    /// The number of a context at the switches and the mesh.
    pub fn membership(&self, index: usize) -> Membership {
        let switches = self.wires.iter().filter_map(|share| match share {
            Share::Switch(switch) => Some(switch.clone()),
            Share::Own | Share::Queues(_) => None,
        });
        Membership {
            switches: switches.collect(),
            mesh: self.mesh.clone(),
            index,
        }
    }
}

/// True for contexts on a loopback without a name, which are hosts on an Ethernet within the
/// process.
fn is_ethernet(config: &Config) -> bool {
    matches!(&config.wire.backend, Backend::Loopback(options) if options.name.is_empty())
}

/// The card's distribution of flows over the contexts. `None`: there are several wires, the
/// contexts drive only some of the queues, or the driver does not report it.
fn spread(config: &Config) -> Option<Arc<Spread>> {
    let Backend::Xdp(options) = &config.wire.backend else {
        return None;
    };
    let is_whole = config.further_wires.is_empty() && options.queue.is_none();
    let spread = packetio::xdp::spread(&options.interface).filter(|_| is_whole)?;
    let queues = packetio::xdp::queues(options).ok()?;
    let is_driven = spread.queues() <= queues.min(QUEUES_SHARED_MAX.max(config.contexts));
    is_driven.then(|| Arc::new(spread.among(config.contexts)))
}

/// Opens the way in which the contexts share a wire. Only the far side knows which queue a frame
/// takes, so the contexts have to drive all queues.
fn share(
    config: &Config,
    index: usize,
    wire: &WireSpec,
    are_all_coming: bool,
) -> Result<Share, Error> {
    let queues = match &wire.backend {
        Backend::Loopback(options) if options.name.is_empty() && config.contexts > 1 => {
            let switch = Switch::ethernet(options.mtu, config.contexts)?;
            return Ok(Share::Switch(Arc::new(switch)));
        }
        // Each context of a `mux` wire has a port of its own, and the service finds the owner of
        // each frame. Queue *k* of a named loopback talks to queue *k* of its other end.
        Backend::Loopback(_) | Backend::Mux(_) => return Ok(Share::Own),
        Backend::Memif(options) => options.queues,
        Backend::Xdp(options) => packetio::xdp::queues(options)?,
        Backend::Dpdk(options) => options.queues,
        Backend::Tap(options) => options.queues,
        Backend::Packet(options) => options.queues.unwrap_or(config.contexts),
    };
    if config.contexts == 1 && queues == 1 {
        return Ok(Share::Own);
    }
    let has_queue_each = queues >= config.contexts;
    let count = queues.min(QUEUES_SHARED_MAX.max(config.contexts));
    let opened = (0..count).map(|queue| {
        let home = has_queue_each.then_some(queue % config.contexts);
        open_on(config, index, queue, home)
    });
    let opened: Result<Vec<_>, Error> = opened.collect();
    let opened = opened?;
    Ok(match has_queue_each {
        true => {
            let queues = SharedQueues::new(opened, config.contexts, are_all_coming)?;
            Share::Queues(Arc::new(queues))
        }
        false => Share::Switch(Arc::new(Switch::start(opened, config.contexts)?)),
    })
}
