//! C's structures read and written.

use super::*;

#[test]
fn addresses_go_there_and_back() {
    for text in ["192.168.0.1:8080", "[fd3d::1]:1", "[::ffff:192.0.2.1]:80"] {
        let address: SocketAddr = text.parse().unwrap();
        assert_eq!(to_address(&from_address(address)), Address::Inet(address));
    }
    assert_eq!(to_address(&[0; 16]), Address::Unspec);
    assert_eq!(to_address(&[2]), Address::Short);
    assert_eq!(to_address(&[2, 0, 0, 80, 1, 2, 3, 4]), Address::Short);
    assert_eq!(to_address(&[1, 0, b'/']), Address::Short);
    let mut other = [0; 16];
    other[0] = 1;
    assert_eq!(to_address(&other), Address::Family(1));
    // A `sockaddr_in6` that is only as long as IPv4's.
    other[0] = 10;
    assert_eq!(to_address(&other), Address::Family(10));
    let any = Address::Inet("0.0.0.0:0".parse().unwrap());
    assert_eq!(to_bound_address(&[0; 16]), any);
    assert_eq!(to_bound_address(&[0; 15]), Address::Short);
}

#[test]
fn control_messages_are_aligned_and_what_does_not_fit_stays_out() {
    let messages = [
        ControlMessage {
            level: 6,
            kind: 36,
            data: 7_i32.to_ne_bytes().to_vec(),
        },
        ControlMessage {
            level: 0,
            kind: 1,
            data: vec![9],
        },
    ];
    let bytes = from_control(&messages, 100);
    assert_eq!(bytes.len(), 48);
    assert_eq!(to_control(&bytes).unwrap(), messages);
    assert_eq!(
        to_control(&from_control(&messages, 40)).unwrap(),
        messages[..1]
    );
    assert_eq!(to_control(&[255; 24]), Err(Errno::INVAL));
}

#[test]
fn pieces_that_no_call_can_return_are_refused() {
    let piece = |len| Piece { address: 0, len };
    assert_eq!(total(&[piece(3), piece(4)]), Ok(7));
    assert_eq!(total(&[piece(usize::MAX), piece(2)]), Err(Errno::INVAL));
}

#[test]
fn events_have_the_platforms_size() {
    let event = EpollEvent {
        events: 5,
        data: 0x1122_3344_5566_7788,
    };
    let bytes = from_epoll_events(&[event, event]);
    assert_eq!(bytes.len(), 2 * EPOLL_EVENT_LEN);
    assert_eq!(to_epoll_event(&bytes[EPOLL_EVENT_LEN..]), event);
}
