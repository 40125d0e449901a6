//! Writers who do nothing but write: what they wrote leaves meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use millstream::{Config, Context, Crank, Runtime, TcpListener, TcpStream};

/// More than is written between two turns of a writer's.
const PIECES_BYTES: usize = 160 * 1024;
/// The watchdog may be turning the stack when we look.
const LOOKS: usize = 3;

fn open(link: &str, address: &str) -> (Context, Runtime) {
    let mut config = Config::new(format!("loopback:{link}").parse().unwrap());
    config.crank = Crank::Inline;
    config.addresses.push(address.parse().unwrap());
    config.tcp.send_buffer.bytes_default = 1 << 20;
    let runtime = Runtime::new(config).unwrap();
    (runtime.context(0).unwrap(), runtime)
}

fn connected(here: &Context, there: &Context) -> (TcpStream, TcpStream) {
    let address = "10.9.0.2:80".parse().unwrap();
    let listener = TcpListener::bind(there, address).unwrap();
    listener.set_nonblocking(true);
    let client = TcpStream::start_connect(here, address).unwrap();
    client.set_nonblocking(true);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "no connection");
        here.turn().unwrap();
        there.turn().unwrap();
        if let Ok((server, _)) = listener.accept() {
            server.set_nonblocking(true);
            here.settle().unwrap();
            return (client, server);
        }
    }
}

fn read(stream: &mut TcpStream, bytes: &mut [u8]) -> usize {
    match stream.read(bytes) {
        Ok(count) => count,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            0
        }
    }
}

#[test]
fn writer_who_never_polls_has_what_it_wrote_leave() {
    let (here, _one) = open("writers", "10.9.0.1/24");
    let (there, _other) = open("writers", "10.9.0.2/24");
    let (mut client, mut server) = connected(&here, &there);
    let mut bytes = vec![b'w'; 32 * 1024];
    for piece in [32 * 1024, 1024] {
        for _ in 0..PIECES_BYTES / piece {
            assert_eq!(client.write(&bytes[..piece]).unwrap(), piece);
        }
        let mut came = 0;
        for _ in 0..LOOKS {
            there.turn().unwrap();
            came += read(&mut server, &mut bytes);
        }
        assert!(came > 0, "nothing has left of pieces of {piece} bytes");
        let deadline = Instant::now() + Duration::from_secs(60);
        while came < PIECES_BYTES {
            assert!(Instant::now() < deadline, "{came} bytes came");
            here.turn().unwrap();
            there.turn().unwrap();
            came += read(&mut server, &mut bytes);
        }
    }
}
