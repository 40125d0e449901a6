//! Two smoltcp interfaces in one thread over a queue in memory, with Ethernet frames as Millstream
//! has them.
//!
//! smoltcp reports no events, so each turn visits every socket. A socket in TIME_WAIT can be used
//! again only by making it anew. That spares smoltcp the cost of TIME_WAIT, which the other systems
//! pay.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use bench::measure::{Answering, Asking, Exchange, Next, Plan, Tally};
use smoltcp::iface::{
    Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet,
};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant as SmolInstant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

const PORT: u16 = 7;
const SERVER: IpAddress = IpAddress::v4(10, 9, 0, 1);
const CLIENT: IpAddress = IpAddress::v4(10, 9, 0, 2);
const MTU: usize = 1_500;
const ETHERNET_BYTES: usize = 14;
/// Buffer of a socket for long transfers: it fits the cache and keeps the link busy.
const BULK_BUFFER_BYTES: usize = 256 * 1024;
const LOCAL_PORTS: (u16, u16) = (32_768, 60_999);

type Frames = VecDeque<Vec<u8>>;

/// One end of the link: frames that came, frames to send, and spare frames to use again.
struct End {
    /// Bytes of the largest frame, with its Ethernet header.
    mtu: usize,
    incoming: Frames,
    outgoing: Frames,
    spare: RefCell<Vec<Vec<u8>>>,
}

struct Incoming<'a> {
    frame: Vec<u8>,
    spare: &'a RefCell<Vec<Vec<u8>>>,
}

struct Outgoing<'a> {
    frames: &'a mut Frames,
    spare: &'a RefCell<Vec<Vec<u8>>>,
}

impl End {
    /// One end of a link for IP packets of at most `mtu` bytes.
    fn new(mtu: usize) -> Self {
        Self {
            mtu: mtu + ETHERNET_BYTES,
            incoming: Frames::new(),
            outgoing: Frames::new(),
            spare: RefCell::default(),
        }
    }
}

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        let result = f(&self.frame);
        self.spare.borrow_mut().push(self.frame);
        result
    }
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let mut frame = self.spare.borrow_mut().pop().unwrap_or_default();
        // The frame's old contents are overwritten.
        frame.resize(length, 0);
        let result = f(&mut frame);
        self.frames.push_back(frame);
        result
    }
}

impl Device for End {
    type RxToken<'a> = Incoming<'a>;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _: SmolInstant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        let frame = self.incoming.pop_front()?;
        let spare = &self.spare;
        let frames = &mut self.outgoing;
        Some((Incoming { frame, spare }, Outgoing { frames, spare }))
    }

    fn transmit(&mut self, _: SmolInstant) -> Option<Outgoing<'_>> {
        Some(Outgoing {
            frames: &mut self.outgoing,
            spare: &self.spare,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = self.mtu;
        capabilities.medium = Medium::Ethernet;
        capabilities
    }
}

/// A host: an interface at one end of the link, and its sockets.
struct Host {
    end: End,
    interface: Interface,
    sockets: SocketSet<'static>,
    handles: Vec<SocketHandle>,
    buffer_bytes: usize,
}

impl Host {
    fn new(
        number: u8,
        address: IpAddress,
        mtu: usize,
        (count, buffer_bytes): (usize, usize),
    ) -> Self {
        let mut end = End::new(mtu);
        let mac = EthernetAddress([2, 0, 0, 0, 0, number]);
        let mut config = Config::new(mac.into());
        config.random_seed = number.into();
        let mut interface = Interface::new(config, &mut end, SmolInstant::ZERO);
        interface.update_ip_addrs(|addresses| {
            // The list has room for more than one address.
            let _ = addresses.push(IpCidr::new(address, 24));
        });
        let mut sockets = SocketSet::new(Vec::with_capacity(count));
        let handles = (0..count)
            .map(|_| sockets.add(socket(buffer_bytes)))
            .collect();
        Self {
            end,
            interface,
            sockets,
            handles,
            buffer_bytes,
        }
    }

    /// Takes all frames that came.
    fn take(&mut self, now: SmolInstant) {
        let Self {
            interface,
            end,
            sockets,
            ..
        } = self;
        while interface.poll_ingress_single(now, end, sockets) != PollIngressSingleResult::None {}
    }

    /// Sends a segment of each socket that has one. False if no socket had one.
    fn send(&mut self, now: SmolInstant) -> bool {
        let Self {
            interface,
            end,
            sockets,
            ..
        } = self;
        interface.poll_egress(now, end, sockets) != PollResult::None
    }
}

fn socket(bytes: usize) -> Socket<'static> {
    let buffer = || SocketBuffer::new(vec![0; bytes]);
    Socket::new(buffer(), buffer())
}

/// A socket as a reader and writer, which is the form that the exchanges of messages need.
struct Stream<'a, 'b>(&'a mut Socket<'b>);

impl Read for Stream<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.recv_slice(buffer) {
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            Ok(count) => Ok(count),
            // The peer has closed, or the connection is not there yet.
            Err(_) => match self.0.state() {
                State::SynSent | State::SynReceived | State::Listen => {
                    Err(ErrorKind::WouldBlock.into())
                }
                State::Closed => Err(ErrorKind::ConnectionReset.into()),
                _ => Ok(0),
            },
        }
    }
}

impl Write for Stream<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.send_slice(bytes) {
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            Ok(count) => Ok(count),
            Err(_) if self.0.is_open() => Err(ErrorKind::WouldBlock.into()),
            Err(_) => Err(ErrorKind::ConnectionReset.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs the plan and prints what was seen.
pub fn run(plan: &Plan) -> io::Result<()> {
    if plan.exchange == Exchange::Reset {
        return Err(io::Error::other("smoltcp: only messages are exchanged"));
    }
    let sockets = (
        plan.connections,
        plan.request_bytes.max(plan.response_bytes).max(512),
    );
    let mut server = Server {
        host: Host::new(1, SERVER, MTU, sockets),
        talks: vec![None; plan.connections],
        buffer: vec![0; 64 * 1024],
    };
    let mut client = Client {
        host: Host::new(2, CLIENT, MTU, sockets),
        talks: vec![None; plan.connections],
        buffer: vec![0; 64 * 1024],
        tally: Tally::new(plan),
        port: LOCAL_PORTS.0,
    };
    let begin = Instant::now();
    server.renew(plan)?;
    while client.tally.goes_on() {
        client.tally.look();
        let now = SmolInstant::from_micros(begin.elapsed().as_micros() as i64);
        server.host.take(now);
        server.turn(plan);
        server.host.send(now);
        server.renew(plan)?;
        cross(&mut server.host.end, &mut client.host.end);
        client.host.take(now);
        client.turn(plan)?;
        client.host.send(now);
        cross(&mut client.host.end, &mut server.host.end);
    }
    println!("{}", serde_json::json!(client.tally.seen()));
    Ok(())
}

/// Moves frames to the other end. A sender without spare frames gets those of the receiver.
fn cross(from: &mut End, to: &mut End) {
    to.incoming.append(&mut from.outgoing);
    if from.spare.borrow().is_empty() {
        from.spare.swap(&to.spare);
    }
}

/// Runs one flow from server to client for `seconds`, after `warm_up` seconds, and prints how many
/// bytes came.
pub fn bulk(mtu: usize, warm_up: f64, seconds: f64) -> io::Result<()> {
    let mut transfer = Transfer::open(mtu)?;
    transfer.run(warm_up)?;
    let begin = Instant::now();
    let bytes = transfer.run(seconds)?;
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{}",
        serde_json::json!({ "bytes": bytes, "seconds": seconds, "jain": 1.0 })
    );
    Ok(())
}

/// A flow from server to client.
struct Transfer {
    server: Host,
    client: Host,
    start: Instant,
    buffer: Vec<u8>,
}

fn refused(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

impl Transfer {
    fn open(mtu: usize) -> io::Result<Self> {
        let mut server = Host::new(1, SERVER, mtu, (1, BULK_BUFFER_BYTES));
        let mut client = Host::new(2, CLIENT, mtu, (1, BULK_BUFFER_BYTES));
        let listener = server.sockets.get_mut::<Socket>(server.handles[0]);
        listener.listen(PORT).map_err(refused)?;
        let socket = client.sockets.get_mut::<Socket>(client.handles[0]);
        let context = client.interface.context();
        socket
            .connect(context, (SERVER, PORT), LOCAL_PORTS.0)
            .map_err(refused)?;
        Ok(Self {
            server,
            client,
            start: Instant::now(),
            buffer: vec![b'm'; BULK_BUFFER_BYTES],
        })
    }

    /// Moves bytes for `seconds`. Returns the number that came.
    fn run(&mut self, seconds: f64) -> io::Result<u64> {
        let Self {
            server,
            client,
            start,
            buffer,
        } = self;
        let (begin, mut bytes) = (Instant::now(), 0);
        while begin.elapsed().as_secs_f64() < seconds {
            let now = SmolInstant::from_micros(start.elapsed().as_micros() as i64);
            server.take(now);
            let socket = server.sockets.get_mut::<Socket>(server.handles[0]);
            if socket.can_send() {
                socket.send_slice(buffer).map_err(refused)?;
            }
            // One `send` is one segment of the flow; the loop sends all that the window allows.
            while server.send(now) {}
            cross(&mut server.end, &mut client.end);
            client.take(now);
            let socket = client.sockets.get_mut::<Socket>(client.handles[0]);
            if socket.can_recv() {
                bytes += socket.recv_slice(buffer).map_err(refused)? as u64;
            }
            while client.send(now) {}
            cross(&mut client.end, &mut server.end);
        }
        Ok(bytes)
    }
}

struct Server {
    host: Host,
    talks: Vec<Option<Answering>>,
    buffer: Vec<u8>,
}

impl Server {
    fn turn(&mut self, plan: &Plan) {
        for (handle, talk) in self.host.handles.iter().zip(&mut self.talks) {
            let Some(answering) = talk else {
                continue;
            };
            let tcp = self.host.sockets.get_mut::<Socket>(*handle);
            if matches!(tcp.state(), State::Established | State::CloseWait)
                && answering.go_on(&mut Stream(tcp), plan, &mut self.buffer) == Next::Over
            {
                tcp.close();
                *talk = None;
            }
        }
    }

    /// Listens again with sockets whose connections are over, once their last ACK has left.
    fn renew(&mut self, plan: &Plan) -> io::Result<()> {
        for (handle, talk) in self.host.handles.iter().zip(&mut self.talks) {
            let tcp = self.host.sockets.get_mut::<Socket>(*handle);
            if matches!(tcp.state(), State::Closed | State::TimeWait) {
                *tcp = socket(self.host.buffer_bytes);
                tcp.listen(PORT).map_err(refused)?;
                *talk = Some(Answering::new(plan));
            }
        }
        Ok(())
    }
}

struct Client {
    host: Host,
    talks: Vec<Option<Asking>>,
    buffer: Vec<u8>,
    tally: Tally,
    port: u16,
}

impl Client {
    fn turn(&mut self, plan: &Plan) -> io::Result<()> {
        for (handle, talk) in self.host.handles.iter().zip(&mut self.talks) {
            let tcp = self.host.sockets.get_mut::<Socket>(*handle);
            if let Some(asking) = talk {
                match asking.go_on(&mut Stream(tcp), plan, &mut self.buffer, &mut self.tally) {
                    Ok(Next::Wait) => continue,
                    Ok(Next::Over) => tcp.close(),
                    Err(error) => {
                        self.tally.fail(&error);
                        tcp.abort();
                    }
                }
                *talk = None;
            }
            if tcp.state() == State::Closed {
                let context = self.host.interface.context();
                tcp.connect(context, (SERVER, PORT), self.port)
                    .map_err(refused)?;
                self.port = match self.port == LOCAL_PORTS.1 {
                    true => LOCAL_PORTS.0,
                    false => self.port + 1,
                };
                *talk = Some(Asking::new(plan, &self.tally));
            }
        }
        Ok(())
    }
}
