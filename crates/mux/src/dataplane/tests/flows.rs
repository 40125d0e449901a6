//! Flows of an endpoint whose listeners change: which context gets a retransmitted SYN, and how the
//! service writes the owner of a flow.

use super::*;

const PORT: u16 = 1000;

/// A frame from the peer to port 80, with these flags.
fn from_peer(flags: u8) -> Vec<u8> {
    let mut segment = PORT.to_be_bytes().to_vec();
    segment.extend(80u16.to_be_bytes());
    segment.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 40];
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 2]);
    frame.extend(OURS.octets());
    frame.extend(segment);
    frame
}

const SYN: u8 = 2;
const ACK: u8 = 16;
/// `FLOW_ENDED` of `bpf/mux.h`.
const ENDED: u32 = 0x1_0000;

fn ends() -> (SocketAddr, SocketAddr) {
    let peer = SocketAddr::from(([10, 0, 0, 2], PORT));
    (SocketAddr::from((OURS, 80)), peer)
}

/// The context to which a frame goes.
fn taker(plane: &Dataplane, flags: u8) -> Option<u16> {
    let received = |context| plane.counters(0, context).rx_frames;
    let before = [0, 1].map(received);
    let action = bpf::dry_run(plane.maps.ingress.as_fd(), &from_peer(flags), 0);
    assert_eq!(action, Ok(REDIRECT));
    (0u16..2).find(|context| received(*context) > before[usize::from(*context)])
}

/// An endpoint that two contexts of an application had, of which only the second listens.
fn left_by_the_first(host: &Host) -> Dataplane {
    let mut plane = host.open();
    for context in 0..2 {
        drop(add_port(&mut plane, 0, context));
    }
    let endpoint = "0.0.0.0:80".parse().unwrap();
    plane.claim_set(endpoint, 0, &[1]).unwrap();
    plane
}

fn write(plane: &Dataplane, map: &'static str, value: u32) {
    let (local, remote) = ends();
    let value = value.to_ne_bytes();
    plane
        .maps
        .set(map, &layout::flow(local, remote), &value)
        .unwrap();
}

#[test]
fn syn_that_comes_again_goes_to_the_handshake_that_it_began() {
    let Some(host) = Host::enter("again") else {
        return;
    };
    let plane = left_by_the_first(&host);
    let first = u32::from(plane.devices[&(0, 0)]);
    assert_eq!(taker(&plane, SYN), Some(1));
    write(&plane, "half_open", first);
    assert_eq!(taker(&plane, SYN), Some(0), "its SYN-ACK was lost");
    assert_eq!(taker(&plane, ACK), Some(0));
    // The connection has ended, so the next one goes to a context that listens.
    write(&plane, "flows", first | ENDED);
    assert_eq!(taker(&plane, SYN), Some(1));
    assert_eq!(
        taker(&plane, ACK),
        Some(1),
        "nothing is known of it any more"
    );
    plane.close();
}

#[test]
fn service_moves_a_flow_and_forgets_one_that_its_owner_does_not_have() {
    let Some(host) = Host::enter("moves") else {
        return;
    };
    let mut plane = left_by_the_first(&host);
    plane.flow_set(0, 0, ends()).unwrap();
    assert_eq!(taker(&plane, ACK), Some(0));
    assert_eq!(taker(&plane, SYN), Some(0), "it goes on");
    plane.flow_forget(0, 1, ends()).unwrap();
    assert_eq!(
        taker(&plane, SYN),
        Some(0),
        "not the second context's to forget"
    );
    plane.flow_forget(0, 0, ends()).unwrap();
    assert_eq!(taker(&plane, SYN), Some(1));
    // If the new owner ends the flow before the service writes it, the flow stays ended.
    let second = u32::from(plane.devices[&(0, 1)]);
    write(&plane, "flows", second | ENDED);
    plane.flow_set(0, 1, ends()).unwrap();
    plane
        .claim_set("0.0.0.0:80".parse().unwrap(), 0, &[0])
        .unwrap();
    assert_eq!(taker(&plane, SYN), Some(0));
    assert!(plane.flow_set(0, 7, ends()).is_err(), "no such context");
    plane.close();
}
