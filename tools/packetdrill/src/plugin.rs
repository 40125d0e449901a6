//! One instance of the plug-in: packetdrill makes one for each script.

use std::cell::Cell;
use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use millstream::{Clock, VirtualClock};
use posix::{Errno, Reply, Request};
use rustix::thread::gettid;

use crate::actor::Actor;
use crate::ask::{Answer, Asks, What, queue};
use crate::descriptors::Held;
use crate::invocation::{Invocation, scripts};
use crate::process_unsafe::{remove_at_exit, set_variable};
use crate::settings::Mirror;
use crate::shims::Shims;
use crate::world::World;

/// See the module's documentation.
pub struct Plugin {
    asks: Asks,
    thread: Mutex<Option<JoinHandle<()>>>,
    held: Held,
    is_real_time: bool,
    /// The value of `PATH` before our commands were put first.
    path_before: Option<OsString>,
}

thread_local! {
    /// End of the call in which this thread was blocked, in ns. Time may have moved since, but the
    /// thread's next question for the time is about that end.
    static ENDED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Number of instances so far, which is the index of the next script among packetdrill's arguments.
static INSTANCES: Mutex<usize> = Mutex::new(0);

impl Plugin {
    /// Starts the thread that owns the stack. The calling thread must be the one that runs the
    /// script.
    ///
    /// # Errors
    /// A line that names an invalid flag, or a resource that the stack could not get.
    pub fn new(flags: &str) -> Result<Self, String> {
        let invocation = invocation(flags)?;
        let held = Held::default();
        let mirror = Mirror::new(invocation.settings.clone());
        // Without a directory for them the host's commands must do.
        let shims = invocation.shims.then(Shims::new).and_then(Result::ok);
        let path_before = shims.as_ref().map(put_first);
        let clock = if invocation.is_real_time {
            Clock::System
        } else {
            Clock::Virtual(VirtualClock::new(START_NS))
        };
        let (asks, asked) = queue();
        let (driver, is_real_time) = (gettid(), invocation.is_real_time);
        let its_held = held.clone();
        let thread = std::thread::Builder::new()
            .name("millstream".to_owned())
            .spawn(move || {
                // Open the stack at the first call: the script's set-up has run by then, and its
                // settings hold from the start.
                let Ok(first) = asked.recv() else { return };
                match World::open(&invocation, clock, mirror, shims, its_held) {
                    Ok(world) => Actor::new(world, driver).run(first, &asked),
                    Err(reason) => first.answer(Answer::Never(reason)),
                }
            })
            .map_err(|error| format!("the stack's thread: {error}"))?;
        Ok(Self {
            asks,
            thread: Mutex::new(Some(thread)),
            held,
            is_real_time,
            path_before: path_before.flatten(),
        })
    }

    /// Whether `fd` is one of the stack's.
    pub fn is_ours(&self, fd: i32) -> bool {
        self.held.is_ours(fd)
    }

    /// Makes a socket call, and sleeps until it is over.
    ///
    /// # Errors
    /// The call's `errno`.
    pub fn call(&self, request: Request) -> Result<(i64, Reply), Errno> {
        match self.asks.ask(What::Call(request)) {
            Some(Answer::Call {
                result,
                reply,
                at_ns,
                has_blocked,
            }) => {
                if has_blocked && !self.is_real_time {
                    ENDED.set(Some(at_ns));
                }
                result.map(|value| (value, reply))
            }
            Some(Answer::Never(reason)) => {
                complain(&reason);
                Err(Errno::DEADLK)
            }
            _ => Err(Errno::NETDOWN),
        }
    }

    /// Lets a packet arrive at the stack.
    ///
    /// # Errors
    /// `EINVAL` if the bytes are no packet.
    pub fn inject(&self, packet: Vec<u8>) -> Result<(), Errno> {
        match self.asks.ask(What::Inject(packet)) {
            Some(Answer::Done { .. }) => Ok(()),
            Some(Answer::Never(reason)) => {
                complain(&reason);
                Err(Errno::INVAL)
            }
            _ => Err(Errno::NETDOWN),
        }
    }

    /// The next packet that leaves the stack, and its time in microseconds. If none can ever leave,
    /// the process ends, since packetdrill would ask for ever.
    pub fn next_packet(&self) -> (Vec<u8>, i64) {
        match self.asks.ask(What::Next) {
            Some(Answer::Packet { packet, at_ns }) => (packet, micros(at_ns)),
            Some(Answer::Never(reason)) => end(&reason),
            _ => end("no packet leaves: the stack is gone"),
        }
    }

    /// Lets time pass.
    pub fn sleep(&self, micros: u32) {
        let ns = u64::from(micros) * 1_000;
        if self.is_real_time {
            std::thread::sleep(std::time::Duration::from_nanos(ns));
        } else {
            self.asks.ask(What::Sleep { ns });
        }
    }

    /// The present time, in microseconds.
    pub fn now_micros(&self) -> i64 {
        if let Some(ended_ns) = ENDED.take()
            && !self.is_real_time
        {
            return micros(ended_ns);
        }
        match self.asks.ask(What::Now) {
            Some(Answer::Done { at_ns }) => micros(at_ns),
            Some(Answer::Never(reason)) => end(&reason),
            _ => end("no time passes: the stack is gone"),
        }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.asks.ask(What::Quit);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
        if let Some(path) = &self.path_before {
            set_variable("PATH", path);
        }
    }
}

fn invocation(flags: &str) -> Result<Invocation, String> {
    let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments: Vec<String> = arguments
        .split(|&byte| byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let number = {
        let mut instances = INSTANCES.lock().unwrap_or_else(PoisonError::into_inner);
        *instances += 1;
        *instances - 1
    };
    let script = scripts(&arguments).nth(number);
    let script = script.and_then(|path| std::fs::read(path).ok());
    let script = String::from_utf8_lossy(&script.unwrap_or_default()).into_owned();
    Invocation::new(&arguments, &script, flags)
}

/// Puts our commands before the host's, and returns the old value of `PATH`.
fn put_first(shims: &Shims) -> Option<OsString> {
    remove_at_exit(shims.directory().to_owned());
    let before = std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
    let mut path = shims.bin().into_os_string();
    path.push(":");
    path.push(&before);
    set_variable("PATH", &path);
    Some(before)
}

fn complain(reason: &str) {
    eprintln!("millstream: {reason}");
}

/// Ends the process with the status that packetdrill has for a failed script.
fn end(reason: &str) -> ! {
    complain(reason);
    std::process::exit(1)
}

fn micros(ns: u64) -> i64 {
    (ns / 1_000) as i64
}

/// Begin of virtual time in ns: some time after boot, like a kernel's.
const START_NS: u64 = 1_000_000_000_000;
const PATH_DEFAULT: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
