//! A service for one program alone: `mill run --workers` starts it, and it ends with the last
//! process of the program.
//!
//! Owns the thread that watches the program. The service runs in a process of its own, which is no
//! child of the program's: a program may wait for all of its children.

use std::io;
use std::process::Command;
use std::thread;
use std::time::Duration;

use packetio::mux::message::Query;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, setsid};

use super::ask;
use crate::failure::Failure;

/// Time between two looks at the applications of the service.
const LOOK: Duration = Duration::from_millis(500);
/// The service ends when no application was there at so many looks, one after the other: a program
/// that goes to the background has no connection for a moment.
const IDLE_LOOKS_MAX: u32 = 4;

/// Starts this very command again, in a session of its own, and lets it go.
pub(super) fn detach() -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Run(format!("mux: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let arguments = std::env::args_os().skip(1);
    let mut command = Command::new(program);
    command.args(arguments).arg("--detached");
    command.spawn().map(drop).map_err(failed)
}

/// The service is ready: from now on nobody listens to what it says, and no terminal ends it.
pub(super) fn go_silent() {
    // A process that leads its session already, or that has no /dev/null, goes on as it is.
    let _ = setsid();
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Stops the service at `socket` when process `pid` and all applications are gone.
pub(super) fn end_after(pid: i32, socket: String) -> Result<(), Failure> {
    let failed = |what: String| Failure::Run(format!("mux: process {pid}: {what}"));
    let number = Pid::from_raw(pid).ok_or_else(|| failed("no process".to_owned()))?;
    let process = pidfd_open(number, PidfdFlags::empty());
    let process = process.map_err(|errno| failed(errno.to_string()))?;
    let watch = move || {
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        while poll(&mut ended, None).is_err() {}
        let mut idle = 0;
        while idle < IDLE_LOOKS_MAX {
            thread::sleep(LOOK);
            match ask::applications(&socket) {
                Ok(0) => idle += 1,
                Ok(_) => idle = 0,
                // The service has ended by itself.
                Err(_) => return,
            }
        }
        // A service that does not answer ends already.
        let _ = ask::fetch(&socket, Query::Stop);
    };
    let thread = thread::Builder::new().name("mux-only-for".to_owned());
    thread
        .spawn(watch)
        .map(drop)
        .map_err(|error| failed(error.to_string()))
}
