//! A listener that a program gives to another one, which it spawns: over `mux:`, where the other
//! program accepts, and over a wire of the first program's alone, where it cannot.

use std::process::Stdio;

use super::workers::Service;
use super::{NEAR, World, inside};
use crate::run::{self, Watched};

const PROGRAM: &str = include_str!("spawned.py");
/// A client that tries until the other program listens. It prints the answer.
const CLIENT: &str = "\
import socket, sys, time
for _ in range(100):
    try:
        near = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
        print(near.recv(100).decode())
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
";
/// The ways to spawn, with the ports of the listeners.
const WAYS: [(&str, u16); 4] = [
    ("spawn", 8101),
    ("vfork", 8102),
    ("confined", 8103),
    ("left", 8106),
];

pub(super) fn over_mux(world: &World) -> Result<(), String> {
    world.write("spawned.py", PROGRAM.as_bytes())?;
    let service = Service::start(world)?;
    let (mill, wire) = (
        world.mill.display().to_string(),
        format!("mux:{}", service.socket),
    );
    for (way, port) in WAYS {
        let (program, port) = (world.path("spawned.py"), port.to_string());
        let python = ["/usr/bin/python3", &program, NEAR, &port, way];
        let line = [&[&mill, "run", "--wire", &wire, "--"], &python[..]].concat();
        let mut command = inside(&world.near, &line);
        let mut program = Watched::start(command.stdout(Stdio::null()))?;
        let client = ["/usr/bin/python3", "-c", CLIENT, NEAR, &port];
        let said = run::output(&mut inside(&world.far, &client))?;
        if said.trim() != "by the other program" {
            return Err(format!("{way}: the client got {said:?}"));
        }
        if !program.wait()? {
            return Err(format!("{way}: the program fails"));
        }
    }
    Ok(())
}

/// Checks that `accept` fails in the other program, for a listener on the wire's address and for
/// one on all addresses. The other program has no privilege.
pub(super) fn refused(world: &World) -> Result<(), String> {
    world.write("spawned.py", PROGRAM.as_bytes())?;
    let program = world.path("spawned.py");
    for (address, port) in [(NEAR, "8104"), ("0.0.0.0", "8105")] {
        let line = ["/usr/bin/python3", &program, address, port, "refused"];
        let ended = run::outcome(&mut world.millstream(&line))?;
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        let logged = String::from_utf8_lossy(&ended.stderr).into_owned();
        if said.trim() != "EBADF" || !logged.contains("another process's stack: EBADF") {
            return Err(format!(
                "{address}: accept said {said:?}, and the log {logged:?}"
            ));
        }
    }
    Ok(())
}
