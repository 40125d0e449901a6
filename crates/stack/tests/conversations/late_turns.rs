//! A stack whose thread did not run for a while. Timers are due, and the segments that would stop
//! them wait in the port behind more frames than a turn takes.

use std::sync::{Arc, Mutex};

use packetio::{Capabilities, Port, PortError, RxFrame};
use wire::tcp::Flags;

use crate::common::{Client, MILLIS, SECOND, Tcp, World};
use stack::limits::{INPUT_BACKLOG_NS_MAX, RX_FRAMES_PER_TURN};

/// A duplicate ACK of an otherwise idle connection.
fn noise(w: &mut World) -> Tcp {
    let mut client = w.client();
    w.handshake(&mut client);
    client.ack()
}

/// Lets the peer send `noise` `count` times, without a turn of the stack.
fn crowd(w: &mut World, noise: &Tcp, count: usize) {
    let frame = w.peer.frame(noise);
    for _ in 0..count {
        w.peer.transmit(&frame);
    }
}

/// A connection with six unacknowledged bytes that the client has received.
fn answered(w: &mut World) -> Client {
    let (mut client, socket) = w.established();
    w.write(socket, b"answer");
    let data = w.tcp_with(Flags::ACK | Flags::PSH);
    assert_eq!(client.take(&data), b"answer");
    client
}

#[test]
fn established_late_turn_takes_in_what_waits_before_it_calls_a_segment_lost() {
    let mut w = World::new();
    let client = answered(&mut w);
    let noise = noise(&mut w);
    crowd(&mut w, &noise, 2 * RX_FRAMES_PER_TURN);
    let ack = w.peer.frame(&client.ack());
    w.peer.transmit(&ack);
    w.now_ns += SECOND;
    w.settle();
    w.silent();
    assert_eq!(w.stack.tcp_counters().segments_retransmitted, 0);
    assert_eq!(w.stack.tcp_counters().loss_probes_out, 0);
    assert_eq!(w.stack.usage().small_chunks, 0);
    assert_eq!(w.stack.counters().timers_waited, 2);
}

/// A port whose batches are shorter than they may be although more frames wait. AF_XDP lends what
/// it took out of its ring early in a batch of its own.
struct ShortBatches {
    inner: Box<dyn Port + Send>,
    capabilities: Capabilities,
    /// Frames that wait in the port.
    waiting: Arc<Mutex<usize>>,
}

impl Port for ShortBatches {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        let frames = self.inner.receive()?;
        let mut waiting = self.waiting.lock().unwrap();
        *waiting = waiting.saturating_sub(frames.len());
        Ok(frames)
    }

    fn waiting(&mut self) -> usize {
        *self.waiting.lock().unwrap()
    }

    packetio::forward_port!(self => self.inner; release reserve reserved send prepare_wait
        finish_wait poll_fds counters drain);
}

#[test]
fn established_late_turn_stops_at_a_short_batch_and_timers_wait_for_what_the_port_still_holds() {
    const BATCH: usize = 8;
    let waiting = Arc::new(Mutex::new(0));
    let told = waiting.clone();
    let mut w = World::with(|setup| {
        setup.wire.batch = BATCH;
        setup.wrap = Some(Box::new(|inner| {
            let capabilities = Capabilities {
                batch_max: 2 * BATCH,
                ..inner.capabilities().clone()
            };
            Box::new(ShortBatches {
                inner,
                capabilities,
                waiting: told,
            })
        }));
    });
    let client = answered(&mut w);
    let noise = noise(&mut w);
    crowd(&mut w, &noise, BATCH);
    let ack = w.peer.frame(&client.ack());
    w.peer.transmit(&ack);
    *waiting.lock().unwrap() = BATCH + 1;
    w.now_ns += SECOND;
    w.settle();
    w.silent();
    assert_eq!(w.stack.tcp_counters().segments_retransmitted, 0);
    assert_eq!(w.stack.tcp_counters().loss_probes_out, 0);
    assert_eq!(w.stack.counters().timers_waited, 1);
}

#[test]
fn established_late_turn_without_the_ack_repeats_the_segment() {
    let mut w = World::new();
    let client = answered(&mut w);
    let noise = noise(&mut w);
    crowd(&mut w, &noise, 2 * RX_FRAMES_PER_TURN);
    w.now_ns += SECOND;
    w.settle();
    let again = w.tcp_with(Flags::ACK | Flags::PSH);
    assert_eq!(again.payload, b"answer");
    w.send(&client.ack());
    w.silent();
}

#[test]
fn established_port_that_is_never_empty_delays_timers_for_a_bounded_time() {
    let mut w = World::new();
    let client = answered(&mut w);
    let noise = noise(&mut w);
    w.now_ns += SECOND;
    crowd(&mut w, &noise, RX_FRAMES_PER_TURN);
    let end_ns = w.now_ns + INPUT_BACKLOG_NS_MAX;
    while w.now_ns < end_ns {
        crowd(&mut w, &noise, RX_FRAMES_PER_TURN);
        w.turn();
        assert_eq!(w.stack.tcp_counters().retransmit_timeouts, 0);
        w.silent();
        w.now_ns += 10 * MILLIS;
    }
    crowd(&mut w, &noise, RX_FRAMES_PER_TURN);
    w.turn();
    let again = w.tcp_with(Flags::ACK | Flags::PSH);
    assert_eq!(again.payload, b"answer");
    w.settle();
    w.send(&client.ack());
    w.silent();
}

#[test]
fn syn_received_late_turn_takes_in_the_ack_before_it_repeats_the_syn_ack() {
    let mut w = World::new();
    w.listen();
    let noise = noise(&mut w);
    let mut client = w.client();
    w.begin_handshake(&mut client);
    crowd(&mut w, &noise, 2 * RX_FRAMES_PER_TURN);
    let ack = w.peer.frame(&client.ack());
    w.peer.transmit(&ack);
    w.now_ns += 2 * SECOND;
    w.settle();
    w.silent();
    assert_eq!(w.stack.tcp_counters().syn_acks_retransmitted, 0);
    assert_eq!(w.stack.usage().half_open, 0);
}
