//! A wire that goes away for good while an application waits: every wait ends with an error. Needs
//! root.

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use common::lab::{self, Lab, Link};
use common::log;
use common::meet::{plain, with_ours};
use common::server_addr;
use millstream::{Crank, Events, Interest, Mode, Poll, TcpListener, Token};

/// `gone` wires have been lost so far.
fn deleted_under(link: Link, crank: Crank, gone: usize) {
    let lab = Lab::new(link);
    let mut config = plain(&lab.wire(""), crank);
    config.linger_ns = 0;
    with_ours(&lab, config, |context| {
        let mut address = server_addr();
        address.set_ip(std::net::Ipv4Addr::UNSPECIFIED.into());
        let listener = TcpListener::bind(context, address).unwrap();
        let mut poll = Poll::new(context);
        poll.register(&listener, Token(0), Interest::READABLE, Mode::Level)
            .unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(200));
                lab.far()
                    .ip(&format!("link delete {}", lab.far_interface()));
            });
            let mut events = Events::with_capacity(4);
            // An idle AF_XDP port checks every few seconds whether its interface still exists.
            let ended = poll
                .wait(&mut events, Some(Duration::from_secs(60)))
                .unwrap_err();
            assert_eq!(ended.kind(), ErrorKind::NetworkDown, "{link:?} {crank:?}");
        });
        // A program that ends on the error has the cause in its log.
        assert_eq!(log::logged("wire_lost").len(), gone, "{link:?} {crank:?}");
        assert_eq!(
            listener.accept().err().map(|error| error.kind()),
            Some(ErrorKind::NetworkDown)
        );
    });
}

#[test]
fn waiting_application_interface_deleted() {
    let Some(_turn) = lab::turn_as_root("waiting_application_interface_deleted") else {
        return;
    };
    log::keep();
    deleted_under(Link::Tap, Crank::Inline, 1);
    deleted_under(Link::Tap, Crank::Dedicated, 2);
    deleted_under(Link::Native, Crank::Inline, 3);
}
