//! Calls on descriptors, processes, signals and waits. One program makes them on the kernel and on
//! Millstream, and its output must be the same.

use std::process::Stdio;

use super::{FAR, World};
use crate::run::{self, Watched};

const PROGRAM: &str = include_str!("calls.py");
const PEER: &str = include_str!("calls_peer.py");
const PEER_PORT: u16 = 8010;
const OWN_PORT: u16 = 8011;

pub(super) fn compared(world: &World) -> Result<(), String> {
    world.write("calls.py", PROGRAM.as_bytes())?;
    world.write("calls_peer.py", PEER.as_bytes())?;
    let (program, peer) = (world.path("calls.py"), world.path("calls_peer.py"));
    let (peer_port, own_port) = (PEER_PORT.to_string(), OWN_PORT.to_string());
    let mut command = world.kernel(&["/usr/bin/python3", &peer, FAR, &peer_port]);
    let _peer = Watched::start(command.stdin(Stdio::piped()))?;
    world.await_port(&world.far, FAR, PEER_PORT)?;
    let line = ["/usr/bin/python3", &program, FAR, &peer_port, &own_port];
    let wanted = run::output(&mut world.kernel(&line))?;
    let said = run::output(&mut world.millstream(&line))?;
    world.must_have_carried("tx_bytes", 1)?;
    let mut lines = wanted.lines().zip(said.lines());
    match lines.find(|(wanted, said)| wanted != said) {
        Some((wanted, said)) => Err(format!("the kernel says `{wanted}`, Millstream `{said}`")),
        None if wanted.lines().count() != said.lines().count() => {
            Err(format!("Millstream stops after: {:?}", said.lines().last()))
        }
        None => Ok(()),
    }
}
