//! haproxy and apache2 over `mux:`, whose workers take over the listeners in their own ways.
//!
//! haproxy's master executes itself again, and the new worker gets the listeners from the old one
//! over a UNIX socket (`SCM_RIGHTS`). apache2's children have threads. Their parent ends them
//! through a pipe that they watch beside their listener.

use std::process::Stdio;
use std::time::Duration;

use super::workers::{Service, load_across, signal};
use super::{FAR, NEAR, World, inside};
use crate::run::Watched;

const HAPROXY_PORT: u16 = 8091;
const APACHE_PORT: u16 = 8092;

/// Checks haproxy's master and worker before a server on the kernel, with reloads under load.
pub(super) fn haproxy(world: &World) -> Result<(), String> {
    let service = Service::start(world)?;
    let _origin = world.kernel_server()?;
    let configuration = format!(
        "global\n  maxconn 1000\n\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n\
         listen front\n  bind {NEAR}:{HAPROXY_PORT}\n  server origin {FAR}:8000\n"
    );
    world.write("haproxy.cfg", configuration.as_bytes())?;
    let file = world.path("haproxy.cfg");
    let server = start(world, &service, &["haproxy", "-Ws", "-f", &file])?;
    world.await_port(&world.far, NEAR, HAPROXY_PORT)?;
    world.is_served(HAPROXY_PORT)?;
    let master = server.id().to_string();
    load_across(world, HAPROXY_PORT, 3000, || {
        for _ in 0..2 {
            signal("-USR2", &master)?;
            std::thread::sleep(Duration::from_millis(1500));
        }
        Ok(())
    })?;
    world.is_served(HAPROXY_PORT)?;
    end(&service, server, "-USR1", HAPROXY_PORT)
}

/// Checks apache2 with threaded children, and a graceful restart under load.
pub(super) fn apache(world: &World) -> Result<(), String> {
    let service = Service::start(world)?;
    let root = world.directory.display();
    let modules = "/usr/lib/apache2/modules";
    let configuration = format!(
        "ServerRoot {root}\nServerName test\nPidFile {root}/apache.pid\nErrorLog /dev/stderr\n\
         LoadModule mpm_event_module {modules}/mod_mpm_event.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\n\
         StartServers 4\nMinSpareThreads 8\nMaxSpareThreads 32\nThreadsPerChild 8\nMaxRequestWorkers 32\n\
         MaxKeepAliveRequests 0\n\
         User www-data\nGroup www-data\nMutex file:{root}\n\
         Listen {NEAR}:{APACHE_PORT}\nDocumentRoot {root}\n\
         <Directory {root}>\nRequire all granted\n</Directory>\n"
    );
    world.write("apache.conf", configuration.as_bytes())?;
    let file = world.path("apache.conf");
    let line = ["apache2", "-f", &file, "-DFOREGROUND"];
    let server = start(world, &service, &line)?;
    world.await_port(&world.far, NEAR, APACHE_PORT)?;
    world.is_served(APACHE_PORT)?;
    let parent = server.id().to_string();
    load_across(world, APACHE_PORT, 5000, || signal("-USR1", &parent))?;
    world.is_served(APACHE_PORT)?;
    end(&service, server, "-WINCH", APACHE_PORT)
}

/// Starts a program over the service's wire.
pub(super) fn start(
    world: &World,
    service: &Service<'_>,
    program: &[&str],
) -> Result<Watched, String> {
    let mill = world.mill.display().to_string();
    let wire = format!("mux:{}", service.socket);
    let line = [&[mill.as_str(), "run", "--wire", &wire, "--"], program].concat();
    let mut command = inside(&world.near, &line);
    Watched::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Ends a program gracefully by its signal, and waits until the service has the port back.
fn end(service: &Service<'_>, mut server: Watched, name: &str, port: u16) -> Result<(), String> {
    signal(name, &server.id().to_string())?;
    if !server.wait()? {
        return Err(format!("{name} did not end it with status 0"));
    }
    service.await_release(port)
}
