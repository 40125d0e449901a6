//! A thread that follows the kernel's addresses, routes and neighbours of one interface for the
//! stacks of this process, for the wire `xdp:IFACE,mirror`.
//!
//! A [`Follower`] owns the thread `mirror` with its [`Mirror`], and the process's ends of the
//! queues to its ports. The runtime makes one per wire.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{Leaving, Mirror, MirrorPort};
use crate::host::host_queues::{self, Link, new_bell, ring_bell, silence};
use crate::host::{Change, HostView, NoPorts, Wish};
use crate::notice;
use crate::open_error::OpenError;
use crate::port::{MacAddr, Port};

/// The state that callers and the thread share.
#[derive(Default)]
struct Books {
    view: HostView,
    links: Vec<Link>,
    is_over: bool,
}

struct Shared {
    interface: String,
    /// The only addresses that the stacks take, as the user named them; empty: all.
    only: Vec<IpAddr>,
    books: Mutex<Books>,
    /// Wakes the thread.
    bell: Arc<OwnedFd>,
}

/// See the module's documentation.
pub struct Follower(Arc<Shared>);

impl Follower {
    /// Starts to follow `interface` in the caller's network namespace. `only`: the addresses that
    /// the stacks take; empty: all of the interface.
    ///
    /// # Errors
    /// One line: no such interface, no permission, or no thread.
    pub fn start(interface: &str, only: Vec<IpAddr>) -> Result<Self, OpenError> {
        let wire = format!("xdp:{interface}");
        let failed = |step: &'static str| {
            let wire = wire.clone();
            move |errno: Errno| OpenError::io(wire, step, errno)
        };
        let mirror = Mirror::open(interface).map_err(failed("mirror"))?;
        let shared = Arc::new(Shared {
            interface: interface.to_owned(),
            only,
            books: Mutex::default(),
            bell: new_bell().map_err(failed("eventfd"))?,
        });
        for change in mirror.host().all() {
            shared.change(change);
        }
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("millstream-host".to_owned());
        thread
            .spawn(move || of_thread.run(mirror))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            .map_err(failed("thread millstream-host"))?;
        Ok(Self(shared))
    }

    /// The present addresses and routes.
    pub fn view(&self) -> HostView {
        self.0.books().view.clone()
    }

    /// Wraps a port so that the kernel is behind it; changes then come through [`Port::host`].
    ///
    /// # Errors
    /// The error of `eventfd`.
    pub fn port(&self, port: Box<dyn Port + Send>) -> Result<MirrorPort, OpenError> {
        let failed = |errno| OpenError::io(format!("xdp:{}", self.0.interface), "eventfd", errno);
        let (host_queues, link) = host_queues::pair(&self.0.bell).map_err(failed)?;
        self.0.books().links.push(link);
        Ok(MirrorPort::new(port, host_queues))
    }

    /// Takes packets for the addresses of the view from the kernel, from when the interface is
    /// open.
    ///
    /// # Errors
    /// The errors of [`crate::xdp::set_owned`].
    pub fn own(&self) -> Result<(), OpenError> {
        let owned = self.0.owned();
        crate::xdp::set_owned(&self.0.interface, &owned)
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Follower").field(&self.0.interface).finish()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.books().is_over = true;
        ring_bell(&self.0.bell);
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owned(&self) -> Vec<IpAddr> {
        let books = self.books();
        books.view.addresses.iter().map(|(one, _)| *one).collect()
    }

    /// The thread's loop, which ends when the follower is dropped.
    fn run(&self, mut mirror: Mirror) {
        let mut leaving = Leaving::default();
        loop {
            let mut fds = [
                PollFd::from_borrowed_fd(mirror.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN),
            ];
            // A signal may end the sleep; reading without news costs nothing.
            let _ = poll(&mut fds, leaving.next_end().map(until).as_ref());
            silence(&self.bell);
            if self.books().is_over {
                let asked: Vec<IpAddr> = mirror.neighbours().map(|(one, _)| one).collect();
                asked.into_iter().for_each(|one| mirror.forget(one));
                return;
            }
            match mirror.changes() {
                Ok(changes) => self.changed(&mirror, &mut leaving, changes),
                Err(errno) => notice::tell(|| {
                    format!(
                        "{}: the kernel's changes cannot be read: {errno}",
                        self.interface
                    )
                }),
            }
            self.lose(leaving.take_over(Instant::now()));
            self.grant_wishes(&mut mirror);
        }
    }

    /// Hands changes on. The loss of an address waits, since the address may come back.
    fn changed(&self, mirror: &Mirror, leaving: &mut Leaving, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::AddressRemoved { address, prefix } => {
                    leaving.begin(address, prefix, Instant::now());
                    continue;
                }
                Change::AddressAdded { address, .. } => leaving.end(address),
                // No address comes back without its interface.
                Change::Gone => self.lose(leaving.take_all()),
                _ => {}
            }
            self.hand_on(change);
            if let Change::Mac(mac) = change {
                self.announce(mirror, mac);
            }
        }
    }

    /// Hands on that these addresses, each with its prefix, are gone.
    fn lose(&self, addresses: Vec<(IpAddr, u8)>) {
        for (address, prefix) in addresses {
            self.hand_on(Change::AddressRemoved { address, prefix });
        }
    }

    /// Hands on a change. The XDP program takes packets for a new address before the stacks learn of
    /// it: otherwise the kernel would reset their first connections.
    fn hand_on(&self, change: Change) {
        let is_ours = self.change(change);
        if let Change::AddressAdded { .. } | Change::AddressRemoved { .. } = change {
            let owned = self.owned();
            if let Err(error) = crate::xdp::set_owned(&self.interface, &owned) {
                notice::tell(|| error.to_string());
            }
        }
        if is_ours {
            self.tell(change);
        }
    }

    /// Announces a new MAC address, so that neighbours do not use the old one until they doubt it.
    /// The stacks know the new one by now.
    fn announce(&self, mirror: &Mirror, mac: MacAddr) {
        let interface = &self.interface;
        match mirror.announce() {
            Ok(()) => {
                notice::tell(|| format!("{interface}: the interface has MAC address {mac} now"))
            }
            Err(errno) => notice::tell(|| {
                format!(
                    "{interface}: the interface has MAC address {mac} now, but its neighbours could \
                     not be told: {errno}"
                )
            }),
        }
    }

    /// Applies a change to the view. False: it concerns an address that the user left out.
    fn change(&self, change: Change) -> bool {
        let is_ours = match change {
            Change::AddressAdded { address, .. } | Change::AddressRemoved { address, .. } => {
                self.only.is_empty() || self.only.contains(&address)
            }
            _ => true,
        };
        if is_ours {
            self.books().view.apply(change);
        }
        is_ours
    }

    fn tell(&self, change: Change) {
        let mut books = self.books();
        books.links.retain(|link| !link.is_abandoned());
        for link in &mut books.links {
            link.tell(change);
        }
    }

    /// Handles the stacks' wishes: the kernel resolves next hops. There are no local ports to lend,
    /// and claims have no meaning here.
    fn grant_wishes(&self, mirror: &mut Mirror) {
        let mut asked = Vec::new();
        for link in &mut self.books().links {
            while let Some(wish) = link.next_wish() {
                match wish {
                    Wish::NextHop(address) => asked.push(address),
                    Wish::LocalPorts => link.lend(Err(NoPorts)),
                    Wish::ReturnPorts(..)
                    | Wish::Leave(_)
                    | Wish::Release(_)
                    | Wish::Accepts(_)
                    | Wish::Forget(..) => {}
                }
            }
        }
        for address in asked {
            // A next hop that cannot be requested counts as one that does not answer: the stack
            // gives up after its own time.
            if let Ok(Some(mac)) = mirror.resolve(address) {
                let mac = Some(mac);
                self.tell(Change::NextHop { address, mac });
            }
        }
    }
}

/// The time from now until `end`.
fn until(end: Instant) -> Timespec {
    let left = end.saturating_duration_since(Instant::now());
    Timespec {
        tv_sec: left.as_secs() as i64,
        tv_nsec: i64::from(left.subsec_nanos()),
    }
}
