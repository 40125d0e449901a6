//! Valid specifications, and the errors for invalid ones.

use super::*;
use crate::fault::Ratio;
use crate::memif::MemifRole;
use crate::port::MacAddr;
use crate::xdp::XdpMode;

fn spec(text: &str) -> WireSpec {
    match text.parse() {
        Ok(spec) => spec,
        Err(e) => panic!("{e}"),
    }
}

fn error(text: &str) -> String {
    match text.parse::<WireSpec>() {
        Ok(spec) => panic!("{text} was taken as {spec:?}"),
        Err(e) => e.to_string(),
    }
}

fn assert_refused(text: &str, said: &str) {
    let error = error(text);
    assert!(error.contains(said), "{text}: {error}");
    assert!(error.starts_with(&format!("wire \"{text}\": ")), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn spec_xdp_with_all_keys() {
    let Backend::Xdp(o) = spec("xdp:eth0,mode=native,queues=4,queue=2,zerocopy=off").backend else {
        panic!("not xdp")
    };
    assert_eq!((o.interface.as_str(), o.mode), ("eth0", XdpMode::Native));
    assert_eq!((o.queues, o.queue), (Some(4), Some(2)));
}

#[test]
fn spec_xdp_with_a_mirror_has_a_host() {
    for (text, has_host) in [
        ("xdp:eth0", false),
        ("xdp:eth0,mirror", true),
        ("xdp:eth0,mirror=yes", true),
        ("xdp:eth0,mirror=no", false),
        ("mux:", true),
        ("tap:x", false),
    ] {
        assert_eq!(spec(text).has_host(), has_host, "{text}");
    }
    assert_eq!(
        spec("xdp:x,mirror,ring=64").to_string(),
        "xdp:x,ring=64,mirror"
    );
    assert_refused("tap:x,mirror", "unknown key mirror");
}

#[test]
fn spec_memif_with_all_keys() {
    let text = "memif:/run/m.sock,role=client,id=3,ring=512,buffer=4096,queues=2,secret=s,mac=02:00:00:00:00:0a";
    let Backend::Memif(o) = spec(text).backend else {
        panic!("not memif")
    };
    assert_eq!(
        (o.path.as_str(), o.role, o.id),
        ("/run/m.sock", MemifRole::Client, 3)
    );
    assert_eq!(
        (o.ring_slots, o.buffer_bytes, o.queues),
        (Some(512), 4096, 2)
    );
    assert_eq!(o.mac, Some(MacAddr([2, 0, 0, 0, 0, 10])));
}

#[test]
fn spec_dpdk_leaves_the_rest_of_the_line_to_eal() {
    let text = "dpdk:dpdk3,queues=4,mtu=9000,plugin=/opt/p.so,loss=1%,eal=--no-huge --vdev=net_memif0,role=client,loss=x -n 4";
    let spec = spec(text);
    let Backend::Dpdk(o) = spec.backend else {
        panic!("not dpdk")
    };
    assert_eq!((o.port.as_str(), o.queues, o.mtu), ("3", 4, Some(9000)));
    assert_eq!(o.plugin, Some(PathBuf::from("/opt/p.so")));
    assert_eq!(o.eal, "--no-huge --vdev=net_memif0,role=client,loss=x -n 4");
    assert!(spec.fault.is_some());
}

#[test]
fn spec_wrappers_apply_to_both_or_one_direction() {
    let spec = spec(
        "tap:mill0,loss=1%,rx.delay=5ms,tx.rate=100mbit,seed=9,pcap=/tmp/a.pcapng,checksum=partial",
    );
    let fault = spec.fault.expect("fault");
    assert_eq!(
        (fault.seed, fault.rx.loss, fault.tx.loss),
        (9, Ratio::from_ppm(10_000), Ratio::from_ppm(10_000))
    );
    assert_eq!((fault.rx.delay_ns, fault.tx.delay_ns), (5_000_000, 0));
    assert_eq!((fault.rx.rate_bits, fault.tx.rate_bits), (0, 100_000_000));
    assert_eq!(spec.checksum, Some(ChecksumPolicy::AcceptPartial));
    assert_eq!(spec.pcap, Some(PathBuf::from("/tmp/a.pcapng")));
}

#[test]
fn spec_printed_parses_to_the_same() {
    for text in [
        "xdp:eth0",
        "xdp:eth0,mode=generic,queues=4,queue=2,ring=8192,zerocopy=off",
        "xdp:eth0,bulk=off",
        "xdp:eth0,zerocopy=off,bulk=off,mirror",
        "memif:/run/m.sock",
        "memif:@abstract,role=client,id=3,ring=512,buffer=4096,queues=2,secret=s,mac=02:00:00:00:00:0a",
        "tap:mill0,mac=02:00:00:00:00:01,mtu=9000,up=yes,queues=2",
        "packet:veth1,promiscuous=no",
        "packet:veth1,offload=off",
        "packet:veth1,queues=2",
        "tap:mill0,offload=off",
        "dpdk:0",
        "dpdk:0,mtu=1400,offload=off",
        "dpdk:0000:3b:00.0,queues=4,mtu=9000,plugin=/opt/p.so",
        "dpdk:net_tap0,checksum=partial,pcap=x,eal=--no-huge --vdev=net_tap0,iface=a,mac=fixed",
        "loopback",
        "loopback:a,mtu=9000",
        "loopback:a,batch=256",
        "loopback,checksum=trust,seed=3,slots=16,loss=0.01,dup=0.5,reorder=1,corrupt=0.25,delay=5ms,jitter=100us,rate=1gbit,limit=64kb,pcap=x",
        "loopback,seed=1,rx.loss=0.01,tx.delay=1500ns",
    ] {
        assert_eq!(spec(text).to_string(), text);
        assert_eq!(spec(&spec(text).to_string()), spec(text));
    }
}

#[test]
fn spec_ring_that_cannot_be_says_why() {
    let rows = [
        ("xdp:x,ring=1000", "ring=1000 is not a power of two"),
        (
            "xdp:x,ring=32",
            "\"ring=32\" (column 7): expected a number from 64 to 65536",
        ),
        ("xdp:x,ring=131072", "expected a number from 64 to 65536"),
        ("xdp:x,ring=", "expected a number from 64 to 65536"),
        ("memif:x,ring=1000", "ring=1000 is not a power of two"),
        ("tap:x,ring=64", "unknown key ring"),
    ];
    for (text, said) in rows {
        let told = error(text);
        assert!(told.contains(said), "{text}: {told}");
    }
}

/// The error for each bad key names the part, its column and what was expected, in one line.
#[test]
fn spec_wrong_says_what_and_where() {
    let rows = [
        ("", "expected xdp:IFACE"),
        ("etherwire:x", "expected xdp:IFACE"),
        ("tap", "expected a name, as in tap:NAME"),
        ("tap:", "name is missing"),
        ("tap:a-very-long-interface-name", "at most 15 bytes"),
        ("tap:a b", "no '/', ':' or space"),
        ("tap:..", "no interface has this name"),
        ("memif:", "expected a socket path"),
        ("tap:x,", "\"\" (column 7): expected KEY=VALUE"),
        ("tap:x,up", "\"up\" (column 7): expected KEY=VALUE"),
        (
            "tap:x,losss=1",
            "\"losss=1\" (column 7): unknown key losss; known here: mac, mtu",
        ),
        ("tap:x,rx.mtu=1", "unknown key rx.mtu"),
        ("tap:x,mode=auto", "unknown key mode"),
        (
            "tap:x,loss=1,loss=1",
            "\"loss=1\" (column 14): loss is given twice",
        ),
        (
            "tap:x,loss=2",
            "\"loss=2\" (column 7): expected a probability from 0 to 1",
        ),
        ("tap:x,dup=-1", "expected a probability"),
        ("tap:x,reorder=x", "expected a probability"),
        (
            "tap:x,rx.corrupt=x",
            "\"rx.corrupt=x\" (column 7): expected a probability",
        ),
        ("tap:x,delay=5", "expected a time with its unit"),
        ("tap:x,jitter=5mbit", "expected a time with its unit"),
        ("tap:x,tx.rate=100", "expected a rate with its unit"),
        ("tap:x,limit=64", "expected a size with its unit"),
        ("tap:x,seed=x", "expected a number from 0 to"),
        ("tap:x,slots=0", "expected a number from 1 to"),
        ("tap:x,checksum=no", "expected verify or partial or trust"),
        ("tap:x,pcap=", "expected a file name"),
        ("tap:x,mac=1", "expected a MAC address"),
        ("tap:x,mac=01:00:00:00:00:01", "no unicast MAC address"),
        ("tap:x,mac=02:00:00:00:00:01:02", "expected a MAC address"),
        ("tap:x,mtu=67", "expected a number from 68 to"),
        ("tap:x,up=maybe", "expected yes or no"),
        ("tap:x,queues=0", "expected a number from 1 to 256"),
        ("packet:x,promiscuous=1", "expected yes or no"),
        ("xdp:x,mode=fast", "expected auto or native or generic"),
        ("xdp:x,queues=x", "expected a number"),
        ("xdp:x,queue=256", "expected a number from 0 to 255"),
        ("xdp:x,zerocopy=on", "expected auto or off"),
        ("xdp:x,bulk=on", "expected auto or off"),
        ("memif:x,role=master", "expected server or client"),
        ("memif:x,id=-1", "expected a number"),
        ("memif:x,ring=1000", "ring=1000 is not a power of two"),
        ("memif:x,buffer=1", "expected a number from 64 to"),
        ("memif:x,queues=0", "expected a number"),
        (
            "memif:x,secret=1234567890123456789012345",
            "at most 24 bytes",
        ),
        ("loopback,mtu=x", "expected a number"),
    ];
    for (text, said) in rows {
        assert_refused(text, said);
    }
}

#[test]
fn spec_dpdk_wrong_says_what_and_where() {
    let rows = [
        ("dpdk", "expected a name, as in dpdk:NAME"),
        ("dpdk:", "the port's number or name is missing"),
        ("dpdk:a b", "a port's name has no space"),
        ("dpdk:0,queues=0", "expected a number from 1 to 256"),
        ("dpdk:0,plugin=", "expected a file name"),
        (
            "dpdk:0,role=client",
            "known here: queues, mtu, offload, plugin, eal",
        ),
        (
            "tap:x,eal=-n 4,mtu=9",
            "\"eal=-n 4,mtu=9\" (column 7): unknown key eal",
        ),
    ];
    for (text, said) in rows {
        assert_refused(text, said);
    }
}
