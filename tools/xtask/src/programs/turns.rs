//! Programs over `mux:` whose processes share a listener and do not all accept: php-fpm, whose
//! master watches the listener and starts children on demand, and processes that take turns by a
//! lock.

use super::proxies::start;
use super::workers::{Service, signal};
use super::{NEAR, World, inside};
use crate::run::{self, Watched};

const PROGRAM: &str = include_str!("turns.py");
const CLIENT: &str = include_str!("turns_client.py");
const SCRIPT: &str = "<?php usleep(20000); echo 'served';\n";
const TURNS_PORT: &str = "8107";
const PHP_PORT: &str = "8108";

pub(super) fn by_lock(world: &World) -> Result<(), String> {
    world.write("turns.py", PROGRAM.as_bytes())?;
    world.write("turns_client.py", CLIENT.as_bytes())?;
    let service = Service::start(world)?;
    let (program, lock) = (world.path("turns.py"), world.path("turns.lock"));
    let line = ["/usr/bin/python3", &program, NEAR, TURNS_PORT, &lock];
    let server = start(world, &service, &line)?;
    world.await_port(&world.far, NEAR, 8107)?;
    for clients in ["1", "8"] {
        all_are_served(world, &[TURNS_PORT, "60", clients])?;
    }
    end(server, "-TERM")
}

/// Checks php-fpm with children that it starts when a connection comes.
pub(super) fn php_fpm(world: &World) -> Result<(), String> {
    world.write("turns_client.py", CLIENT.as_bytes())?;
    world.write("served.php", SCRIPT.as_bytes())?;
    let service = Service::start(world)?;
    let root = world.directory.display();
    let configuration = format!(
        "[global]\nerror_log = {root}/fpm.log\ndaemonize = no\n\
         [www]\nuser = root\ngroup = root\nlisten = {NEAR}:{PHP_PORT}\n\
         pm = ondemand\npm.max_children = 3\npm.process_idle_timeout = 60s\n"
    );
    world.write("fpm.conf", configuration.as_bytes())?;
    let (file, script) = (world.path("fpm.conf"), world.path("served.php"));
    let found = run::output(run::command("sh").args(["-c", "ls /usr/sbin/php-fpm*"]))?;
    let program = found.lines().next().unwrap_or_default();
    let server = start(world, &service, &[program, "-R", "-F", "-y", &file])?;
    world.await_port(&world.far, NEAR, 8108)?;
    for clients in ["1", "6"] {
        all_are_served(world, &[PHP_PORT, "60", clients, &script])?;
    }
    end(server, "-QUIT")
}

fn all_are_served(world: &World, arguments: &[&str]) -> Result<(), String> {
    let client = world.path("turns_client.py");
    let line = [&["/usr/bin/python3", &client, NEAR], arguments].concat();
    let said = run::output(&mut inside(&world.far, &line))?;
    match said.starts_with("0 without an answer") {
        true => Ok(()),
        false => Err(said),
    }
}

fn end(mut server: Watched, name: &str) -> Result<(), String> {
    signal(name, &server.id().to_string())?;
    match server.wait()? {
        true => Ok(()),
        false => Err(format!("{name} did not end it with status 0")),
    }
}
