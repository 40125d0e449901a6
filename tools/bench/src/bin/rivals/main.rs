//! `rivals`: systems that `cargo xtask bench` compares Millstream with, namely the kernel through
//! io_uring, and smoltcp. They need libraries that the product shall not depend on.
//!
//! `cargo xtask bench` builds this program and `bench` into the same directory, where `bench` finds
//! and starts it. It talks to `bench` as the other sides do: a server prints its address. A client
//! prints that it is ready, and its result at the end.

mod ring_unsafe;
mod smoltcp_pair;
mod uring;

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use bench::measure::Plan;
use clap::{Parser, Subcommand, ValueEnum};

/// Systems to compare Millstream with.
#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    rival: Rival,
}

#[derive(Subcommand)]
enum Rival {
    /// The kernel's sockets through io_uring
    Uring {
        #[command(flatten)]
        plan: Plan,
        /// The side to play
        #[arg(long, value_enum)]
        role: Role,
        /// The CPU to run on
        #[arg(long)]
        core: usize,
        /// Address of the server; for the client only
        #[arg(long)]
        server: Option<SocketAddr>,
        /// Port to listen at, which another process listens at too; for the server only
        #[arg(long, default_value_t = 0)]
        port: u16,
    },
    /// Say which versions of the libraries were built in
    Versions,
    /// Two smoltcp interfaces in one thread
    Smoltcp {
        #[command(flatten)]
        plan: Plan,
    },
    /// One long transfer between two smoltcp interfaces in one thread
    SmoltcpBulk {
        /// Bytes of an IP packet
        #[arg(long, default_value_t = 1500)]
        mtu: usize,
        /// Seconds that are counted, after the warm-up
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        /// Seconds of warm-up before that
        #[arg(long, default_value_t = 1.0)]
        warm_up: f64,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Server,
    Client,
}

fn main() -> ExitCode {
    let line = Line::parse();
    let outcome = match &line.rival {
        Rival::Uring {
            plan,
            role,
            core,
            server,
            port,
        } => pin(*core).and_then(|()| match (role, server) {
            (Role::Server, _) => uring::server::serve(plan, *port),
            (Role::Client, Some(server)) => uring::client::load(plan, *server),
            (Role::Client, None) => Err(io::Error::other("--server is missing")),
        }),
        Rival::Versions => {
            println!("{}", versions());
            Ok(())
        }
        Rival::SmoltcpBulk {
            mtu,
            seconds,
            warm_up,
        } => smoltcp_pair::bulk(*mtu, *warm_up, *seconds),
        Rival::Smoltcp { plan } => smoltcp_pair::run(plan),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rivals: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Versions of the measured libraries, from the lock file.
fn versions() -> String {
    let lock = include_str!("../../../../../Cargo.lock");
    let version = |name: &str| {
        let at = lock.find(&format!("name = \"{name}\"\nversion = \""));
        let text = at.and_then(|at| lock[at..].split('"').nth(3));
        format!("{name} {}", text.unwrap_or("of a version unknown"))
    };
    [version("smoltcp"), version("io-uring")].join(", ")
}

fn pin(core: usize) -> io::Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &cores)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn lock_file_names_what_is_measured() {
        let said = super::versions();
        assert!(said.contains("smoltcp 0."), "{said}");
        assert!(!said.contains("unknown"), "{said}");
    }
}
