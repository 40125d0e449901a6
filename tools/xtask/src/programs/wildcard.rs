//! nginx with workers that listens on all addresses over `mux:`, as its usual configuration says.
//! Connections from the NIC go to Millstream, those from this host to the kernel.
//!
//! Owns a service on the near side while it runs.

use super::workers::{Service, await_workers, load_across, signal, workers_of};
use super::{World, inside};
use crate::run;

const PORT: u16 = 8094;

pub(super) fn nginx(world: &World) -> Result<(), String> {
    let service = Service::start(world)?;
    let root = world.directory.display();
    let configuration = format!(
        "worker_processes 2; pid {root}/wildcard.pid; error_log stderr;\n\
         events {{}}\n\
         http {{ access_log off; sendfile on;\n\
         server {{ listen {PORT}; listen [::]:{PORT}; root {root}; }} }}\n"
    );
    world.write("wildcard.conf", configuration.as_bytes())?;
    let mut server = service.nginx("wildcard.conf", PORT)?;
    let master = server.id().to_string();
    world.is_served(PORT)?;
    is_served_inside(world)?;
    world.load_on(PORT)?;
    let old = workers_of(&master)?;
    load_across(world, PORT, 10_000, || {
        signal("-HUP", &master)?;
        is_served_inside(world)
    })?;
    await_workers(&master, &old)?;
    is_served_inside(world)?;
    world.is_served(PORT)?;
    signal("-QUIT", &master)?;
    if !server.wait()? {
        return Err("QUIT did not end it with status 0".to_owned());
    }
    service.await_release(PORT)?;
    kernel_listens_no_more(world)
}

/// Fetches the file over the kernel, with a client on the server's own host.
fn is_served_inside(world: &World) -> Result<(), String> {
    for host in ["127.0.0.1", "[::1]"] {
        let (copy, url) = (world.path("copy"), format!("http://{host}:{PORT}/file"));
        let line = ["curl", "-gsSm", "30", "-o", &copy, &url];
        run::output(&mut inside(&world.near, &line))?;
        world.must_be_same("copy")?;
    }
    Ok(())
}

/// Waits until the service has closed its copies of the program's kernel sockets.
fn kernel_listens_no_more(world: &World) -> Result<(), String> {
    let mut said = String::new();
    for _ in 0..super::TRIES {
        let line = ["ss", "-Htnl", &format!("sport = :{PORT}")];
        said = run::output(&mut inside(&world.near, &line))?;
        if said.trim().is_empty() {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Err(format!("the kernel still listens: {said}"))
}
