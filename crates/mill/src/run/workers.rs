//! `mill run --workers`: starts a service for this program, through which its processes share a
//! wire.
//!
//! A stack belongs to one process, so a program with a master and workers needs `mill mux`. If none
//! runs, this module starts one on the wire's interface. Owns nothing: the service is a process
//! that ends with the program (`crate::mux`).

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use packetio::{Backend, WireSpec};

use crate::failure::Failure;

/// The wire of the program's processes. The service listens when this returns.
pub(super) fn share(wire: &WireSpec) -> Result<WireSpec, Failure> {
    let interface = match &wire.backend {
        Backend::Mux(_) => return Ok(wire.clone()),
        Backend::Packet(options) => &options.interface,
        Backend::Xdp(options) => &options.interface,
        _ => {
            let kind = wire.kind();
            return Err(Failure::Usage(format!(
                "run: --workers needs an interface of the kernel's, as packet:IFACE or xdp:IFACE; \
                 {kind} has none"
            )));
        }
    };
    let failed = |cause: String| Failure::Run(format!("run: --workers on {interface}: {cause}"));
    let pid = std::process::id().to_string();
    let socket = format!("@millstream-run-{pid}");
    let own = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(own);
    command.args(["mux", interface, "--socket", &socket, "--only-for", &pid]);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut starter = command.spawn().map_err(|error| failed(error.to_string()))?;
    let (stdout, stderr) = (starter.stdout.take(), starter.stderr.take());
    // The service is yet another process, which has inherited the pipes.
    starter.wait().map_err(|error| failed(error.to_string()))?;
    let mut ready = String::new();
    if let Some(stdout) = stdout {
        // A service that prints nothing here has printed its error on the other pipe.
        let _ = BufReader::new(stdout).read_line(&mut ready);
    }
    if ready.is_empty() {
        let mut said = String::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        let line = said.lines().last().unwrap_or("its service does not start");
        let cause = line.strip_prefix("mill: ").unwrap_or(line);
        return Err(failed(cause.to_owned()));
    }
    let shared = format!("mux:{socket}").parse::<WireSpec>();
    shared.map_err(|error| failed(error.to_string()))
}
