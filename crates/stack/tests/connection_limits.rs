//! Limits that are made for a number of connections let that many be accepted.

mod common;

use common::World;
use stack::Limits;

#[test]
fn limits_for_so_many_connections_let_so_many_be_accepted() {
    for connections in [64, 200, 1_000] {
        let mut world = World::with(|setup| {
            setup.config.limits = Limits {
                ..Limits::for_connections(connections)
            };
        });
        let listener = world.listen();
        // The application's stock of sockets takes what it wants.
        for _ in 0..100 {
            world.turn();
        }
        for n in 0..connections {
            let mut client = world.client();
            world.handshake(&mut client);
            let accepted = world.app.accept(listener);
            assert!(accepted.is_some(), "{n} of {connections}");
            world.app.take_events();
        }
    }
}
