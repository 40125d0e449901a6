//! [`Limits::for_connections`](stack::Limits::for_connections) lets that many connections be
//! accepted.

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
        // The application fills its stock of socket ids.
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

/// Checks every table that depends on the number of connections: below, within and at its bounds.
#[test]
fn limits_follow_from_the_number_of_connections() {
    for (connections, half_open, time_wait, records, small_chunks) in [
        (1, 1_024, 4_096, 16_384, 8_192),
        (64, 1_024, 4_096, 16_384, 8_192),
        (2_048, 1_024, 4_096, 16_384, 8_192),
        (4_098, 2_049, 4_098, 16_384, 8_196),
        (100_000, 50_000, 100_000, 200_000, 200_000),
    ] {
        let limits = Limits::for_connections(connections);
        let tables = [
            limits.half_open_max,
            limits.time_wait_max,
            limits.segment_records,
            limits.small_chunks,
        ];
        assert_eq!(tables, [half_open, time_wait, records, small_chunks]);
        let sockets = limits.sockets_max;
        let least = connections.max(64);
        assert!(sockets > least + least / 8, "{sockets}");
        assert!(sockets < least + least / 8 + 2_048, "{sockets}");
        assert_eq!(limits.orphans_max, sockets - sockets / 16);
        assert!(
            limits.packed_blocks >= 2 * sockets && limits.packed_blocks.is_multiple_of(sockets)
        );
        assert!(limits.backlog_max >= 128 && limits.backlog_max <= connections.max(128));
        assert!(limits.warm_sockets >= sockets / 64);
        assert_eq!(limits.check().map_err(|_| connections), Ok(()));
    }
}
