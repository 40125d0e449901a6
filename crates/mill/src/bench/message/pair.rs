//! Starts a server and a client as processes of their own, and reads what the client saw.
//!
//! The server's first line says where it listens; it leaves when its stdin closes, so that it cannot outlive us.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde::Deserialize;

use super::{MessageOptions, Seen, System, cpu};

/// Our addresses when the wire is a memif.
const SERVER_ADDRESS: &str = "10.93.0.2";
const CLIENT_ADDRESS: &str = "10.93.0.1";

/// The server's first line.
#[derive(Deserialize)]
struct Ready {
    address: std::net::SocketAddr,
}

/// A process that is gone when this is.
struct Side(Child);

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One run of one system.
pub fn run(system: System, options: &MessageOptions) -> Result<Seen, String> {
    let socket = std::env::temp_dir().join(format!("mst-{}-message.sock", std::process::id()));
    let socket_text = socket.display().to_string();
    let seen = run_over(system, options, &socket_text);
    let _ = std::fs::remove_file(&socket);
    seen
}

fn run_over(system: System, options: &MessageOptions, socket: &str) -> Result<Seen, String> {
    let mut server = start(&server_arguments(system, options, socket))?;
    let ready: Ready = first_line(&mut server, "server")?;
    let cpu_from_ns = cpu::time_ns(server.0.id());
    let mut client = start(&client_arguments(system, options, socket, &ready))?;
    let mut seen: Seen = first_line(&mut client, "client")?;
    let cpu_ns = cpu::time_ns(server.0.id()) - cpu_from_ns;
    seen.server_cpu_us = cpu_ns as f64 / 1e3 / seen.transactions_all.max(1) as f64;
    let status = client.0.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("client: {status}"));
    }
    Ok(seen)
}

fn server_arguments(system: System, options: &MessageOptions, socket: &str) -> Vec<String> {
    let mut words = wire(
        system,
        &format!("memif:{socket},role=server"),
        SERVER_ADDRESS,
    );
    words.extend(["--role", "server", "--core"].map(str::to_owned));
    words.push(options.server_core.to_string());
    words.push("--connections".to_owned());
    words.push(options.connections.to_string());
    words
}

fn client_arguments(
    system: System,
    options: &MessageOptions,
    socket: &str,
    ready: &Ready,
) -> Vec<String> {
    let mut words = wire(
        system,
        &format!("memif:{socket},role=client"),
        CLIENT_ADDRESS,
    );
    words.extend(["--role", "client", "--core"].map(str::to_owned));
    words.push(options.client_core.to_string());
    for (name, value) in [
        ("--server", ready.address.to_string()),
        ("--seconds", options.seconds.to_string()),
        ("--warm-up", options.warm_up.to_string()),
        ("--connections", options.connections.to_string()),
    ] {
        words.extend([name.to_owned(), value]);
    }
    words
}

fn wire(system: System, memif: &str, address: &str) -> Vec<String> {
    let words = match system {
        System::Kernel => vec!["--wire", "kernel", "--addr", "127.0.0.1/8"],
        System::Inline => vec!["--wire", memif, "--crank", "inline"],
        System::Dedicated => vec!["--wire", memif, "--crank", "dedicated"],
    };
    let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    if system != System::Kernel {
        words.extend(["--addr".to_owned(), format!("{address}/24")]);
    }
    words
}

fn start(arguments: &[String]) -> Result<Side, String> {
    let program = std::env::current_exe().map_err(|error| format!("our own program: {error}"))?;
    let mut command = Command::new(program);
    command.args(["bench", "message-side"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().map(Side).map_err(|error| error.to_string())
}

fn first_line<T: for<'a> Deserialize<'a>>(side: &mut Side, name: &str) -> Result<T, String> {
    let stdout = side.0.stdout.take().ok_or("no stdout")?;
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .map_err(|error| format!("{name}: {error}"))?;
    if line.is_empty() {
        return Err(format!("{name}: ended without a word on stdout"));
    }
    serde_json::from_str(&line).map_err(|error| format!("{name}: {error}: {line}"))
}
