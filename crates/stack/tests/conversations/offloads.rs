//! Drivers that verify or compute checksums: the stack believes their verdicts and gives them the
//! data that they need.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use packetio::buffer_unsafe::{FrameBuf, RxBatch, TxBatch, carve};
use packetio::{
    Capabilities, ChecksumPolicy, Port, PortCounters, PortError, RxChecksum, RxFrame, TxFrame,
};
use rustix::event::PollFlags;
use stack::Stack;
use wire::tcp::Flags;
use wire::{Addr, checksum, protocol};

use crate::common::{self, App, Client, PEER_V4, PORT, SECOND, STACK_MAC, STACK_V4, Tcp, frames};
use std::net::SocketAddr;

/// A sent frame: its bytes, and start and offset of a checksum left to the card.
type Sent = (Vec<u8>, Option<(u16, u16)>);

/// A card: received frames with the driver's verdict, and sent frames.
#[derive(Default)]
struct Card {
    arriving: VecDeque<(Vec<u8>, RxChecksum)>,
    sent: Vec<Sent>,
}

/// A driver with checksum offload, whose card the test controls.
struct Driver {
    card: Arc<Mutex<Card>>,
    capabilities: Capabilities,
    free: Vec<FrameBuf>,
    lent: RxBatch,
    granted: TxBatch,
}

impl Driver {
    fn new(card: Arc<Mutex<Card>>) -> Self {
        Self {
            card,
            capabilities: Capabilities {
                mac: STACK_MAC,
                mtu: 1_500,
                rx_checksum: ChecksumPolicy::Verify,
                tx_checksum_offload: true,
                segment_bytes_max: 0,
                batch_max: 8,
                name: "card".into(),
                queue: 0,
            },
            free: carve(32, 1_536),
            lent: RxBatch::new(8),
            granted: TxBatch::new(8),
        }
    }
}

impl Port for Driver {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.release();
        let mut card = self.card.lock().unwrap();
        while self.lent.len() < 8
            && let Some((bytes, checksum)) = card.arriving.pop_front()
        {
            let mut buf = self.free.pop().unwrap();
            assert!(buf.copy_bytes(&bytes));
            buf.checksum = checksum;
            self.lent.push(buf);
        }
        Ok(self.lent.frames())
    }
    fn release(&mut self) {
        self.free.extend(self.lent.drain());
    }
    fn reserve(&mut self, n: usize) -> &[TxFrame] {
        while self.granted.len() < n.min(8) {
            self.granted.push(self.free.pop().unwrap());
        }
        self.granted.frames(n)
    }

    fn reserved(&self) -> &[TxFrame] {
        self.granted.written()
    }
    fn send(&mut self, n: usize) -> Result<(), PortError> {
        let offloads: Vec<_> = self
            .granted
            .written()
            .iter()
            .map(TxFrame::checksum_offload)
            .collect();
        let mut card = self.card.lock().unwrap();
        for (at, buf) in self.granted.drain().enumerate() {
            if at < n && !buf.is_empty() {
                card.sent.push((buf.bytes().to_vec(), offloads[at]));
            }
            self.free.push(buf);
        }
        Ok(())
    }
    fn prepare_wait(&mut self, _want_tx: bool) -> bool {
        false
    }
    fn finish_wait(&mut self) {}
    fn poll_fds<'a>(&'a self, _want_tx: bool, _fds: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {}
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

struct Bench {
    stack: Stack,
    app: App,
    card: Arc<Mutex<Card>>,
    now_ns: u64,
}

impl Bench {
    fn new() -> Self {
        let card = Arc::new(Mutex::new(Card::default()));
        let now_ns = 1_000 * SECOND;
        let driver = Box::new(Driver::new(card.clone()));
        let (stack, side) = Stack::new(common::config(), driver, now_ns).unwrap();
        let mut bench = Self {
            stack,
            app: App::new(side),
            card,
            now_ns,
        };
        let arp = frames::arp_request(common::peer::PEER_MAC, PEER_V4, STACK_V4);
        bench.arrive(arp, RxChecksum::Unknown);
        bench.take();
        bench
    }

    fn arrive(&mut self, frame: Vec<u8>, checksum: RxChecksum) {
        self.card
            .lock()
            .unwrap()
            .arriving
            .push_back((frame, checksum));
        self.settle();
    }

    fn settle(&mut self) {
        while self.stack.turn(self.now_ns).busy {}
    }

    fn segment(&mut self, segment: &Tcp, checksum: RxChecksum) {
        let frame = segment.frame(common::peer::PEER_MAC, STACK_MAC);
        self.arrive(frame, checksum);
    }

    /// Takes the sent frames, with checksums completed as a card does it: the sum over everything
    /// from the start on.
    fn take(&mut self) -> Vec<frames::Seen> {
        let sent = std::mem::take(&mut self.card.lock().unwrap().sent);
        sent.into_iter()
            .map(|(mut frame, offload)| {
                if let Some((start, offset)) = offload {
                    let start = usize::from(start);
                    let field = start + usize::from(offset);
                    let pseudo = checksum::pseudo_header(
                        Addr::from(STACK_V4),
                        Addr::from(PEER_V4),
                        protocol::TCP,
                        (frame.len() - start) as u32,
                    );
                    assert_eq!(frame[field..field + 2], pseudo.fold().to_be_bytes());
                    let sum = checksum::of(&frame[start..]).finish();
                    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
                }
                frames::parse(&frame)
            })
            .collect()
    }

    fn tcp(&mut self) -> Tcp {
        match self.take().pop() {
            Some(frames::Seen::Tcp(segment)) => segment,
            other => panic!("a segment was expected, not {other:?}"),
        }
    }
}

#[test]
fn driver_that_knows_checksums_is_believed_and_asked() {
    let mut b = Bench::new();
    let local = SocketAddr::new(STACK_V4, PORT);
    let listener = b.app.listen(local, 4);
    b.settle();
    let mut client = Client::new(SocketAddr::new(PEER_V4, 40_000), local);
    b.segment(&client.syn(), RxChecksum::Verified);
    let syn_ack = b.tcp();
    assert_eq!(syn_ack.flags, Flags::SYN | Flags::ACK);
    client.on_syn_ack(&syn_ack);
    b.segment(&client.ack(), RxChecksum::Unknown);
    let socket = b.app.accept(listener).unwrap();
    // Good bytes that the driver calls bad, and bad ones that it calls good.
    let mut frame = client
        .segment(Flags::ACK)
        .data(b"fine")
        .frame(common::peer::PEER_MAC, STACK_MAC);
    b.arrive(frame.clone(), RxChecksum::Bad);
    assert_eq!(b.stack.counters().rx_drop_tcp_checksum, 1);
    frame[50] ^= 1;
    b.arrive(frame.clone(), RxChecksum::Unknown);
    assert_eq!(b.stack.counters().rx_drop_tcp_checksum, 2);
    b.arrive(frame, RxChecksum::Verified);
    assert_eq!(b.app.read(socket), b"fine");
    assert_eq!(b.stack.counters().rx_fused_bytes, 0);
    b.take();
    // The card computes the checksum of our segments, payload included.
    assert_eq!(b.app.write(socket, b"odd"), 3);
    b.settle();
    assert_eq!(b.tcp().payload, b"odd");
    b.app.abort_all();
    b.settle();
    assert_eq!(b.stack.usage(), stack::Usage::default());
}
