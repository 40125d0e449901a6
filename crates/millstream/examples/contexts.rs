//! A server with several contexts, each a thread with a stack and a listener of its own: `contexts
//! WIRE ADDRESS/BITS COUNT`. The wire needs a queue for each context, such as
//! `memif:/run/x.sock,role=server,queues=2`.

use std::error::Error;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use millstream::{Config, IpCidr, Runtime, TcpListener};

const PORT: u16 = 4_000;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [wire, address, count] = words.as_slice() else {
        return Err("usage: contexts WIRE ADDRESS/BITS COUNT".into());
    };
    serve(wire, address, count.parse()?)
}

/// Tells each connection the number of the context that it reached. Serves until a context ends.
pub fn serve(wire: &str, address: &str, count: usize) -> Result<(), Box<dyn Error>> {
    let address: IpCidr = address.parse()?;
    let mut config = Config::new(wire.parse()?);
    config.addresses.push(address);
    config.contexts = count;
    let runtime = Arc::new(Runtime::new(config)?);
    let local = SocketAddr::new(address.address(), PORT);
    let threads: Vec<_> = (0..count)
        .map(|index| {
            let runtime = runtime.clone();
            thread::spawn(move || one_context(&runtime, index, local))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a context's thread panicked")??;
    }
    Ok(())
}

/// A context stays on the thread that takes it. The contexts share no connection and no lock.
fn one_context(runtime: &Runtime, index: usize, local: SocketAddr) -> io::Result<()> {
    let context = runtime.context(index).map_err(io::Error::other)?;
    // All contexts may listen on the same port: each accepts the connections that its stack
    // receives.
    let listener = TcpListener::bind(&context, local)?;
    loop {
        let (mut stream, _peer) = listener.accept()?;
        if let Err(error) = writeln!(stream, "context {index}") {
            eprintln!("context {index}: {error}");
        }
    }
}
