//! Servers and clients on the run-times of other languages: Python's asyncio, node, and Java's NIO.
//!
//! The source files are written into the world's directory. Each program has its own loop around
//! epoll, threads, and pipes or eventfds beside its sockets.

use super::{FAR, FILE_BYTES, World};
use crate::run;

const ASYNCIO: &str = include_str!("asyncio_server.py");
const NODE_SERVER: &str = include_str!("node_server.js");
const NODE_CLIENT: &str = include_str!("node_client.js");
const JAVA: &str = include_str!("NioServer.java");

pub(super) fn asyncio(world: &World) -> Result<(), String> {
    is_good_server(world, "python3", "asyncio_server.py", ASYNCIO, 8003)
}

pub(super) fn node_server(world: &World) -> Result<(), String> {
    is_good_server(world, "node", "node_server.js", NODE_SERVER, 8004)
}

pub(super) fn java(world: &World) -> Result<(), String> {
    is_good_server(world, "java", "NioServer.java", JAVA, 8005)
}

/// Fetches the file with node several times at once, and twice over each connection.
pub(super) fn node_client(world: &World) -> Result<(), String> {
    world.write("node_client.js", NODE_CLIENT.as_bytes())?;
    let _server = world.kernel_server()?;
    let (script, copy) = (world.path("node_client.js"), world.path("node"));
    let url = format!("http://{FAR}:8000/file");
    run::output(&mut world.millstream(&["node", &script, &url, &copy]))?;
    world.must_be_same("node")?;
    world.must_have_carried("rx_bytes", FILE_BYTES)
}

fn is_good_server(
    world: &World,
    runtime: &str,
    name: &str,
    source: &str,
    port: u16,
) -> Result<(), String> {
    world.write(name, source.as_bytes())?;
    let root = world.directory.display().to_string();
    let number = port.to_string();
    let server = world.server(port, &[runtime, &world.path(name), &root, &number])?;
    world.is_served(port)?;
    world.load_on(port)?;
    world.end(server, "-TERM")
}
