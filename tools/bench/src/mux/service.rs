//! `mill mux` on the server's end of a veth pair, as a process of its own.

use std::path::PathBuf;
use std::process::Command;

use crate::frame::namespace::{DEVICE, Veth};
use crate::frame::{Process, process};

/// A service; ended when dropped, and with it all that it built.
pub struct Service {
    namespace: String,
    socket: PathBuf,
    process: Option<Process>,
}

impl Service {
    /// Starts the service with this `--path` and waits until applications can connect.
    ///
    /// # Errors
    /// One line: why there is none.
    pub fn start(veth: &Veth, path: &str) -> Result<Self, String> {
        let name = format!("mst-{}-mux.sock", std::process::id());
        let mut service = Self {
            namespace: veth.server(),
            socket: std::env::temp_dir().join(name),
            process: None,
        };
        let socket = service.socket.display().to_string();
        let words = ["mux-service", DEVICE, "--socket", &socket, "--path", path];
        let mut process = Process::ourselves(Some(&service.namespace), &words)?;
        let said = process
            .line()
            .map_err(|cause| format!("mill mux: {cause}"))?;
        service.process = Some(process);
        match said.contains("is shared") {
            true => Ok(service),
            false => Err(format!("mill mux: {said}")),
        }
    }

    /// The wire of an application.
    pub fn wire(&self) -> String {
        format!("mux:{}", self.socket.display())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let Some(process) = self.process.take() else {
            return;
        };
        let Ok(program) = process::ourselves() else {
            return;
        };
        // A service that has ended already leaves nothing to be stopped.
        let asked = Command::new("ip")
            .args(["netns", "exec", &self.namespace])
            .arg(program)
            .args(["mux-service", "stop", "--socket"])
            .arg(&self.socket)
            .output();
        if asked.is_ok_and(|output| output.status.success()) {
            let _ = process.finish();
        }
    }
}
