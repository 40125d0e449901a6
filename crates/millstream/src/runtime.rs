//! The process's end of its stacks: opens the wire's queues, makes the stacks, starts the threads that turn them, and lets connections close when
//! it goes.

use std::sync::{Arc, Mutex, PoisonError};

use packetio::Port;
use packetio::spec::Backend;
use ring::trylock::TryLock;
use stack::Stack;
use stack::context::AppSide;

use crate::config::{Config, Crank};
use crate::context::Context;
use crate::crank::{CrankHandle, InlineCrank, SharedStack};
use crate::dedicated::StackThread;
use crate::error::Error;
use crate::limits::CONTEXTS_MAX;
use crate::watchdog::{self, Watch};

/// The stacks of a process on one wire. Contexts keep what they need of it alive, so it may be dropped while they are in use.
pub struct Runtime {
    contexts: Mutex<Vec<Option<Seat>>>,
    config: Arc<Config>,
}

/// A context that nobody has taken yet.
struct Seat {
    app: AppSide,
    crank: CrankHandle,
}

impl Runtime {
    /// Opens the wire and makes a stack for each context; with [`Crank::Dedicated`], starts their threads.
    ///
    /// # Errors
    /// [`Error`], in one line: what was wrong and where.
    pub fn new(config: Config) -> Result<Self, Error> {
        check(&config)?;
        let config = Arc::new(config);
        let seats: Result<Vec<_>, Error> = (0..config.contexts)
            .map(|index| seat(&config, open(&config, index)?, index).map(Some))
            .collect();
        Ok(Self {
            contexts: Mutex::new(seats?),
            config,
        })
    }

    /// As [`new`](Self::new), on ports that are open already, one for each context: [`Config::wire`] and [`Config::contexts`] have no say.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_ports(mut config: Config, ports: Vec<Box<dyn Port + Send>>) -> Result<Self, Error> {
        config.contexts = ports.len();
        check(&config)?;
        let config = Arc::new(config);
        let seats: Result<Vec<_>, Error> = ports
            .into_iter()
            .enumerate()
            .map(|(index, port)| seat(&config, port, index).map(Some))
            .collect();
        Ok(Self {
            contexts: Mutex::new(seats?),
            config,
        })
    }

    /// Takes context `index`, from 0 on. It stays on this thread.
    ///
    /// # Errors
    /// [`Error::Context`] if there is none of that number, or it was taken before.
    pub fn context(&self, index: usize) -> Result<Context, Error> {
        let mut seats = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        let place = seats
            .get_mut(index)
            .ok_or(Error::Context(index, "the runtime has fewer"))?;
        let seat = place
            .take()
            .ok_or(Error::Context(index, "was taken before"))?;
        Ok(Context::new(seat.app, seat.crank, self.config.clone()))
    }

    /// How many contexts there are.
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
    Ok(())
}

fn open(config: &Config, index: usize) -> Result<Box<dyn Port + Send>, Error> {
    let port = packetio::open(&config.wire, index)?;
    if let Backend::Xdp(options) = &config.wire.backend {
        let owned: Vec<_> = config
            .addresses
            .iter()
            .map(stack::IpCidr::address)
            .collect();
        packetio::xdp::set_owned(&options.interface, &owned)?;
    }
    Ok(port)
}

fn seat(config: &Arc<Config>, port: Box<dyn Port + Send>, index: usize) -> Result<Seat, Error> {
    let (stack, app) = Stack::new(config.stack(index), port, config.clock.now_ns())?;
    let crank = match config.crank {
        Crank::Inline => {
            let shared = Arc::new(SharedStack {
                stack: TryLock::new(stack),
                watch: Watch::new(),
            });
            let guarded = match config.clock.is_virtual() {
                true => None,
                false => Some(watchdog::guard(&shared)?),
            };
            // Neighbours ask and echo as soon as the wire is open, whether or not an owner has come yet.
            shared.watch.leave();
            CrankHandle::Inline(InlineCrank::new(shared, guarded, config))
        }
        Crank::Dedicated => {
            let (bell, app_bell) = (app.stack_bell.clone(), app.app_bell.clone());
            CrankHandle::Dedicated(StackThread::start(stack, bell, app_bell, config, index)?)
        }
    };
    Ok(Seat { app, crank })
}
