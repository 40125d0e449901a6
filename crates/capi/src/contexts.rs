//! Contexts, found by the handle that C has.
//!
//! A handle is a number and never dereferenced, so a stale or invalid one only causes an errno. A
//! thread opens a context, which then belongs to the first thread that makes a call with it,
//! usually the same. The context's sockets live in thread-local storage.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millstream::Runtime;
use posix::{Descriptors, EpollEvent, Errno, LowestFree, PollFd, Sockets, number};

use crate::process;
use crate::signals_unsafe;
use crate::stats::Stats;

/// The handle of a context in C.
pub type Handle = usize;

/// A context that belongs to this thread.
pub struct OwnContext {
    handle: Handle,
    pub sockets: Sockets,
    /// Events of the last `mtcp_epoll_wait`; kept to avoid allocations.
    pub events: Vec<EpollEvent>,
    /// Entries of the last `mtcp_poll`; kept to avoid allocations.
    pub entries: Vec<PollFd>,
    /// Local addresses of connections, set by `mtcp_init_rss`.
    pub sources: Option<Sources>,
    /// `tcp_timeout` in seconds, set on every socket.
    pub timeout_s: u32,
    /// Largest number of descriptors.
    pub descriptors_max: u32,
    /// State of `stat_print`, if the configuration has it.
    pub stats: Option<Box<Stats>>,
}

/// A range of local addresses that connections use in turn.
#[derive(Clone, Copy)]
pub struct Sources {
    pub first: u32,
    pub count: u32,
    pub next: u32,
    /// The destination for which the stack itself chooses among them, with ports that suit it.
    pub pooled: Option<SocketAddrV4>,
}

impl Sources {
    /// All addresses.
    pub fn all(self) -> impl Iterator<Item = Ipv4Addr> {
        (0..self.count).map(move |at| Ipv4Addr::from(self.first.wrapping_add(at)))
    }

    /// The address of the next connection.
    pub fn take(&mut self) -> Ipv4Addr {
        let ip = self.first.wrapping_add(self.next % self.count);
        self.next = self.next.wrapping_add(1);
        ip.into()
    }
}

/// The process's record of a context.
struct Known {
    handle: Handle,
    index: usize,
    runtime: Arc<Runtime>,
    is_claimed: bool,
}

/// The contexts of the process.
static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// Handles are multiples of this, so that small numbers are not handles.
const HANDLE_STEP: usize = 0x1000;

thread_local! {
    static OWN: RefCell<Vec<OwnContext>> = const { RefCell::new(Vec::new()) };
    /// The parent's contexts in a child of `fork`; never dropped.
    static PARENTS: RefCell<ManuallyDrop<Vec<OwnContext>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

/// The parent's [`KNOWN`] in a child of `fork`; never dropped.
static PARENTS_KNOWN: Mutex<ManuallyDrop<Vec<Known>>> = Mutex::new(ManuallyDrop::new(Vec::new()));

fn known() -> MutexGuard<'static, Vec<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for OwnContext {
    /// Also runs when a thread ends without destroying its context.
    fn drop(&mut self) {
        known().retain(|one| one.handle != self.handle);
    }
}

/// Opens context `index` for the first thread that makes a call with it.
///
/// # Errors
/// Errors of [`process::runtime_of`]; `EEXIST`; the errno of a wire that does not open.
pub fn open(index: i32) -> Result<Handle, Errno> {
    let (index, runtime) = process::runtime_of(index)?;
    static SERIAL: Mutex<usize> = Mutex::new(0);
    if known().iter().any(|one| one.index == index) {
        return Err(Errno::EXIST);
    }
    // Waits of the context must not see a signal that came before it existed.
    signals_unsafe::interrupter(index)?.forget();
    if let Err(error) = runtime.open(index) {
        return Err(process::complain(format_args!("context {index}"), &error));
    }
    let mut serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    *serial += 1;
    let handle = *serial * HANDLE_STEP;
    known().push(Known {
        handle,
        index,
        runtime,
        is_claimed: false,
    });
    Ok(handle)
}

/// Keeps a child of `fork` from dropping its parent's contexts. Their memory and their wires are
/// shared with the parent, so dropping one at the end of a thread would close the parent's
/// connections.
pub fn leave_to_parent() {
    // If the thread is ending, its contexts are gone already.
    let _ = OWN.try_with(|own| {
        if let Ok(mut own) = own.try_borrow_mut() {
            let own = ManuallyDrop::new(std::mem::take(&mut *own));
            PARENTS.replace(own);
        }
    });
    // A lock that another thread of the parent held stays locked, since that thread does not exist
    // in the child.
    if let (Ok(mut known), Ok(mut parents)) = (KNOWN.try_lock(), PARENTS_KNOWN.try_lock()) {
        let known = ManuallyDrop::new(std::mem::take(&mut *known));
        *parents = known;
    }
}

/// Makes a call with a context of this thread.
pub fn with<T>(
    handle: Handle,
    call: impl FnOnce(&mut OwnContext) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut call = Some(call);
    loop {
        let outcome = OWN.try_with(|own| {
            // A call within a call, from a signal handler.
            let mut own = own.try_borrow_mut().map_err(|_| Errno::DEADLK)?;
            let Some(context) = own.iter_mut().find(|context| context.handle == handle) else {
                return Ok(None);
            };
            call.take().map(|call| call(context)).transpose()
        });
        match outcome {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => claim(handle)?,
            Ok(Err(errno)) => return Err(errno),
            Err(_) => return Err(Errno::PERM),
        }
    }
}

/// Gives this thread a context that no thread has used yet.
fn claim(handle: Handle) -> Result<(), Errno> {
    let (index, runtime) = {
        let mut known = known();
        let one = known.iter_mut().find(|one| one.handle == handle);
        let one = one.ok_or(Errno::INVAL)?;
        if std::mem::replace(&mut one.is_claimed, true) {
            return Err(Errno::PERM);
        }
        (one.index, one.runtime.clone())
    };
    let context = open_context(handle, index, &runtime);
    if context.is_err() {
        known().retain(|one| one.handle != handle);
    }
    let context = context?;
    OWN.with(|own| own.borrow_mut().push(context));
    Ok(())
}

fn open_context(handle: Handle, index: usize, runtime: &Runtime) -> Result<OwnContext, Errno> {
    let context = runtime
        .context(index)
        .map_err(|error| process::errno(&error))?;
    context.set_interrupter(signals_unsafe::interrupter(index)?);
    let conf = process::conf();
    let descriptors_max = conf.max_concurrency as u32;
    let numbers: Box<dyn Descriptors> = Box::new(ZeroLast::new(descriptors_max as usize));
    Ok(OwnContext {
        handle,
        sockets: Sockets::with_descriptors(context, numbers),
        events: Vec::new(),
        entries: Vec::new(),
        sources: None,
        timeout_s: u32::try_from(conf.tcp_timeout).unwrap_or(0),
        descriptors_max,
        stats: process::prints_statistics().then(|| Box::new(Stats::new(index))),
    })
}

/// Allocates the lowest free number from 1 on, and 0 last. Some programs take 0 for "no
/// descriptor", and have arrays with as many elements as there are descriptors.
struct ZeroLast {
    others: LowestFree,
    zero_is_used: bool,
}

impl ZeroLast {
    fn new(count: usize) -> Self {
        Self {
            others: LowestFree::from(1).limited(count - 1),
            zero_is_used: false,
        }
    }
}

impl Descriptors for ZeroLast {
    fn open(&mut self) -> Result<i32, Errno> {
        match self.others.open() {
            Err(_) if !std::mem::replace(&mut self.zero_is_used, true) => Ok(0),
            found => found,
        }
    }

    fn close(&mut self, fd: i32) {
        match fd {
            0 => self.zero_is_used = false,
            _ => self.others.close(fd),
        }
    }
}

/// Closes the sockets of a context, and the context.
pub fn destroy(handle: Handle) -> Result<(), Errno> {
    let own = OWN.try_with(|own| {
        let mut own = own.try_borrow_mut().map_err(|_| Errno::DEADLK)?;
        let place = own.iter().position(|context| context.handle == handle);
        Ok(place.map(|place| own.swap_remove(place)))
    });
    match own {
        // Drop it here, where nothing is borrowed: closing takes time.
        Ok(Ok(Some(context))) => {
            drop(context);
            return Ok(());
        }
        Ok(Err(errno)) => return Err(errno),
        Ok(Ok(None)) | Err(_) => {}
    }
    let mut known = known();
    let place = known.iter().position(|one| one.handle == handle);
    let place = place.ok_or(Errno::INVAL)?;
    if known[place].is_claimed {
        return Err(Errno::PERM);
    }
    let one = known.swap_remove(place);
    one.runtime.close(one.index);
    Ok(())
}

impl OwnContext {
    /// Begins a wait: prints statistics if they are due.
    pub fn begin_wait(&mut self) {
        if let Some(stats) = &mut self.stats {
            stats.print_if_due(&self.sockets);
        }
    }

    /// Sets the options of a new socket, by which the stack detects within `tcp_timeout` that a
    /// peer is gone.
    pub fn prepare(&mut self, fd: i32) {
        if self.timeout_s == 0 {
            return;
        }
        let ms = self.timeout_s.saturating_mul(1_000).min(i32::MAX as u32) as i32;
        for (level, name, value) in [
            (number::SOL_SOCKET, number::SO_KEEPALIVE, 1),
            (number::SOL_TCP, number::TCP_USER_TIMEOUT, ms),
        ] {
            let request = posix::Request::Setsockopt {
                fd,
                level,
                name,
                value: posix::layout::int(value),
            };
            // Errors cannot occur: every socket has these options.
            let _ = self.sockets.wait_for(&request);
        }
    }
}
