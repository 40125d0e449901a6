//! DPDK's testpmd as a child process with one memif port.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use packetio::memif::{MemifPort, MemifRole};

use crate::common::{until, wait_connected};

/// A running testpmd, which is killed when the value is dropped.
pub struct Testpmd {
    child: Child,
    log: PathBuf,
}

/// The program: `MILLSTREAM_TESTPMD`, or `dpdk-testpmd` in the path.
fn program() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("MILLSTREAM_TESTPMD") {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join("dpdk-testpmd"))
        .find(|file| file.is_file())
}

impl Testpmd {
    /// Starts testpmd with a memif port of `role` at `socket`, with further arguments for the
    /// device and for testpmd. `None` after printing the reason, if it is not installed.
    pub fn start(socket: &str, role: MemifRole, device: &str, arguments: &[&str]) -> Option<Self> {
        let Some(program) = program() else {
            let _ = writeln!(
                std::io::stderr(),
                "ignored: no dpdk-testpmd in PATH, nor named by MILLSTREAM_TESTPMD"
            );
            return None;
        };
        let role = match role {
            MemifRole::Server => "server",
            MemifRole::Client => "client",
        };
        let name = socket.trim_end_matches(".sock").rsplit('/').next().unwrap();
        let log = std::env::temp_dir().join(format!("{name}.log"));
        let output = File::create(&log).unwrap();
        let child = Command::new(program)
            .args([
                "--no-huge",
                "-m",
                "160",
                "--no-pci",
                "-l",
                "0-1",
                "--file-prefix",
                name,
            ])
            .arg(format!(
                "--vdev=net_memif0,role={role},socket={socket},socket-abstract=no{device}"
            ))
            .args([
                "--",
                "--total-num-mbufs=16384",
                "--no-mlockall",
                "--port-topology=loop",
                "--no-lsc-interrupt",
                "--no-flush-rx",
            ])
            .args(arguments)
            .stdin(Stdio::piped())
            .stderr(output.try_clone().unwrap())
            .stdout(output)
            .spawn();
        match child {
            Ok(child) => Some(Self { child, log }),
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "ignored: dpdk-testpmd: {error}");
                None
            }
        }
    }

    /// Turns `port` until both are connected. False, after printing the reason, if this testpmd
    /// lacks the memif driver.
    pub fn connect(&mut self, port: &mut MemifPort) -> bool {
        let mut exited = false;
        let connected = until(Duration::from_secs(60), || {
            exited = self.child.try_wait().unwrap().is_some();
            let _ = port.receive_nothing();
            port.is_connected() || exited
        });
        if exited {
            let log = self.output();
            assert!(
                log.contains("net_memif") && log.contains("ttach"),
                "testpmd failed:\n{log}"
            );
            let _ = writeln!(
                std::io::stderr(),
                "ignored: this dpdk-testpmd has no memif driver"
            );
            return false;
        }
        assert!(connected, "{}\n{}", port.last_reason(), self.output());
        wait_connected(port);
        true
    }

    /// Ends testpmd properly; returns its output.
    pub fn quit(mut self) -> String {
        let _ = self.child.stdin.take().unwrap().write_all(b"\n");
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.child.try_wait().unwrap().is_none() {
            assert!(
                Instant::now() < deadline,
                "testpmd does not end:\n{}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        self.output()
    }

    fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.output());
        }
        let _ = std::fs::remove_file(&self.log);
    }
}

/// Turns a port that is not connected.
trait ReceiveNothing {
    fn receive_nothing(&mut self) -> bool;
}

impl ReceiveNothing for MemifPort {
    fn receive_nothing(&mut self) -> bool {
        use packetio::Port;
        self.is_connected() || self.receive().is_ok_and(<[_]>::is_empty)
    }
}
