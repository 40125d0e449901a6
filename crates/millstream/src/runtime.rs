//! A process's stacks. A runtime opens the wire's queues, makes the stacks, starts the threads that
//! turn them, and closes connections when it is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use packetio::mesh::{MeshReceiver, MeshSender};
use packetio::mirror::Follower;
use packetio::signals_unsafe::BlockedSignals;
use packetio::spec::Backend;
use packetio::xdp::{Take, XdpOptions};
use packetio::{Port, WireSpec};
use ring::trylock::TryLock;
use stack::context::AppSide;
use stack::{ConfigError, Stack, StackConfig};

use crate::config::{Config, Crank};
use crate::context::Context;
use crate::crank;
use crate::error::Error;
use crate::host_view;
use crate::lease::Lease;
use crate::limits::CONTEXTS_MAX;
use crate::mux_context::{self, MuxContext};
use crate::observed;
use crate::open_wire::mux_options;
use crate::placement;
use crate::shared_stack::{SharedStack, Watch};
use crate::sharing::Sharing;
use crate::watchdog;

/// The stacks of a process on its wires. Contexts keep alive what they need, so the runtime may be
/// dropped before them.
///
/// ```
/// use millstream::{Config, Runtime};
/// let mut config = Config::new("loopback:".parse()?);
/// config.addresses.push("10.0.0.1/24".parse()?);
/// let runtime = Runtime::new(config)?;
/// let context = runtime.context(0)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Runtime {
    contexts: Mutex<Vec<ContextState>>,
    config: Arc<Config>,
    /// Contexts are opened on demand, and again after their last user has gone.
    is_lazy: bool,
    /// The parts of the wires that several contexts share.
    sharing: Sharing,
    /// Copies the kernel's addresses, routes and neighbours into the stacks, on a wire with
    /// `mirror`.
    mirror: Option<Arc<Follower>>,
}

/// The state of a context.
enum ContextState {
    Closed,
    Waiting(Box<OpenContext>),
    /// The context is in use while the lease is held.
    Taken(Weak<Lease>),
}

/// An open context that was not taken yet.
struct OpenContext {
    app: AppSide,
    crank: crank::Crank,
}

impl Runtime {
    /// Opens the wire and makes a stack for each context; with [`Crank::Dedicated`], starts a
    /// thread for each.
    ///
    /// # Errors
    /// [`Error`], in one line with cause and place.
    ///
    /// ```
    /// # use millstream::{Config, Runtime};
    /// let mut config = Config::new("loopback:".parse()?);
    /// config.addresses.push("10.0.0.1/24".parse()?);
    /// assert_eq!(Runtime::new(config)?.contexts(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(config: Config) -> Result<Self, Error> {
        check(&config)?;
        let (sharing, mirror) = wires(&config, true)?;
        let runtime = Self {
            contexts: Mutex::new((0..config.contexts).map(|_| ContextState::Closed).collect()),
            sharing,
            mirror,
            config: Arc::new(config),
            is_lazy: false,
        };
        for index in 0..runtime.config.contexts {
            runtime.open(index)?;
        }
        Ok(runtime)
    }

    /// Like [`new`](Self::new), but [`open`](Self::open) and [`context`](Self::context) open a
    /// context's queue and make its stack. They do so again after the context and all of its
    /// sockets are gone.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new). If contexts do not share the wire, errors of the wire come
    /// from `open` and `context`.
    ///
    /// ```
    /// # use millstream::{Config, Runtime};
    /// let mut config = Config::new("loopback:".parse()?);
    /// config.addresses.push("10.0.0.1/24".parse()?);
    /// let runtime = Runtime::lazy(config)?;
    /// let context = runtime.context(0)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lazy(config: Config) -> Result<Self, Error> {
        check(&config)?;
        let places = (0..config.contexts).map(|_| ContextState::Closed).collect();
        let (sharing, mirror) = wires(&config, false)?;
        Ok(Self {
            contexts: Mutex::new(places),
            sharing,
            mirror,
            config: Arc::new(config),
            is_lazy: true,
        })
    }

    /// Opens context `index`, if it is closed, so that any thread can take it.
    ///
    /// # Errors
    /// The errors of [`context`](Self::context).
    ///
    /// ```
    /// # use millstream::{Config, Runtime};
    /// # let mut config = Config::new("loopback:".parse()?);
    /// # config.addresses.push("10.0.0.1/24".parse()?);
    /// let runtime = Runtime::lazy(config)?;
    /// runtime.open(0)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(&self, index: usize) -> Result<(), Error> {
        self.opened(&mut self.places(), index)
    }

    /// Closes a context that was opened but not taken.
    ///
    /// ```
    /// # use millstream::{Config, Runtime};
    /// # let mut config = Config::new("loopback:".parse()?);
    /// # config.addresses.push("10.0.0.1/24".parse()?);
    /// let runtime = Runtime::lazy(config)?;
    /// runtime.open(0)?;
    /// runtime.close(0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self, index: usize) {
        if let Some(place @ ContextState::Waiting(_)) = self.places().get_mut(index) {
            *place = ContextState::Closed;
        }
    }

    /// The configuration of a context's stack. On a shared wire each context has local ports of its
    /// own; on the process's own Ethernet each has an address of its own.
    fn stack_config(&self, index: usize) -> Result<StackConfig, Error> {
        let mut stack = self.config.stack(index);
        if let Backend::Mux(options) = &self.config.wire.backend {
            let options = mux_options(&self.config, options);
            let host = packetio::mux::host(&options)?;
            mux_context::complete(&mut stack, &host, &options, index)?;
        }
        if let Some(mirror) = &self.mirror {
            host_view::take(&mut stack, mirror.view());
        }
        self.sharing.divide(&self.config, &mut stack, index);
        Ok(stack)
    }

    fn places(&self) -> MutexGuard<'_, Vec<ContextState>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self, places: &mut [ContextState], index: usize) -> Result<(), Error> {
        let place = places
            .get_mut(index)
            .ok_or(Error::Context(index, "the runtime has fewer"))?;
        let is_free = match place {
            ContextState::Waiting(_) => return Ok(()),
            ContextState::Closed => true,
            ContextState::Taken(lease) => self.is_lazy && lease.strong_count() == 0,
        };
        if !is_free {
            return Err(Error::Context(index, "was taken before"));
        }
        let _blocked = BlockedSignals::new();
        let open = self.open_stack(index)?;
        *place = ContextState::Waiting(Box::new(open));
        Ok(())
    }

    /// Opens a context's ports, and makes its stack.
    fn open_stack(&self, index: usize) -> Result<OpenContext, Error> {
        let mut ports = Vec::new();
        for port in self.sharing.ports(&self.config, index)? {
            ports.push(match &self.mirror {
                Some(mirror) => {
                    mirror.own()?;
                    Box::new(mirror.port(port)?)
                }
                None => port,
            });
        }
        let stack = self.stack_config(index)?;
        let mesh = self.sharing.mesh_ends(index)?;
        open_context(&self.config, stack, (ports, mesh), index)
    }

    /// Like [`new`](Self::new), on open ports, one for each context. [`Config::wire`] and
    /// [`Config::contexts`] are ignored.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    ///
    /// ```
    /// # use millstream::{Clock, Config, Runtime};
    /// let (near, far) = packetio::ip_wire::pair(1500, Clock::System)?;
    /// let mut config = Config::new("loopback:unused".parse()?);
    /// config.addresses.push("10.0.0.1/24".parse()?);
    /// let runtime = Runtime::with_ports(config, vec![Box::new(near)])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_ports(mut config: Config, ports: Vec<Box<dyn Port + Send>>) -> Result<Self, Error> {
        config.contexts = ports.len();
        check(&config)?;
        let config = Arc::new(config);
        let opened: Result<Vec<_>, Error> = ports
            .into_iter()
            .enumerate()
            .map(|(index, port)| {
                let _blocked = BlockedSignals::new();
                let open = open_context(&config, config.stack(index), (vec![port], None), index)?;
                Ok(ContextState::Waiting(Box::new(open)))
            })
            .collect();
        Ok(Self {
            contexts: Mutex::new(opened?),
            config,
            is_lazy: false,
            sharing: Sharing::none(),
            mirror: None,
        })
    }

    /// Takes context `index`, counted from 0. The context stays on this thread. If the context has
    /// a CPU ([`Config::cores`]), this thread is bound to it.
    ///
    /// # Errors
    /// [`Error::Context`] if there is no such context or it is taken; [`Error::Cpu`] if the process
    /// may no longer use its CPU.
    ///
    /// ```
    /// # use millstream::{Config, Runtime};
    /// # let mut config = Config::new("loopback:".parse()?);
    /// # config.addresses.push("10.0.0.1/24".parse()?);
    /// let runtime = Runtime::new(config)?;
    /// let context = runtime.context(0)?;
    /// assert!(runtime.context(0).is_err(), "taken");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn context(&self, index: usize) -> Result<Context, Error> {
        let mut places = self.places();
        self.opened(&mut places, index)?;
        let mux = match &self.config.wire.backend {
            Backend::Mux(options) => {
                let host = packetio::mux::host(&mux_options(&self.config, options))?;
                Some(MuxContext::new(host, index))
            }
            _ => None,
        };
        let lease = Arc::new(Lease {
            member: self.sharing.membership(index),
            mux,
            _mirror: self.mirror.clone(),
        });
        self.config.core(index).map_or(Ok(()), placement::bind)?;
        let taken = ContextState::Taken(Arc::downgrade(&lease));
        match std::mem::replace(&mut places[index], taken) {
            ContextState::Waiting(open) => {
                let OpenContext { app, crank } = *open;
                let config = self.config.clone();
                Ok(Context::new(index, app, crank, config, lease))
            }
            _ => Err(Error::Context(index, "was taken before")),
        }
    }

    /// The number of contexts.
    ///
    /// ```
    /// # use millstream::{Config, Runtime};
    /// # let mut config = Config::new("loopback:".parse()?);
    /// # config.addresses.push("10.0.0.1/24".parse()?);
    /// config.contexts = 2;
    /// assert_eq!(Runtime::new(config)?.contexts(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn contexts(&self) -> usize {
        self.config.contexts
    }
}

fn check(config: &Config) -> Result<(), Error> {
    if config.contexts == 0 || config.contexts > CONTEXTS_MAX {
        return Err(Error::Contexts(config.contexts));
    }
    if config.clock.is_virtual() && config.crank != Crank::Inline {
        return Err(Error::VirtualClock);
    }
    placement::check(&config.cores, config.contexts)?;
    if !config.further_wires.is_empty() && config.all_wires().any(WireSpec::has_host) {
        return Err(Error::HostBesideOthers);
    }
    if !config.tcp.knows_congestion(config.tcp.congestion) {
        return Err(Error::Congestion(config.tcp.congestion.name()));
    }
    Ok(())
}

/// The parts of the wires that contexts share, `at_once` or each when its context opens, and the
/// mirror.
fn wires(config: &Config, at_once: bool) -> Result<(Sharing, Option<Arc<Follower>>), Error> {
    let _blocked = BlockedSignals::new();
    Ok((Sharing::new(config, at_once)?, mirror(config)?))
}

/// Starts the thread that follows the kernel, on a wire with `mirror`. Addresses that the user gave
/// select from the interface's addresses.
fn mirror(config: &Config) -> Result<Option<Arc<Follower>>, Error> {
    let Backend::Xdp(XdpOptions {
        interface,
        take: Take::Tcp,
        ..
    }) = &config.wire.backend
    else {
        return Ok(None);
    };
    let only = config.addresses.iter().map(stack::IpCidr::address);
    let follower = Follower::start(interface, only.collect())?;
    Ok(Some(Arc::new(follower)))
}

/// A context's ends of the mesh between contexts.
type MeshEnds = Option<(MeshSender, MeshReceiver)>;

fn open_context(
    config: &Arc<Config>,
    stack: StackConfig,
    (ports, mesh): (Vec<Box<dyn Port + Send>>, MeshEnds),
    index: usize,
) -> Result<OpenContext, Error> {
    let made = || Stack::among_others(stack, ports, mesh, config.clock.now_ns());
    let (mut stack, app) = placement::on_cpu(config.core(index), made)?.map_err(|error| {
        // The error names the huge pages that all remaining contexts need, not this one's only.
        Error::Stack(match error {
            ConfigError::HugePages(missing) => missing.times(config.contexts - index).into(),
            error => error,
        })
    })?;
    observed::join(&mut stack, &app.stack_bell, config, index);
    let shared = Arc::new(SharedStack {
        stack: TryLock::new(stack),
        watch: Watch::new(),
    });
    let guarded = match config.crank {
        _ if config.clock.is_virtual() => None,
        Crank::Inline => Some(watchdog::guard(&shared)?),
        Crank::Dedicated => {
            let cpu = config.core(index);
            Some(watchdog::guard_alone(&shared, index, cpu)?)
        }
    };
    // Neighbours send ARP requests and pings as soon as the wire is open, so the watchdog turns the
    // stack until a thread takes the context.
    shared.watch.leave();
    let crank = crank::Crank::new(shared, guarded, config);
    Ok(OpenContext { app, crank })
}
