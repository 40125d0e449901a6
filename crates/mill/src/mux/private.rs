//! A service for one program: `mill run --workers` starts it, and it ends with the program's last
//! process.
//!
//! Owns the thread that watches the program. The service's process is not a child of the program,
//! since a program may wait for all of its children.

use std::io;
use std::process::Command;
use std::thread;
use std::time::Duration;

use packetio::mux::message::Query;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, setsid};

use super::ask;
use crate::failure::Failure;

/// Interval at which the service's applications are counted.
const LOOK: Duration = Duration::from_millis(500);
/// Consecutive looks without an application after which the service ends. A program that moves to
/// the background has no connection for a moment.
const IDLE_LOOKS_MAX: u32 = 4;

/// Starts this command again in a new session, without waiting for it.
pub(super) fn detach() -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::Run(format!("mux: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let arguments = std::env::args_os().skip(1);
    let mut command = Command::new(program);
    command.args(arguments).arg("--detached");
    command.spawn().map(drop).map_err(failed)
}

/// Closes the service's output once it is ready, and detaches it from the terminal.
pub(super) fn go_silent() {
    // Errors are ignored: the process may be a session leader already, or /dev/null may be missing.
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
        // A service that does not answer is ending already.
        let _ = ask::fetch(&socket, Query::Stop, ask::PATIENCE);
    };
    let thread = thread::Builder::new().name("mux-only-for".to_owned());
    thread
        .spawn(watch)
        .map(drop)
        .map_err(|error| failed(error.to_string()))
}
