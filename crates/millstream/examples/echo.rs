//! An echo server with blocking calls, one connection after another: `echo WIRE ADDRESS/BITS`, such
//! as `echo xdp:eth1 10.0.0.2/24`.

use std::error::Error;
use std::io::{Read, Write};
use std::net::SocketAddr;

use millstream::{Config, IpCidr, Runtime, TcpListener, TcpStream};

const PORT: u16 = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(wire), Some(address)) = (words.next(), words.next()) else {
        return Err("usage: echo WIRE ADDRESS/BITS".into());
    };
    serve(&wire, &address)
}

/// Serves until the wire is gone.
pub fn serve(wire: &str, address: &str) -> Result<(), Box<dyn Error>> {
    let address: IpCidr = address.parse()?;
    let mut config = Config::new(wire.parse()?);
    config.addresses.push(address);
    let runtime = Runtime::new(config)?;
    // The context and its sockets belong to this thread, which runs TCP inside the calls that wait.
    let context = runtime.context(0)?;
    let listener = TcpListener::bind(&context, SocketAddr::new(address.address(), PORT))?;
    loop {
        let (stream, peer) = listener.accept()?;
        if let Err(error) = echo(stream) {
            // A broken connection must not end the server.
            eprintln!("{peer}: {error}");
        }
    }
}

fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; 16_384];
    loop {
        match stream.read(&mut bytes)? {
            // The peer has closed its direction. Dropping the stream closes ours.
            0 => return Ok(()),
            n => stream.write_all(&bytes[..n])?,
        }
    }
}
