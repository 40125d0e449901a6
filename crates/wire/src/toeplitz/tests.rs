//! Microsoft's published vectors ("Verifying the RSS Hash Calculation"), with TCP ports.

use super::*;

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

#[test]
fn published_ipv4_vectors_match() {
    let hash = Toeplitz::new(MICROSOFT_KEY);
    let vectors = [
        ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51cc_c178),
        ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xc626_b0ea),
        ("24.19.198.95", 12898, "12.22.207.184", 38024, 0x5c2b_394a),
        ("38.27.205.30", 48228, "209.142.163.6", 2217, 0xafc7_327f),
        ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x10e8_28a2),
    ];
    for (src, src_port, dst, dst_port, expected) in vectors {
        assert_eq!(
            hash.hash_v4(v4(src), v4(dst), src_port, dst_port),
            expected,
            "{src}"
        );
    }
}

#[test]
fn published_ipv6_vectors_match() {
    let hash = Toeplitz::new(MICROSOFT_KEY);
    let vectors = [
        (
            "3ffe:2501:200:1fff::7",
            2794,
            "3ffe:2501:200:3::1",
            1766,
            0x4020_7d3d,
        ),
        (
            "3ffe:501:8::260:97ff:fe40:efab",
            14230,
            "ff02::1",
            4739,
            0xdde5_1bbf,
        ),
        (
            "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
            44251,
            "fe80::200:f8ff:fe21:67cf",
            38024,
            0x02d1_feef,
        ),
    ];
    for (src, src_port, dst, dst_port, expected) in vectors {
        assert_eq!(
            hash.hash_v6(v6(src), v6(dst), src_port, dst_port),
            expected,
            "{src}"
        );
    }
}

#[test]
fn incoming_is_the_peers_packet() {
    let hash = Toeplitz::new(MICROSOFT_KEY);
    let flow = FlowKey {
        local: v4("161.142.100.80").into(),
        remote: v4("66.9.149.187").into(),
        local_port: 1766,
        remote_port: 2794,
    };
    assert_eq!(hash.hash_incoming(&flow), 0x51cc_c178);
    let flow = FlowKey {
        local: v6("3ffe:2501:200:3::1").into(),
        remote: v6("3ffe:2501:200:1fff::7").into(),
        ..flow
    };
    assert_eq!(hash.hash_incoming(&flow), 0x4020_7d3d);
}

#[test]
fn hash_by_local_port_is_the_hash_of_the_whole() {
    let hash = Toeplitz::new(MICROSOFT_KEY);
    let v4_flow = FlowKey {
        local: v4("161.142.100.80").into(),
        remote: v4("66.9.149.187").into(),
        local_port: 1766,
        remote_port: 2794,
    };
    let v6_flow = FlowKey {
        local: v6("3ffe:2501:200:3::1").into(),
        remote: v6("3ffe:2501:200:1fff::7").into(),
        ..v4_flow
    };
    for flow in [v4_flow, v6_flow] {
        let by_port = hash.by_local_port(&flow);
        for local_port in (0..=u16::MAX).step_by(251) {
            let one = FlowKey { local_port, ..flow };
            assert_eq!(by_port.hash(local_port), hash.hash_incoming(&one));
        }
    }
}
