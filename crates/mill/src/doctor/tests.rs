//! Recorded hosts, and a real one with a veth pair.

use super::checks;
use super::facts::{Facts, MemifPlace, WireFacts};
use super::{Finding, Verdict};
use crate::net::options::Cidr;

const LINK_UP: &str = r#"[{"ifname":"eth0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],
    "mtu":1500,"operstate":"UP","address":"3a:b9:26:44:b4:9b"}]"#;
const CHANNELS: &str = "Channel parameters for eth0:\nPre-set maximums:\nRX:\t\tn/a\nTX:\t\tn/a\n\
    Other:\t\t1\nCombined:\t63\nCurrent hardware settings:\nRX:\t\tn/a\nTX:\t\tn/a\nOther:\t\t1\n\
    Combined:\t4\n";
const RINGS: &str = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\n\
    TX:\t\t4096\nCurrent hardware settings:\nRX:\t\t512\nRX Mini:\tn/a\nTX:\t\t512\n";
const SPREAD: &str = "RX flow hash indirection table for eth0 with 4 RX ring(s):\n    \
    0:      0     1     0     1     0     1     0     1\n    \
    8:      0     1     0     1     0     1     0     1\nRSS hash key:\n6d:5a:56:da\n";
const RULES: &str = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority 0; \
    policy drop;\n\t\ttcp dport 22 accept\n\t}\n}\n";

/// A host without problems, with an Intel NIC.
fn host() -> Facts {
    Facts {
        has_sys: true,
        kernel: "6.18.44\n".into(),
        status: "Name:\tmill\nCapEff:\t000001fffeffffff\n".into(),
        limits: "Max locked memory         8388608              8388608              bytes\n"
            .into(),
        meminfo: "HugePages_Total:       0\nHugePages_Free:        0\n".into(),
        huge_own: "always [madvise] never\n".into(),
        nodes: "0\n".into(),
        huge_shmem: "always within_size [advise] never deny force\n".into(),
        governors: vec!["performance".into(); 2],
        clock: "tsc\n".into(),
        clocks: "tsc hpet acpi_pm\n".into(),
        program: "/usr/bin/mill".into(),
        wire: Some(WireFacts {
            kind: "xdp",
            interface: Some("eth0".into()),
            has_interface: true,
            contexts: 4,
            addresses: vec![cidr("10.0.0.2/24")],
            link: LINK_UP.into(),
            kernel_addresses: Some(
                r#"[{"ifname":"eth0","addr_info":[{"local":"10.0.0.1","prefixlen":24}]}]"#.into(),
            ),
            firewall: Some(String::new()),
            has_ethtool: true,
            driver: "driver: ice\nversion: 6.18\n".into(),
            features: "large-receive-offload: off\ngeneric-receive-offload: on\n".into(),
            rings: RINGS.replace("512", "2048"),
            channels: CHANNELS.into(),
            has_tun: true,
            ..WireFacts::default()
        }),
    }
}

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

/// The host with a changed wire.
fn with_wire(change: impl FnOnce(&mut WireFacts)) -> Facts {
    let mut facts = host();
    change(facts.wire.as_mut().unwrap());
    facts
}

#[track_caller]
fn finding(facts: &Facts, check: &str) -> Finding {
    let found = checks::all(facts);
    let one = found.into_iter().find(|one| one.check == check);
    one.unwrap_or_else(|| panic!("no check {check}"))
}

#[track_caller]
fn expect(facts: &Facts, check: &str, verdict: Verdict, fix: &str) {
    let one = finding(facts, check);
    assert_eq!(one.verdict, verdict, "{one:?}");
    assert!(one.fix.as_deref().unwrap_or("").contains(fix), "{one:?}");
}

#[test]
fn host_that_is_well_has_no_warning() {
    let bad: Vec<Finding> = checks::all(&host())
        .into_iter()
        .filter(|one| one.verdict != Verdict::Ok)
        .collect();
    assert_eq!(bad, []);
}

#[test]
fn old_kernel_fails_only_where_af_xdp_is_wanted() {
    let mut facts = host();
    facts.kernel = "4.18.0-553.el8\n".into();
    expect(&facts, "kernel", Verdict::Failure, "packet:IFACE");
    facts.wire.as_mut().unwrap().kind = "memif";
    expect(&facts, "kernel", Verdict::Warning, "packet:IFACE");
    facts.kernel = String::new();
    expect(&facts, "kernel", Verdict::Warning, "uname");
}

#[test]
fn path_of_a_memif_that_cannot_be_used_is_a_failure_with_its_cause() {
    let mut facts = host();
    for (place, verdict, fix) in [
        (MemifPlace::Socket, Verdict::Ok, ""),
        (MemifPlace::Nothing, Verdict::Ok, ""),
        (
            MemifPlace::NoDirectory,
            Verdict::Failure,
            "`mkdir -p /run/vpp`",
        ),
        (MemifPlace::OtherFile, Verdict::Failure, "another path"),
        (
            MemifPlace::Denied,
            Verdict::Failure,
            "`ls -ld /run/vpp /run/vpp/a`",
        ),
    ] {
        let wire = facts.wire.as_mut().unwrap();
        wire.kind = "memif";
        wire.memif = Some(("/run/vpp/a".into(), place));
        expect(&facts, "memif", verdict, fix);
    }
}

#[test]
fn dpdk_plug_in_that_cannot_be_loaded_is_a_failure() {
    let mut facts = host();
    facts.wire.as_mut().unwrap().kind = "dpdk";
    expect(&facts, "plug-in", Verdict::Ok, "");
    facts.wire.as_mut().unwrap().plugin_refusal = "no such file".into();
    expect(&facts, "plug-in", Verdict::Failure, "cargo xtask dpdk");
}

#[test]
fn missing_capabilities_are_those_of_the_wire() {
    let mut facts = host();
    facts.status = "Uid:\t65534\t65534\nCapEff:\t0000000000002000\n".into();
    let all = "setcap cap_net_admin,cap_net_raw,cap_bpf,cap_perfmon+ep /usr/bin/mill`";
    expect(&facts, "capabilities", Verdict::Failure, all);
    let found = finding(&facts, "capabilities");
    assert_eq!(found.found, "missing: CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON");
    for kind in ["packet", "dpdk", "memif", "mux"] {
        facts.wire.as_mut().unwrap().kind = kind;
        expect(&facts, "capabilities", Verdict::Ok, "");
    }
    facts.wire.as_mut().unwrap().kind = "tap";
    let one = "`sudo setcap cap_net_admin+ep /usr/bin/mill`";
    expect(&facts, "capabilities", Verdict::Failure, one);
}

#[test]
fn root_without_capabilities_is_told_about_its_container() {
    let mut facts = host();
    facts.status = "Uid:\t0\t0\t0\t0\nCapEff:\t0000000000002000\n".into();
    expect(&facts, "capabilities", Verdict::Failure, "`--cap-add`");
    facts.status = "Uid:\t0\t0\t0\t0\nCapEff:\t0000000000203000\n".into();
    expect(&facts, "capabilities", Verdict::Ok, "");
}

#[test]
fn host_without_sys_is_not_looked_at_in_place_of_guessed_about() {
    let mut facts = host();
    facts.has_sys = false;
    for text in [&mut facts.clock, &mut facts.huge_own, &mut facts.huge_shmem] {
        text.clear();
    }
    facts.governors.clear();
    for check in ["numa", "cpu-governor", "clock-source", "huge-pages"] {
        expect(&facts, check, Verdict::Warning, "mount -t sysfs");
        let found = finding(&facts, check).found;
        assert!(found.starts_with("not looked at"), "{found}");
    }
}

#[test]
fn short_memlock_fails_unless_a_capability_lifts_it() {
    let mut facts = host();
    expect(&facts, "memlock", Verdict::Ok, "");
    facts.status = "CapEff:\t0000008000003000\n".into();
    expect(&facts, "memlock", Verdict::Failure, "ulimit -l");
    facts.wire.as_mut().unwrap().kind = "tap";
    expect(&facts, "memlock", Verdict::Ok, "");
    facts.wire.as_mut().unwrap().kind = "xdp";
    facts.limits =
        "Max locked memory         unlimited            unlimited            bytes".into();
    expect(&facts, "memlock", Verdict::Ok, "");
}

#[test]
fn huge_pages_are_a_must_for_dpdk_only() {
    let mut facts = host();
    expect(&facts, "huge-pages", Verdict::Ok, "");
    facts.wire.as_mut().unwrap().kind = "dpdk";
    expect(&facts, "huge-pages", Verdict::Ok, "");
    facts.wire.as_mut().unwrap().needs_huge_pages = true;
    expect(&facts, "huge-pages", Verdict::Failure, "vm.nr_hugepages");
    facts.meminfo = "HugePages_Total:     512\nHugePages_Free:      500\n".into();
    expect(&facts, "huge-pages", Verdict::Ok, "");
    facts.meminfo += "HugePages_Rsvd:      500\n";
    expect(&facts, "huge-pages", Verdict::Failure, "vm.nr_hugepages");
}

#[test]
fn transparent_huge_pages_that_are_forbidden_are_warnings_with_their_switch() {
    let mut facts = host();
    facts.huge_shmem = "always within_size advise [never] deny force".into();
    expect(&facts, "huge-pages", Verdict::Warning, "shmem_enabled");
    facts.huge_own = "always madvise [never]".into();
    expect(&facts, "huge-pages", Verdict::Warning, "vm.nr_hugepages");
    facts.huge_shmem = "always within_size [advise] never deny force".into();
    expect(&facts, "huge-pages", Verdict::Warning, "hugepage/enabled");
}

#[test]
fn memory_nodes_are_counted() {
    let found = |nodes: &str| {
        let facts = Facts {
            nodes: nodes.into(),
            ..host()
        };
        let findings = checks::all(&facts);
        let numa = findings.iter().find(|one| one.check == "numa").unwrap();
        assert_eq!(numa.verdict, Verdict::Ok);
        numa.found.clone()
    };
    assert!(found("0\n").starts_with("one memory node"));
    assert!(
        found("").starts_with("one memory node"),
        "a kernel without NUMA"
    );
    assert!(found("0-1\n").starts_with("2 memory nodes"));
}

#[test]
fn slow_cpus_and_clocks_are_warnings() {
    let mut facts = host();
    facts.governors[1] = "powersave".into();
    expect(&facts, "cpu-governor", Verdict::Warning, "cpupower");
    facts.clock = "hpet\n".into();
    expect(&facts, "clock-source", Verdict::Warning, "echo tsc");
    facts.clocks = "hpet acpi_pm\n".into();
    expect(&facts, "clock-source", Verdict::Warning, "tsc=reliable");
}

#[test]
fn interface_that_is_absent_or_down_fails() {
    let absent = with_wire(|wire| (wire.link, wire.has_interface) = (String::new(), false));
    expect(
        &absent,
        "interface",
        Verdict::Failure,
        "ip link show dev eth0",
    );
    assert!(!checks::all(&absent).iter().any(|one| one.check == "queues"));
    let down = with_wire(|wire| wire.link = LINK_UP.replace("\"UP\",\"LOWER_UP\"", "\"X\""));
    expect(
        &down,
        "interface",
        Verdict::Failure,
        "ip link set dev eth0 up",
    );
    let cut = with_wire(|wire| wire.link = LINK_UP.replace("LOWER_UP", "NO-CARRIER"));
    expect(&cut, "interface", Verdict::Warning, "cable");
    let unasked = with_wire(|wire| wire.link.clear());
    expect(&unasked, "interface", Verdict::Warning, "iproute2");
}

#[test]
fn xdp_program_in_the_way_fails_with_the_command_that_removes_it() {
    let with_xdp = |xdp: &str| {
        let link = LINK_UP.replace("\"mtu\"", &format!("\"xdp\":{xdp},\"mtu\""));
        with_wire(|wire| wire.link = link)
    };
    let driver = with_xdp(r#"{"mode":1,"prog":{"id":42}}"#);
    let fix = "`ip link set dev eth0 xdpdrv off`";
    expect(&driver, "xdp", Verdict::Failure, fix);
    let generic = with_xdp(r#"{"mode":2,"prog":{"id":42}}"#);
    let fix = "`ip link set dev eth0 xdpgeneric off`";
    expect(&generic, "xdp", Verdict::Failure, fix);
    let both = r#"{"mode":4,"attached":[{"mode":2,"prog":{"id":42}},{"mode":3,"prog":{"id":43}}]}"#;
    expect(&with_xdp(both), "xdp", Verdict::Failure, fix);
    let mut held = driver;
    held.wire.as_mut().unwrap().holder = Some((7, "other".into()));
    expect(&held, "xdp", Verdict::Failure, "`kill 7`");
}

#[test]
fn driver_is_known_without_ethtool() {
    let with = |change: &dyn Fn(&mut WireFacts)| {
        let facts = with_wire(|wire| {
            wire.driver.clear();
            change(wire);
        });
        finding(&facts, "xdp").found
    };
    let by_sys = with(&|wire| wire.sys_driver = "igc".into());
    assert_eq!(by_sys, "driver igc: native, zero-copy");
    let kind = r#""linkinfo":{"info_kind":"veth"},"mtu""#;
    let by_kind = with(&|wire| wire.link = LINK_UP.replace("\"mtu\"", kind));
    assert_eq!(by_kind, "driver veth: native, copy mode");
    let generic = with_wire(|wire| {
        wire.driver = "driver: e1000e".into();
        wire.generic_only = true;
    });
    expect(&generic, "xdp", Verdict::Ok, "");
}

#[test]
fn bulk_lane_that_is_refused_is_named_where_it_is_wanted() {
    let wanted = with_wire(|wire| wire.wants_bulk = true);
    assert_eq!(finding(&wanted, "bulk").verdict, Verdict::Ok);
    let refused = with_wire(|wire| {
        wire.wants_bulk = true;
        wire.bulk_refusal = "xdp:eth0: socket(AF_PACKET): Permission denied".into();
    });
    expect(
        &refused,
        "bulk",
        Verdict::Warning,
        "RestrictAddressFamilies=",
    );
    assert!(checks::all(&host()).iter().all(|one| one.check != "bulk"));
}

#[test]
fn driver_without_xdp_fails_where_native_mode_is_a_must() {
    let mut facts = with_wire(|wire| wire.driver = "driver: e1000e".into());
    expect(&facts, "xdp", Verdict::Warning, "mode=generic");
    facts.wire.as_mut().unwrap().native_only = true;
    expect(&facts, "xdp", Verdict::Failure, "mode=generic");
    let jumbo = with_wire(|wire| wire.link = LINK_UP.replace("1500", "9000"));
    expect(&jumbo, "xdp", Verdict::Warning, "mtu 3498");
}

#[test]
fn offload_that_merges_frames_is_switched_off_by_its_name() {
    let lro = with_wire(|wire| wire.features = "large-receive-offload: on\n".into());
    expect(
        &lro,
        "offloads",
        Verdict::Warning,
        "`ethtool -K eth0 lro off`",
    );
    let fixed = with_wire(|wire| wire.features = "large-receive-offload: off [fixed]\n".into());
    expect(&fixed, "offloads", Verdict::Ok, "");
    let packet = with_wire(|wire| wire.kind = "packet");
    expect(&packet, "offloads", Verdict::Warning, "gro off");
    let merged = with_wire(|wire| (wire.kind, wire.takes_merged) = ("packet", true));
    expect(&merged, "offloads", Verdict::Ok, "");
}

#[test]
fn queues_and_spread_follow_the_contexts() {
    let few = with_wire(|wire| wire.contexts = 8);
    let fix = "`ethtool -L eth0 combined 8`";
    expect(&few, "queues", Verdict::Warning, fix);
    let most = with_wire(|wire| {
        wire.contexts = 8;
        wire.channels = CHANNELS.replace("63", "4");
    });
    expect(&most, "queues", Verdict::Warning, "`--contexts 4`");
    let narrow = with_wire(|wire| wire.spread = SPREAD.into());
    let fix = "`ethtool -X eth0 equal 4`";
    expect(&narrow, "queues", Verdict::Warning, fix);
    let silent = with_wire(|wire| wire.channels.clear());
    expect(&silent, "queues", Verdict::Warning, "`--contexts 1`");
}

#[test]
fn contexts_share_more_queues_and_leave_those_that_the_wire_does_not_name() {
    let many = with_wire(|wire| wire.contexts = 2);
    expect(&many, "queues", Verdict::Ok, "");
    let named = with_wire(|wire| (wire.contexts, wire.queues) = (2, Some((0, 2))));
    expect(&named, "queues", Verdict::Warning, "leave out `queues=`");
    let found = finding(&named, "queues").found;
    assert!(
        found.ends_with("frames of 2 queues go to the kernel"),
        "{found}"
    );
    let absent = with_wire(|wire| wire.queues = Some((3, 2)));
    let fix = "`ethtool -L eth0 combined 5`";
    expect(&absent, "queues", Verdict::Failure, fix);
    let packet = with_wire(|wire| (wire.kind, wire.contexts) = ("packet", 8));
    assert!(checks::all(&packet).iter().all(|one| one.check != "queues"));
}

#[test]
fn short_ring_is_a_warning() {
    let short = with_wire(|wire| wire.rings = RINGS.into());
    expect(
        &short,
        "rings",
        Verdict::Warning,
        "`ethtool -G eth0 rx 4096`",
    );
    let silent = with_wire(|wire| wire.rings.clear());
    expect(&silent, "rings", Verdict::Ok, "");
    let found = &finding(&silent, "rings").found;
    assert_eq!(found, "the driver has none to set");
}

#[test]
fn firewall_that_sees_no_frame_is_a_warning() {
    let rules = with_wire(|wire| wire.firewall = Some(RULES.into()));
    expect(
        &rules,
        "firewall",
        Verdict::Warning,
        "in front of this host",
    );
    assert!(finding(&rules, "firewall").found.starts_with("2 rules"));
    let open = "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n";
    let open = with_wire(|wire| wire.firewall = Some(open.into()));
    expect(&open, "firewall", Verdict::Ok, "");
}

#[test]
fn address_that_is_the_kernels_too_is_a_conflict() {
    let mut facts = with_wire(|wire| wire.addresses = vec![cidr("10.0.0.1/24")]);
    expect(
        &facts,
        "addresses",
        Verdict::Warning,
        "`ip addr del 10.0.0.1/24 dev eth0`",
    );
    facts.wire.as_mut().unwrap().kind = "packet";
    expect(&facts, "addresses", Verdict::Failure, "`ip addr del");
}

#[test]
fn mirror_wants_the_kernels_addresses() {
    let mirror = |address: &str, held: &str| {
        with_wire(|wire| {
            wire.is_mirror = true;
            wire.addresses = vec![cidr(address)];
            wire.kernel_addresses = Some(held.into());
        })
    };
    let held = r#"[{"ifname":"eth0","addr_info":[{"local":"10.0.0.1","prefixlen":24}]}]"#;
    expect(&mirror("10.0.0.1/24", held), "addresses", Verdict::Ok, "");
    let fix = "`ip addr add 10.0.0.9/24 dev eth0`";
    let other = mirror("10.0.0.9/24", held);
    expect(&other, "addresses", Verdict::Warning, fix);
    let mut none = mirror("10.0.0.1/24", r#"[{"ifname":"eth0","addr_info":[]}]"#);
    none.wire.as_mut().unwrap().addresses.clear();
    expect(&none, "addresses", Verdict::Warning, "ip addr add");
}

#[test]
fn programs_that_do_not_answer_leave_checks_without_a_look() {
    let facts = with_wire(|wire| {
        wire.has_ethtool = false;
        for text in [&mut wire.rings, &mut wire.channels, &mut wire.features] {
            text.clear();
        }
        (wire.firewall, wire.kernel_addresses) = (None, None);
    });
    for (check, fix) in [
        ("rings", "ethtool"),
        ("queues", "ethtool"),
        ("offloads", "ethtool"),
        ("firewall", "nftables"),
        ("addresses", "iproute2"),
    ] {
        expect(&facts, check, Verdict::Warning, fix);
    }
}

#[test]
fn service_that_refuses_is_a_failure() {
    let wire = |error| {
        with_wire(|wire| {
            (wire.kind, wire.interface) = ("mux", None);
            wire.service = Some(("/run/millstream/mux.sock".into(), error));
        })
    };
    expect(&wire(None), "service", Verdict::Ok, "");
    let refused = wire(Some(rustix::io::Errno::ACCESS));
    expect(&refused, "service", Verdict::Failure, "`mill mux IFACE`");
}

#[test]
fn texts_without_sense_end_no_check() {
    let noise = "\u{0}: [[[ -1: x\nCapEff: zz\nRX: 99999999999999999999999\n";
    let mut facts = with_wire(|wire| {
        for text in [
            &mut wire.link,
            wire.kernel_addresses.get_or_insert_default(),
            &mut wire.driver,
            &mut wire.features,
            &mut wire.rings,
            &mut wire.channels,
            &mut wire.spread,
            wire.firewall.get_or_insert_default(),
        ] {
            *text = noise.into();
        }
    });
    facts.kernel = noise.into();
    facts.status = noise.into();
    facts.limits = noise.into();
    assert!(checks::all(&facts).len() >= 7);
}

#[test]
fn report_is_one_line_each_and_the_command_below() {
    let findings = [
        Finding::ok("kernel", "6.18"),
        Finding::failure("tun", "no /dev/net/tun", "`modprobe tun`"),
    ];
    let expected = "ok       kernel        6.18\nFAILURE  tun           no /dev/net/tun\n\
        \u{20}                      `modprobe tun`\n";
    assert_eq!(super::lines(&findings), expected);
    let json: serde_json::Value =
        serde_json::from_str(&super::json(&findings).unwrap_or_default()).unwrap();
    assert_eq!(json[1]["verdict"], "failure");
    assert_eq!(json[1]["fix"], "`modprobe tun`");
}
