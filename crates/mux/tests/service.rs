//! Applications and the service: claims, clashes with the kernel, leases, next hops, deaths,
//! restarts. In network namespaces, as root, with a data plane that only records calls.

mod support;

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::Duration;

use packetio::ledger::Entry;
use packetio::mux::message::{Change, Hello, Message, Query};
use packetio::text::Text;
use rustix::io::Errno;

use support::netns::can_run;
use support::{Client, World, ask, forgotten, memory, must_be_reset, sealed};

const ADDRINUSE: i32 = 98;
const ADDRNOTAVAIL: i32 = 99;
const HOSTUNREACH: i32 = 113;
const NETDOWN: u16 = 100;
const NOBUFS: i32 = 105;
const NOENT: i32 = 2;

/// Defines tests that need root.
macro_rules! tests {
    ($($name:ident($world:ident) $body:block)*) => {
        $(#[test]
        fn $name() {
            if can_run(stringify!($name)) {
                let mut $world = World::new(stringify!($name));
                let _ = &mut $world;
                $body
            }
        })*
    };
}

tests! {
    application_that_claims_gets_the_port_and_the_kernel_does_not(world) {
        let mut one = world.application();
        assert_eq!(one.claim("10.9.0.1:8080"), 0);
        world.until("claim", |recorded| recorded.claims.len() == 1);
        let bound = world.near.inside(|| TcpListener::bind("10.9.0.1:8080"));
        assert_eq!(bound.unwrap_err().raw_os_error(), Some(ADDRINUSE));
        let bound = world.near.inside(|| TcpListener::bind("0.0.0.0:8080"));
        assert_eq!(bound.unwrap_err().raw_os_error(), Some(ADDRINUSE));
        assert_eq!(one.release("10.9.0.1:8080"), 0);
        assert_eq!(one.release("10.9.0.1:8080"), NOENT);
        world.must_be_free("10.9.0.1:8080");
        assert!(world.plane.recorded(|recorded| recorded.claims.is_empty()));
    }

    bulk_lane_is_for_a_context_that_has_its_port(world) {
        let mut one = world.connect();
        one.hello(2);
        one.send(&Message::BulkAsk { request: 7, context: 1 });
        assert_eq!(one.outcome(7), NOENT);
        one.port(1);
        one.send(&Message::BulkAsk { request: 8, context: 1 });
        assert_eq!(one.answer(), Some(Message::Bulk { request: 8 }));
    }

    port_that_the_kernel_has_is_refused_until_it_is_free(world) {
        let mut one = world.application();
        let listener = world.near.inside(|| TcpListener::bind("10.9.0.1:8080").unwrap());
        assert_eq!(one.claim("10.9.0.1:8080"), ADDRINUSE);
        assert_eq!(one.claim("0.0.0.0:8080"), ADDRINUSE);
        drop(listener);
        world.must_be_free("0.0.0.0:8080");
        let listener = world.near.inside(|| TcpListener::bind("0.0.0.0:8080").unwrap());
        assert_eq!(one.claim("10.9.0.1:8080"), ADDRINUSE);
        drop(listener);
        assert_eq!(one.claim("0.0.0.0:8080"), 0);
    }

    port_in_time_wait_is_refused(world) {
        let listener = world.near.inside(|| TcpListener::bind("10.9.0.1:8080").unwrap());
        let mut peer = world.far.inside(|| TcpStream::connect("10.9.0.1:8080").unwrap());
        drop(listener.accept().unwrap());
        // The server closes first, so that TIME_WAIT is on its side.
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(peer.read_to_end(&mut Vec::new()).unwrap(), 0);
        drop((peer, listener));
        let mut one = world.application();
        assert_eq!(one.claim("10.9.0.1:8080"), ADDRINUSE);
        assert_eq!(one.claim("10.9.0.1:8081"), 0);
    }

    context_beyond_those_that_can_listen_at_a_place_is_told(world) {
        world.leave();
        world.start_with(|options| options.ports = 20);
        let mut one = world.connect();
        one.hello(17);
        for context in 0..17 {
            one.port(context);
            let expected = if context < 16 { 0 } else { NOBUFS };
            assert_eq!(one.claim_for(context, "10.9.0.1:8080"), expected, "{context}");
        }
        assert_eq!(one.claim_for(3, "10.9.0.1:8080"), 0, "once more");
        assert_eq!(one.claim_for(16, "10.9.0.1:8081"), 0);
    }

    claim_of_another_application_is_in_use(world) {
        let (mut one, mut other) = (world.application(), world.application());
        assert_eq!(one.claim("10.9.0.1:8080"), 0);
        assert_eq!(other.claim("10.9.0.1:8080"), ADDRINUSE);
        assert_eq!(other.claim("0.0.0.0:8080"), ADDRINUSE);
        assert_eq!(other.release("10.9.0.1:8080"), NOENT);
        assert_eq!(other.claim("[::]:8080"), 0);
        assert_eq!(one.claim("192.0.2.1:8080"), ADDRNOTAVAIL);
        drop(one);
        world.until("death", |recorded| recorded.claims.len() == 1);
        assert_eq!(other.claim("10.9.0.1:8080"), 0);
    }

    context_opened_again_begins_without_ports(world) {
        let (mut one, mut other) = (world.application(), world.application());
        assert_eq!(one.claim("10.9.0.1:8080"), 0);
        assert_eq!(one.lease(32), Ok(20_000..=20_031));
        one.port(0);
        assert!(world.plane.recorded(|recorded| recorded.claims.is_empty() && recorded.leases.is_empty()));
        assert_eq!(world.plane.recorded(|recorded| recorded.ports.len()), 2);
        assert_eq!(other.claim("10.9.0.1:8080"), 0);
    }

    leases_are_blocks_that_the_kernel_respects(world) {
        let (mut one, mut other) = (world.application(), world.application());
        let taken = world.near.inside(|| TcpListener::bind("10.9.0.1:20005").unwrap());
        assert_eq!(one.lease(32), Ok(20_032..=20_063));
        assert_eq!(other.lease(500), Ok(20_064..=20_127));
        assert_eq!(one.lease(1), Err(ADDRNOTAVAIL));
        assert_eq!(one.claim("10.9.0.1:20100"), ADDRINUSE);
        let bound = world.near.inside(|| TcpListener::bind("10.9.0.1:20032"));
        assert_eq!(bound.unwrap_err().raw_os_error(), Some(ADDRINUSE));
        let reserved = world.near.exec("cat /proc/sys/net/ipv4/ip_local_reserved_ports");
        assert_eq!(reserved.trim(), "20000-20127");
        drop((one, taken));
        world.until("death", |recorded| recorded.leases.len() == 1);
        assert_eq!(other.lease(32), Ok(20_000..=20_031));
    }

    next_hop_is_in_the_table_before_the_answer(world) {
        let mut one = world.application();
        let mac = one.resolve("10.9.0.2").unwrap();
        assert!(world.plane.recorded(|recorded| recorded.next_hops.contains(&mac)));
        assert_eq!(one.resolve("10.9.0.99"), Err(HOSTUNREACH));
        for wrong in ["192.0.2.1", "10.9.0.1", "10.9.0.255", "224.0.0.1", "::1"] {
            assert_eq!(one.resolve(wrong), Err(HOSTUNREACH), "{wrong}");
        }
        drop(one);
        world.until("death", |recorded| recorded.next_hops.is_empty());
    }

    application_that_is_slow_to_read_gets_all_routes(world) {
        let route = |n: u32| format!("route add 172.16.{}.{}/32 dev eth0\n", n / 256, n % 256);
        let routes = (0..1100).map(route);
        let batch = world.run_dir.join("routes");
        std::fs::write(&batch, routes.collect::<String>()).unwrap();
        world.near.exec(&format!("ip -batch {}", batch.display()));
        world.leave();
        world.start();
        let mut one = world.connect();
        one.send(&Message::Hello(Hello { name: Text::new("slow"), contexts: 1 }));
        std::thread::sleep(Duration::from_millis(300));
        one.news(|message| *message == Message::Change(Change::Complete));
        let is_route = |message: &&Message| {
            matches!(message, Message::Change(Change::RouteAdded(_)))
        };
        assert_eq!(one.news.iter().filter(is_route).count(), 1024, "MIRROR_ROUTES_MAX");
    }

    address_that_disappears_revokes_its_claims(world) {
        world.near.ip("address add 10.9.1.1/24 dev eth0");
        let mut one = world.application();
        one.claim("0.0.0.0:8080");
        let address: std::net::IpAddr = "10.9.1.1".parse().unwrap();
        world.until("address", |recorded| recorded.addresses.contains(&address));
        assert_eq!(one.claim("10.9.1.1:9090"), 0);
        world.near.ip("address del 10.9.1.1/24 dev eth0");
        let revoke = one.news(|message| matches!(message, Message::Revoke { .. }));
        assert!(matches!(revoke, Message::Revoke { tuple, errno: NETDOWN } if tuple.port == 9090));
        one.news(|message| matches!(message, Message::Change(Change::AddressRemoved { .. })));
        assert_eq!(world.plane.recorded(|recorded| recorded.claims.len()), 1);
        assert_eq!(one.claim("10.9.1.1:9090"), ADDRNOTAVAIL);
    }

    address_that_comes_back_with_another_prefix_keeps_its_claims(world) {
        world.near.ip("address add 10.9.1.1/24 dev eth0");
        let mut one = world.application();
        let address: std::net::IpAddr = "10.9.1.1".parse().unwrap();
        world.until("address", |recorded| recorded.addresses.contains(&address));
        assert_eq!(one.claim("10.9.1.1:9090"), 0);
        world.near.ip("address del 10.9.1.1/24 dev eth0");
        std::thread::sleep(Duration::from_millis(200));
        assert!(world.plane.recorded(|recorded| recorded.addresses.contains(&address)));
        world.near.ip("address add 10.9.1.1/16 dev eth0");
        let added = Change::AddressAdded { address, prefix: 16 };
        one.news(|message| *message == Message::Change(added));
        // Longer than the time for which an address may be away.
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(one.claim("10.9.0.1:9091"), 0);
        let is_loss = |message: &Message| {
            let removed = matches!(message, Message::Change(Change::AddressRemoved { .. }));
            removed || matches!(message, Message::Revoke { .. })
        };
        assert!(!one.news.iter().any(is_loss), "{:?}", one.news);
        assert_eq!(world.plane.recorded(|recorded| recorded.claims.len()), 2);
    }

    mtu_beyond_what_virtual_ports_carry_is_said_and_cut(world) {
        let mut one = world.application();
        world.far.ip("link set eth0 mtu 9000");
        world.near.ip("link set eth0 mtu 9000");
        one.news(|message| *message == Message::Change(Change::Mtu(3498)));
        assert_eq!(world.plane.recorded(|recorded| recorded.host.map(|(_, mtu)| mtu)), Some(3498));
        assert!(support::was_said("MTU 9000"));
        let mut two = world.connect();
        assert_eq!(two.hello(1).mtu, 3498);
        let told = two.news.iter().find(|one| matches!(one, Message::Change(Change::Mtu(_))));
        assert_eq!(told, Some(&Message::Change(Change::Mtu(3498))));
    }

    next_hop_that_never_answers_is_forgotten(world) {
        let mut one = world.application();
        assert_eq!(one.resolve("10.9.0.99"), Err(HOSTUNREACH));
        let has_it = || world.near.exec("ip neigh show dev eth0").contains("10.9.0.99");
        assert!(has_it());
        let end = std::time::Instant::now() + Duration::from_secs(40);
        while has_it() {
            assert!(std::time::Instant::now() < end, "the kernel goes on asking for it");
            std::thread::sleep(Duration::from_millis(200));
        }
        let status = ask(&world, Query::Status);
        assert!(status.contains("\"next_hops_forgotten\":1"), "{status}");
        one.resolve("10.9.0.2").unwrap();
    }

    broadcast_address_goes_with_its_subnet(world) {
        world.near.ip("address add 10.9.1.1/24 broadcast 10.9.1.255 dev eth0");
        let broadcast: std::net::IpAddr = "10.9.1.255".parse().unwrap();
        world.until("address", |recorded| recorded.addresses.contains(&broadcast));
        world.near.ip("address del 10.9.1.1/24 dev eth0");
        world.until("no address", |recorded| !recorded.addresses.contains(&broadcast));
        let stays = "10.9.0.1".parse().unwrap();
        assert!(world.plane.recorded(|recorded| recorded.addresses.contains(&stays)));
    }

    rights_of_the_service_before_end_with_their_causes(world) {
        let mut one = world.connect();
        let number = one.hello(1).application;
        let (socket, _) = one.port(0);
        let used = one.resolve("10.9.0.2").unwrap();
        world.leave();
        let unused = packetio::MacAddr([2, 0, 0, 0, 0, 9]);
        let gone: std::net::IpAddr = "10.9.1.1".parse().unwrap();
        world.plane.recorded(|recorded| {
            recorded.addresses.push(gone);
            recorded.next_hops.push(unused);
        });
        world.start();
        world.until("address", |recorded| !recorded.addresses.contains(&gone));
        let mut again = world.connect();
        again.hello(1);
        assert_eq!(again.come_back(number, &socket), 0);
        assert_eq!(again.resolve("10.9.0.2"), Ok(used));
        world.until("next hop", |recorded| !recorded.next_hops.contains(&unused));
        assert!(world.plane.recorded(|recorded| recorded.next_hops.contains(&used)));
    }

    interface_removed_and_back_is_told(world) {
        let mut one = world.application();
        world.near.ip("link del eth0");
        one.news(|message| *message == Message::Change(Change::Gone));
        world.near.ip(&format!(
            "link add eth0 type veth peer name eth0 netns {}", world.far.name
        ));
        one.news(|message| *message == Message::Change(Change::Complete));
        world.near.ip("address add 10.9.0.1/24 dev eth0");
        one.news(|message| matches!(message, Message::Change(Change::AddressAdded { .. })));
        assert_eq!(one.claim("10.9.0.1:8080"), 0);
    }

    application_killed_leaves_nothing_and_its_peers_are_reset(world) {
        let mut one = world.application();
        let (peer, entry) = forgotten(&world);
        assert_eq!(one.claim("10.9.0.1:8081"), 0);
        assert_eq!(one.lease(32), Ok(20_000..=20_031));
        one.write_ledger(&entry);
        drop(one);
        must_be_reset(peer);
        world.until("death", |recorded| {
            recorded.claims.is_empty() && recorded.leases.is_empty() && recorded.ports.is_empty()
        });
        world.must_be_free("10.9.0.1:20000");
    }

    ledger_of_foreign_ends_sends_nothing(world) {
        world.near.ip(&format!("link add eth1 type veth peer name eth1 netns {}", world.far.name));
        world.near.ip("address add 10.8.0.1/24 dev eth1");
        world.near.ip("link set eth1 up");
        world.far.ip("link set eth1 up");
        world.near.ip("link set lo up");
        let mut one = world.application();
        assert_eq!(one.lease(32), Ok(20_000..=20_031));
        for (index, (local, remote)) in [
            ("8.8.8.8:20000", "10.9.0.2:9"),
            ("10.8.0.1:20000", "10.9.0.2:9"),
            ("10.9.0.1:20040", "10.9.0.2:9"),
            ("10.9.0.1:20001", "10.8.0.2:9"),
            ("10.9.0.1:20001", "224.0.0.5:9"),
            ("10.9.0.1:20001", "127.0.0.1:9"),
            ("10.9.0.1:20001", "10.9.0.1:9"),
            ("10.9.0.1:20001", "10.9.0.2:9"),
        ].into_iter().enumerate() {
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            one.write_ledger_at(index as u32, &Entry { local, remote });
        }
        let watcher = world.near.inside(watcher);
        drop(one);
        // Both rounds, and some time.
        let seen = segments_of_leases(&watcher, Duration::from_millis(1500));
        let own = ("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
        assert_eq!(seen, std::collections::BTreeSet::from([own]));
    }

    both_ends_die_and_the_next_service_has_the_peers(world) {
        let mut one = world.application();
        let (peer, entry) = forgotten(&world);
        assert_eq!(one.claim("10.9.0.1:8081"), 0);
        one.write_ledger(&entry);
        world.leave();
        drop(one);
        world.start();
        // The next service waits five seconds for the application.
        must_be_reset(peer);
        world.until("burial", |recorded| recorded.ports.is_empty() && recorded.ledgers.is_empty());
        world.must_be_free("10.9.0.1:8081");
    }

    address_added_later_belongs_to_the_wildcard_of_either_side(world) {
        let mut one = world.application();
        assert_eq!(one.claim("0.0.0.0:8080"), 0);
        let kernels = world.near.inside(|| TcpListener::bind("0.0.0.0:8081").unwrap());
        one.news.clear();
        world.near.ip("address add 10.9.1.1/24 dev eth0");
        one.news(|message| matches!(message, Message::Change(Change::AddressAdded { .. })));
        let bound = world.near.inside(|| TcpListener::bind("10.9.1.1:8080"));
        assert_eq!(bound.unwrap_err().raw_os_error(), Some(ADDRINUSE));
        assert_eq!(one.claim("10.9.1.1:8081"), ADDRINUSE);
        // As with two sockets of the kernel: the wildcard covers the address.
        assert_eq!(one.claim("10.9.1.1:8080"), ADDRINUSE);
        drop(kernels);
        world.must_be_free("10.9.1.1:8081");
        assert_eq!(one.claim("10.9.1.1:8081"), 0);
        let bound = world.near.inside(|| TcpListener::bind("0.0.0.0:8081"));
        assert_eq!(bound.unwrap_err().raw_os_error(), Some(ADDRINUSE));
        // Another address is another endpoint.
        let bound = world.near.inside(|| TcpListener::bind("10.9.0.1:8081"));
        assert!(bound.is_ok());
    }

    place_revoked_with_its_address_is_granted_again_when_it_is_back(world) {
        world.near.ip("address add 10.9.1.1/24 dev eth0");
        let mut one = world.application();
        let address: std::net::IpAddr = "10.9.1.1".parse().unwrap();
        world.until("address", |recorded| recorded.addresses.contains(&address));
        assert_eq!(one.claim("10.9.1.1:9090"), 0);
        world.near.ip("address del 10.9.1.1/24 dev eth0");
        one.news(|message| matches!(message, Message::Revoke { .. }));
        one.news.clear();
        world.near.ip("address add 10.9.1.1/24 dev eth0");
        let is_back = |message: &Message| matches!(
            message, Message::Change(Change::AddressAdded { address: told, .. }) if *told == address
        );
        one.news(is_back);
        // Notifications come first, so that the claim finds the address.
        assert_eq!(one.claim("10.9.1.1:9090"), 0);
    }

    lease_given_back_is_the_next_one_s_and_only_its_holder_gives_it(world) {
        let (mut one, mut other) = (world.application(), world.application());
        assert_eq!(one.lease(32), Ok(20_000..=20_031));
        assert_eq!(one.lease(96), Ok(20_032..=20_127));
        assert_eq!(other.give_back(20_032..=20_127), NOENT);
        assert_eq!(one.give_back(20_032..=20_063), NOENT, "not the whole lease");
        assert_eq!(other.lease(32), Err(ADDRNOTAVAIL));
        assert_eq!(one.give_back(20_032..=20_127), 0);
        assert_eq!(other.lease(96), Ok(20_032..=20_127));
        let reserved = world.near.exec("cat /proc/sys/net/ipv4/ip_local_reserved_ports");
        assert_eq!(reserved.trim(), "20000-20127");
    }

    application_outlives_the_service_and_shows_its_socket(world) {
        let mut one = world.connect();
        let number = one.hello(1).application;
        let (socket, _) = one.port(0);
        assert_eq!(one.claim("10.9.0.1:8080"), 0);
        assert_eq!(one.lease(32), Ok(20_000..=20_031));
        let mut dead = world.application();
        assert_eq!(dead.claim("10.9.0.1:8082"), 0);
        world.leave();
        assert!(one.is_disconnected());
        assert!(one.news.contains(&Message::Stopping { stays: true }));
        drop(dead);
        world.must_be_free("10.9.0.1:8080");
        world.start();
        // The ports stay the application's until it is back.
        let mut other = world.application();
        assert_eq!(other.claim("10.9.0.1:8080"), ADDRINUSE);
        let mut again = world.connect();
        again.hello(1);
        let recover = Message::Recover { request: 9, application: number, context: 0 };
        again.channel.send(&recover, Some(sealed(4096).as_fd())).unwrap_or(());
        assert!(again.is_disconnected());
        let mut again = world.connect();
        again.hello(1);
        let wrong = Message::Recover { request: 9, application: 77, context: 0 };
        again.channel.send(&wrong, Some(socket.as_fd())).unwrap();
        assert_eq!(again.outcome(9), NOENT);
        again.channel.send(&recover, Some(socket.as_fd())).unwrap();
        assert_eq!(again.outcome(9), 0);
        assert_eq!(again.release("10.9.0.1:8080"), 0);
        // The application that did not come back counts as dead after five seconds.
        world.until("burial", |recorded| recorded.claims.is_empty());
        assert_eq!(other.claim("10.9.0.1:8082"), 0);
        assert_eq!(world.plane.recorded(|recorded| recorded.leases.len()), 1);
    }

    application_that_may_be_a_lost_one_gets_no_port_of_another(world) {
        world.leave();
        world.start_with(|options| options.ports = 2);
        let mut one = world.connect_as(1234);
        let number = one.hello(1).application;
        let (socket, _) = one.port(0);
        world.leave();
        drop(one);
        world.start_with(|options| options.ports = 2);
        assert!(world.connect_as(1234).is_too_many(60_000));
        assert!(world.connect_as(1234).is_too_many(2));
        let mut again = world.connect_as(1234);
        again.hello(1);
        assert!(world.connect_as(1234).is_too_many(1), "one was lost");
        again.ask_port(memory(0));
        let errno = Errno::BUSY.raw_os_error() as u16;
        assert_eq!(again.answer(), Some(Message::Refused { request: 0, errno }));
        assert_eq!(again.come_back(number, &socket), 0);
        again.port(0);
    }

    client_with_ports_of_its_own_is_no_lost_application(world) {
        let mut one = world.connect();
        let number = one.hello(1).application;
        let (socket, _) = one.port(0);
        world.leave();
        drop(one);
        world.start();
        let mut two = world.connect();
        two.hello(1);
        two.port(0);
        assert_eq!(two.claim("10.9.0.1:8080"), 0);
        assert_eq!(two.come_back(number, &socket), NOENT);
        drop(two);
        world.until("death", |recorded| recorded.claims.is_empty());
        world.must_be_free("10.9.0.1:8080");
        let mut holder = world.connect();
        holder.hello(1);
        assert_eq!(holder.hold("10.9.0.1:8080"), 0);
        assert_eq!(holder.come_back(number, &socket), NOENT, "an endpoint is something, too");
        let mut more = world.connect();
        more.hello(2);
        assert_eq!(more.come_back(number, &socket), NOENT, "it had one context");
        let mut again = world.connect();
        again.hello(1);
        assert_eq!(again.come_back(number, &socket), 0);
    }

    virtual_ports_in_use_refuse_the_next_application(world) {
        let mut all: Vec<Client> = (0..4).map(|_| world.application()).collect();
        let mut next = world.connect();
        next.send(&Message::Hello(Hello { name: Text::new("late"), contexts: 1 }));
        let busy = Errno::BUSY.raw_os_error() as u16;
        assert_eq!(next.answer(), Some(Message::Refused { request: 0, errno: busy }));
        assert!(next.is_disconnected());
        all.pop();
        world.until("death", |recorded| recorded.ports.len() == 3);
        world.application();
    }

    person_who_asks_gets_json_and_stop_removes_everything(world) {
        let mut one = world.application();
        one.claim("10.9.0.1:8080");
        one.lease(32).unwrap();
        let text = ask(&world, Query::Status);
        for part in ["\"eth0\"", "10.9.0.1:8080", "20000", "foreign_port", "\"connected\""] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("\"runt\""), "a reason: {text}");
        assert!(!text.contains("\"runt\":"), "a count of nothing: {text}");
        assert!(ask(&world, Query::Ports).contains("8080"));
        assert!(ask(&world, Query::Drops).contains("fragment"));
        // The kernel reports late that the link is up.
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while !ask(&world, Query::Check).contains("\"ok\":true") {
            assert!(std::time::Instant::now() < end, "{}", ask(&world, Query::Check));
        }
        ask(&world, Query::Stop);
        world.join();
        assert!(one.is_disconnected());
        assert!(one.news.contains(&Message::Stopping { stays: false }));
        assert!(world.plane.recorded(|recorded| recorded.is_closed && recorded.claims.is_empty()));
        assert!(!std::path::Path::new(&world.socket).exists());
        let reserved = world.near.exec("cat /proc/sys/net/ipv4/ip_local_reserved_ports");
        assert_eq!(reserved.trim(), "");
    }
}

/// A packet socket that sees all interfaces of the calling thread's namespace.
fn watcher() -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};
    // ETH_P_ALL
    let all = std::num::NonZero::new(3u32.swap_bytes() >> 16).map(Protocol::from_raw);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, all).unwrap()
}

/// Source and destination of IPv4 segments from leased ports that are seen for so long.
fn segments_of_leases(
    watcher: &std::os::fd::OwnedFd,
    time: Duration,
) -> std::collections::BTreeSet<(std::net::Ipv4Addr, std::net::Ipv4Addr)> {
    let end = std::time::Instant::now() + time;
    let mut seen = std::collections::BTreeSet::new();
    let mut bytes = [0; 2048];
    while std::time::Instant::now() < end {
        let flags = rustix::net::RecvFlags::empty();
        let Ok((_, length)) = rustix::net::recv(watcher, &mut bytes, flags) else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let is_segment = length >= 40 && bytes[0] == 0x45 && bytes[9] == 6;
        let port = u16::from_be_bytes([bytes[20], bytes[21]]);
        if is_segment && (20_000..=20_127).contains(&port) {
            let address = |at: usize| <[u8; 4]>::try_from(&bytes[at..at + 4]).unwrap().into();
            seen.insert((address(12), address(16)));
        }
    }
    seen
}
