//! A service without a free descriptor. Alone in its program, since the limit is that of the
//! process. In network namespaces, as root.

mod support;

use std::time::Duration;

use packetio::foreign::Closer;
use packetio::mux::channel::Channel;
use packetio::seqpacket::{address, new_socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use support::netns::can_run;
use support::{Client, World};

fn set_descriptors(current: Option<u64>) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn connection_for_which_there_is_no_descriptor_waits() {
    if !can_run("connection_for_which_there_is_no_descriptor_waits") {
        return;
    }
    let world = World::new("descriptors");
    let before = getrlimit(Resource::Nofile).current;
    let (socket, target) = (new_socket().unwrap(), address(&world.socket).unwrap());
    set_descriptors(Some(3));
    rustix::net::connect(&socket, &target).unwrap();
    let busy = cpu_time();
    std::thread::sleep(Duration::from_millis(1000));
    let busy = cpu_time() - busy;
    set_descriptors(before);
    let mut client = Client::new(Channel::new(socket, &Closer::default()));
    client.hello(1);
    assert!(busy < Duration::from_millis(30), "{busy:?} of a second");
}
