//! The two grammars, key by key, and every error with file and line.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use millstream::rules::RuleAction;

use super::*;

/// A directory of this test with the given files.
fn directory(test: &str, files: &[(&str, &str)]) -> PathBuf {
    let name = format!("capi-config-{}-{test}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(directory.join("config")).unwrap();
    for (name, text) in files {
        fs::write(directory.join(name), text).unwrap();
    }
    directory
}

fn read(test: &str, files: &[(&str, &str)]) -> Result<Settings, String> {
    let directory = directory(test, files);
    let settings = Settings::read(&directory.join(files[0].0));
    let said = settings.map_err(|problem| {
        let place = format!("{}/", directory.display());
        problem.to_string().replace(&place, "")
    });
    fs::remove_dir_all(&directory).unwrap();
    said
}

fn refused(test: &str, text: &str) -> String {
    read(test, &[("a.conf", text)]).unwrap_err()
}

const BEFORE: Conf = Conf {
    num_cores: 1,
    max_concurrency: 2,
    max_num_buffers: 3,
    rcvbuf_size: 4,
    sndbuf_size: 5,
    tcp_timewait: 6,
    tcp_timeout: 7,
};

#[test]
fn file_of_mtcp_s_own_form_is_understood() {
    let text = "# a comment\n\
        io = memif   # behind it another\n\
        port=/run/a.sock,role=client\n\
        num_cores 8\n\
        core_mask = 0xff\n\
        max_concurrency = 20000\n\
        max_num_buffers = 30000\n\
        rcvbuf = 8192\n\
        sndbuf = 4096\n\
        tcp_timeout = 30\n\
        tcp_timewait = 0\n\
        cc = reno\n\
        ip_addr = 10.0.0.2/24 fd00::2/64\n\
        gateway = 10.0.0.1\n\
        crank = dedicated\n\
        hugetlb = require\n\
        cores = 0-6,1\n\
        spin_us = 50\n\
        return_memory_s = 7\n\
        story_one_in = 100\n\
        stat_print = dpdk0 dpdk1\n\
        num_mem_ch = 4\n\
        multiprocess = 0 master\n\
        num_ip = 1\n\
        onvm_inst = 1\n\
        onvm_serv = 1\n\
        onvm_dest = 2\n";
    let settings = read("whole", &[("a.conf", text)]).unwrap();
    assert_eq!(settings.io, Some((Io::Memif, 2)));
    assert_eq!(settings.ports, ["/run/a.sock,role=client"]);
    assert_eq!(settings.addresses.len(), 2);
    assert!(settings.is_dedicated && settings.spin_us == Some(50));
    let conf = settings.conf(BEFORE);
    let expected = Conf {
        num_cores: 8,
        max_concurrency: 20_000,
        max_num_buffers: 30_000,
        rcvbuf_size: 8_192,
        sndbuf_size: 4_096,
        tcp_timewait: 0,
        tcp_timeout: 30,
    };
    assert_eq!(conf, expected);
    let settings = settings.complete().unwrap();
    let warning = settings.warning().unwrap();
    let expected = "a.conf: without meaning here: core_mask (line 5), num_mem_ch (line 22), multiprocess (line 23), \
        num_ip (line 24), onvm_inst (line 25), onvm_serv (line 26), onvm_dest (line 27): see mtcp(7)";
    assert!(warning.ends_with(expected), "{warning}");
    assert!(settings.prints_statistics);
    let config = settings.config(&conf).unwrap();
    assert_eq!(config.wire.to_string(), "memif:/run/a.sock,role=client");
    assert_eq!((config.contexts, &config.cores[5..]), (8, &[5, 6, 1][..]));
    assert_eq!(config.hugetlb, millstream::HugePages::Require);
    assert_eq!(config.return_memory_ns, 7_000_000_000);
    assert_eq!(config.story_one_in, 100);
    assert_eq!(config.tcp.recv_buffer.bytes_max, 16_384);
}

#[test]
fn cores_without_num_cores_make_a_context_each() {
    let text = "io = \"loopback\"\ncores = [1, 0]\nhugetlb = \"off\"\n";
    let settings = read("cores", &[("a.toml", text)]).unwrap();
    let conf = settings.conf(BEFORE);
    let config = settings.complete().unwrap().config(&conf).unwrap();
    assert_eq!((config.contexts, config.cores), (2, vec![1, 0]));
    assert_eq!(config.hugetlb, millstream::HugePages::Off);
}

#[test]
fn several_ports_have_an_address_each_and_share_gateways_and_neighbours_by_subnet() {
    let text = "io = memif\n\
        port = /run/a.sock /run/b.sock,role=client\n\
        ip_addr = 10.0.0.2/24 10.0.1.2/24\n\
        gateway = 10.0.1.1\n";
    let mut settings = read("ports", &[("a.conf", text)]).unwrap();
    settings
        .neighbours
        .push(([10, 0, 1, 9].into(), [0, 0, 0, 0, 0, 1]));
    let settings = settings.complete().unwrap();
    let config = settings.config(&BEFORE).unwrap();
    assert_eq!(config.wire.to_string(), "memif:/run/a.sock");
    assert_eq!(config.addresses, ["10.0.0.2/24".parse().unwrap()]);
    assert!(config.gateways.is_empty() && config.neighbours.is_empty());
    let [second] = &config.further_wires[..] else {
        panic!("two ports: {:?}", config.further_wires);
    };
    assert_eq!(second.wire.to_string(), "memif:/run/b.sock,role=client");
    assert_eq!(second.port.addresses, ["10.0.1.2/24".parse().unwrap()]);
    assert_eq!(second.port.gateways, [IpAddr::from([10, 0, 1, 1])]);
    assert_eq!(second.port.neighbours.len(), 1);
}

#[test]
fn several_ports_with_another_number_of_addresses_are_refused() {
    let text = "io = memif\nport = /run/a.sock /run/b.sock\nip_addr = 10.0.0.2/24\n";
    let settings = read("one-address", &[("a.conf", text)]).unwrap();
    let said = settings.complete().unwrap_err().to_string();
    assert!(
        said.ends_with("a.conf:2: ip_addr: 1 addresses for 2 ports: each port has one"),
        "{said}"
    );
}

#[test]
fn key_not_given_keeps_what_was_before() {
    let settings = read("empty", &[("a.conf", "\n# nothing\n")]).unwrap();
    assert_eq!(settings.conf(BEFORE), BEFORE);
}

#[test]
fn buffer_given_alone_sizes_the_other() {
    let settings = read("alone", &[("a.conf", "sndbuf = 2048")]).unwrap();
    let conf = settings.conf(BEFORE);
    assert_eq!((conf.rcvbuf_size, conf.sndbuf_size), (2_048, 2_048));
}

#[test]
fn connections_given_alone_have_a_buffer_each() {
    let settings = read("buffers", &[("a.conf", "max_concurrency = 30000")]).unwrap();
    let conf = settings.conf(BEFORE);
    assert_eq!(
        (conf.max_concurrency, conf.max_num_buffers),
        (30_000, 30_000)
    );
}

#[test]
fn few_connections_are_enough() {
    let settings = read("few", &[("a.conf", "max_concurrency = 3")]).unwrap();
    assert_eq!(settings.max_concurrency, Some(3));
}

#[test]
fn toml_says_the_same() {
    let text = "io = \"memif\"\n\
        port = \"/run/a.sock\"\n\
        num_cores = 2\n\
        ip_addr = [\"10.0.0.2/24\", \"fd00::2/64\"]\n\
        routes = [\"10.0.1.0/24\", \"10.0.0.1/0\"]\n\
        arp = [\"10.0.0.1/32 00:00:00:00:00:01\"]\n";
    let settings = read("toml", &[("a.toml", text)]).unwrap();
    assert_eq!(settings.num_cores, Some(2));
    assert_eq!(settings.addresses.len(), 2);
    assert_eq!(settings.on_link.len(), 1);
    assert_eq!(settings.gateways, [IpAddr::from([10, 0, 0, 1])]);
    assert_eq!(settings.neighbours.len(), 1);
}

#[test]
fn toml_has_packet_rules_among_its_keys() {
    let text = "io = \"memif\"\nport = \"/run/a.sock\"\nip_addr = \"10.0.0.2/24\"\n\
        rule_default = \"reject\"\n[[rule]]\nsource = \"10.0.0.0/24\"\n";
    let settings = read("toml-rules", &[("a.toml", text)]).unwrap();
    let config = settings.config(&Conf::new()).unwrap();
    assert_eq!(config.rules.rules.len(), 1);
    assert_eq!(config.rules.default_action, RuleAction::Reject);
}

#[test]
fn toml_that_is_wrong_names_its_line() {
    let cases = [
        (
            "io = \"memif\"\n[[rule]]\nprot = 6\n",
            "a.toml:3: prot: there is no such key",
        ),
        ("io = \"memif\"\nnum_cores = \"x\"\n", "a.toml:2: num_cores"),
        ("\n\nwidth = 3\n", "a.toml:3: width: there is no such key"),
        ("io = true\n", "a.toml:1: io: expected a number"),
        ("io = \"xdp\"\nport =\n", "a.toml:2: "),
    ];
    for (text, expected) in cases {
        let said = read("toml-wrong", &[("a.toml", text)]).unwrap_err();
        assert!(said.starts_with(expected), "{text}: {said}");
    }
}

#[test]
fn value_that_is_wrong_stops_with_file_and_line() {
    let cases = [
        ("num_cores = 0", "num_cores"),
        ("num_cores = many", "num_cores"),
        (
            "cores = 1,x",
            "cores: \"x\": expected CPUs such as 2,3 or 0-3",
        ),
        (
            "hugetlb = on",
            "hugetlb: \"on\": expected auto, require, transparent or off",
        ),
        ("max_concurrency = 5000000", "max_concurrency"),
        ("max_num_buffers = -1", "max_num_buffers"),
        ("rcvbuf = 63", "rcvbuf"),
        ("sndbuf = 1x", "sndbuf"),
        ("tcp_timeout = -2", "tcp_timeout"),
        ("tcp_timewait = -1", "tcp_timewait"),
        ("io = carrier", "io"),
        ("io = netmap", "io"),
        ("cc = fast", "cc"),
        ("core_mask = xyz", "core_mask"),
        ("num_mem_ch = four", "num_mem_ch"),
        ("ip_addr = 10.0.0.2/33", "ip_addr"),
        (
            "ip_addr = 10.0.0.2/255.0.255.0",
            "ip_addr: \"10.0.0.2/255.0.255.0\": the netmask has gaps",
        ),
        ("ip_addr = 10.0.0.2/", "ip_addr"),
        (
            "ip_addr = 10.99.0.2",
            "ip_addr: \"10.99.0.2\": expected ADDRESS/BITS",
        ),
        (
            "ip_addr = 10.0.0.2/24 fd00::2",
            "ip_addr: \"fd00::2\": expected ADDRESS/BITS",
        ),
        (
            "arp_conf_path = /etc/arp.conf",
            "arp_conf_path: mTCP does not have this key, only a fork of it: config/arp.conf",
        ),
        (
            "stack_thread = 2",
            "stack_thread: mTCP does not have this key",
        ),
        ("gateway = here", "gateway"),
        ("crank = both", "crank"),
        ("spin_us = -1", "spin_us"),
        ("return_memory_s = -1", "return_memory_s"),
        ("story_one_in = -1", "story_one_in"),
        ("colour = red", "colour: there is no such key"),
        ("port =", "port: a value is missing"),
        ("port", "port: a value is missing"),
    ];
    for (line, expected) in cases {
        let said = refused("wrong", &format!("# one\n\n{line}\n"));
        assert!(
            said.starts_with(&format!("a.conf:3: {expected}")),
            "{line}: {said}"
        );
    }
}

#[test]
fn wire_that_cannot_be_says_where() {
    let cases = [
        ("port = eth0\n", "a.conf:1: port: io says"),
        ("io = xdp\n", "a.conf:1: io: xdp: port is missing"),
        (
            "io = xdp\nport = a b\n",
            "a.conf:2: a: there is no such interface",
        ),
        (
            "\nio = dpdk\nport = dpdk0\n",
            "a.conf:3: dpdk:0: the kernel knows no address of it",
        ),
        (
            "io = xdp\nport = capi-none\n",
            "a.conf:2: capi-none: there is no such interface",
        ),
        (
            "io = memif\nport = /run/a,width=3\nip_addr=10.0.0.1/8\n",
            "a.conf:2: wire",
        ),
        (
            "io = memif\nport = /run/a\n",
            "a.conf:2: memif:/run/a: the kernel knows no address",
        ),
    ];
    for (text, expected) in cases {
        let directory = directory("wire", &[("a.conf", text)]);
        let settings = Settings::read(&directory.join("a.conf")).unwrap();
        let said = settings.complete().unwrap_err().to_string();
        let said = said.replace(&format!("{}/", directory.display()), "");
        assert!(said.starts_with(expected), "{text}: {said}");
    }
}

#[test]
fn dpdk_of_mtcp_s_own_form_is_the_plug_in_s_port() {
    let cases = [
        ("port = dpdk0\n", "dpdk:0"),
        ("port = dpdk:dpdk0\n", "dpdk:0"),
        ("port = dpdk0\nnum_mem_ch = 0\n", "dpdk:0"),
        ("port = dpdk1\nnum_mem_ch = 4\n", "dpdk:1,eal=-n 4"),
        (
            "num_mem_ch = 4\ndpdk_args = --no-huge --vdev=net_tap0,iface=x\nport = net_tap0,queues=2\n",
            "dpdk:net_tap0,queues=2,eal=-n 4 --no-huge --vdev=net_tap0,iface=x",
        ),
        (
            "port = dpdk0,eal=--no-huge\ndpdk_args = -m 64\n",
            "dpdk:0,eal=--no-huge -m 64",
        ),
    ];
    for (text, expected) in cases {
        let text = format!("io = dpdk\nip_addr = 10.0.0.2/24\n{text}");
        let settings = read("dpdk", &[("a.conf", &text)]).unwrap();
        let settings = settings.complete().unwrap();
        assert_eq!(settings.warning(), None, "{text}");
        let config = settings.config(&BEFORE).unwrap();
        assert_eq!(config.wire.to_string(), expected);
    }
}

#[test]
fn dpdk_settings_of_another_wire_are_warned_of() {
    let text = "io = loopback\nnum_mem_ch = 4\ndpdk_args = --no-huge\n";
    let settings = read("no-dpdk", &[("a.conf", text)]).unwrap();
    let warning = settings.complete().unwrap().warning().unwrap();
    let expected =
        "a.conf: without meaning here: num_mem_ch (line 2), dpdk_args (line 3): see mtcp(7)";
    assert!(warning.ends_with(expected), "{warning}");
}

/// A file for DPDK in which only `io` was changed.
#[test]
fn file_of_another_driver_takes_a_virtual_port() {
    let text = "io = mux\nport = dpdk0\nip_addr = 10.0.0.2/24\nnum_cores = 2\ngateway = 10.0.0.1\n";
    let arp = "ARP_ENTRY 1\n10.0.0.1/32 00:11:22:33:44:55\n";
    let files = [("a.conf", text), ("config/arp.conf", arp)];
    let settings = read("mux", &files).unwrap().complete().unwrap();
    let warning = settings.warning().unwrap();
    let expected =
        "without meaning here: port (line 2), gateway (line 1), arp (line 1): see mtcp(7)";
    assert!(warning.ends_with(expected), "{warning}");
    let config = settings.config(&BEFORE).unwrap();
    assert_eq!(config.wire.to_string(), "mux:");
    assert_eq!(config.addresses, [keys::cidr("10.0.0.2/24").unwrap()]);
    assert!(config.gateways.is_empty() && config.neighbours.is_empty());
}

#[test]
fn socket_of_a_service_is_a_port() {
    for (port, wire) in [
        ("/run/a.sock", "mux:/run/a.sock"),
        ("mux:/run/a.sock,ports=64", "mux:/run/a.sock,ports=64"),
        ("@a", "mux:@a"),
        (",ports=64", "mux:,ports=64"),
    ] {
        let text = format!("io = mux\nport = {port}\n");
        let settings = read("mux-port", &[("a.conf", &text)]).unwrap();
        let settings = settings.complete().unwrap();
        assert_eq!(settings.warning(), None, "{port}");
        let config = settings.config(&BEFORE).unwrap();
        assert_eq!(config.wire.to_string(), wire);
    }
}

#[test]
fn routes_and_neighbours_lie_beside() {
    let routes = "# comment\nROUTES 2\n10.0.1.0/24 dpdk0\n10.0.0.1/0 dpdk0\n";
    let arp = "ARP_ENTRY 2\n10.0.0.1/32 00:11:22:33:44:55\n10.0.2.0/30 00:00:00:00:00:02\n";
    let files = [
        ("a.conf", "io = loopback\n"),
        ("config/route.conf", routes),
        ("config/arp.conf", arp),
    ];
    let settings = read("beside", &files).unwrap();
    assert_eq!(settings.on_link, [keys::cidr("10.0.1.0/24").unwrap()]);
    assert_eq!(settings.gateways, [IpAddr::from([10, 0, 0, 1])]);
    assert_eq!(settings.neighbours.len(), 5);
    assert_eq!(settings.neighbours[0].1, [0, 0x11, 0x22, 0x33, 0x44, 0x55]);
}

/// Every valid form of a table's line, and its meaning.
#[test]
fn lines_of_tables_may_be_written_in_many_ways() {
    let routes = "\r\n# from here on\r\nROUTES 6 # of them\r\n\r\n10.0.0.1/32 dpdk0\r\n\t10.1.2.3/8\tdpdk1 # behind it\r\n\n192.168.1.7/31\n0.0.0.0/1 xge0\n10.9.8.7 eth0\n172.16.5.4/255.255.240.0 eth0";
    let arp = "ARP_ENTRY 3\n10.0.0.1/32   00:11:22:aa:BB:cC\n10.0.0.2/255.255.255.255 0:1:2:3:4:5\n10.0.0.3\t00:00:00:00:00:03\n\n";
    let files = [
        ("a.conf", "io = loopback\n"),
        ("config/route.conf", routes),
        ("config/arp.conf", arp),
    ];
    let settings = read("forms", &files).unwrap();
    let expected = [
        "10.0.0.1/32",
        "10.0.0.0/8",
        "192.168.1.6/31",
        "0.0.0.0/1",
        "10.9.8.7/32",
        "172.16.0.0/20",
    ];
    let on_link: Vec<_> = settings.on_link.iter().map(ToString::to_string).collect();
    assert_eq!(on_link, expected);
    let macs: Vec<_> = settings.neighbours.iter().map(|(_, mac)| mac[5]).collect();
    assert_eq!(macs, [0xcc, 5, 3]);
}

#[test]
fn every_prefix_length_is_a_subnet() {
    for bits in 1..=32 {
        let line = format!("255.255.255.255/{bits} eth0");
        let mut settings = Settings::default();
        files::add_route(&mut settings, &line).unwrap();
        assert_eq!(settings.on_link[0].prefix_len(), bits, "{line}");
        let mask = Ipv4Addr::from_bits(u32::MAX << (32 - bits));
        let line = format!("255.255.255.255/{mask}");
        files::add_route(&mut settings, &line).unwrap();
        assert_eq!(settings.on_link[0], settings.on_link[1], "{line}");
    }
}

/// The configuration lies in `config` among the tables, where mTCP looked for them.
#[test]
fn tables_may_lie_beside_a_configuration_in_a_directory_of_that_name() {
    let files = [
        ("config/a.conf", "io = loopback\n"),
        ("config/route.conf", "ROUTES 1\n10.0.0.1/0 eth0\n"),
    ];
    let settings = read("among", &files).unwrap();
    assert_eq!(settings.gateways.len(), 1);
}

#[test]
fn comment_may_be_in_any_encoding() {
    let directory = directory("encoding", &[]);
    let file = directory.join("a.conf");
    fs::write(&file, b"# \xc6\xf7\xc6\xae\nnum_cores = 3\n").unwrap();
    let settings = Settings::read(&file).unwrap();
    fs::remove_dir_all(&directory).unwrap();
    assert_eq!(settings.num_cores, Some(3));
}

#[test]
fn file_beside_that_is_wrong_says_where() {
    let cases = [
        ("config/route.conf", "ROUTES x\n", ":1: ROUTES"),
        ("config/route.conf", "10.0.0.0/8 eth0\n", ":1: more entries"),
        (
            "config/route.conf",
            "ROUTES 2\n10.0.0.0/8 eth0\n",
            ": 1 entries fewer",
        ),
        ("config/route.conf", "ROUTES 1\n10.0.0.0/99 eth0\n", ":2: "),
        ("config/arp.conf", "ARP_ENTRY 1\n10.0.0.1/32\n", ":2: "),
        (
            "config/arp.conf",
            "ARP_ENTRY 1\n10.0.0.1/32 1:2:3\n",
            ":2: ",
        ),
        (
            "config/arp.conf",
            "ARP_ENTRY 1\n10.0.0.1/8 1:2:3:4:5:6\n",
            ":2: ",
        ),
    ];
    for (name, text, expected) in cases {
        let said = read(
            "beside-wrong",
            &[("a.conf", "io = loopback\n"), (name, text)],
        );
        let said = said.unwrap_err();
        assert!(
            said.starts_with(&format!("{name}{expected}")),
            "{text}: {said}"
        );
    }
}
