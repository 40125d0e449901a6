//! Conversations between two ends of a wire, either of which may be Millstream or the kernel.

#![allow(dead_code)] // each test file uses its part

use std::io::ErrorKind;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::bytes::{expect_end, read, receive, receive_slowly, send};
use super::net::{Gate, Net};

/// The parts of the server and of the client.
#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    pub server: fn(&dyn Net, &Gate),
    pub client: fn(&dyn Net, &Gate),
}

/// Step of the gate: the server listens.
const LISTENING: u32 = 1;
const MEGABYTE: usize = 1_000_000;

/// Echo, message by message, with lengths around the segment size.
pub const ECHO: Scenario = Scenario {
    name: "echo",
    server: echo_server,
    client: |net, gate| {
        gate.wait(LISTENING);
        let mut conn = net.connect().expect("connect");
        conn.set_nodelay();
        for len in [1, 2, 100, 1_419, 1_447, 1_448, 1_449, 1_460, 1_461, 65_537] {
            send(&mut *conn, len, len as u64);
            receive(&mut *conn, len, len as u64);
        }
        conn.shutdown_write().expect("shutdown");
        expect_end(&mut *conn);
    },
};

fn echo_server(net: &dyn Net, gate: &Gate) {
    let listener = net.listen();
    gate.reach(LISTENING);
    let mut conn = listener.accept().expect("accept");
    let mut bytes = vec![0; 32_768];
    loop {
        match read(&mut *conn, &mut bytes).expect("read") {
            0 => return,
            n => conn.write_all(&bytes[..n]).expect("write"),
        }
    }
}

/// `LEN` bytes from the client, its end, `LEN` bytes from the server, its end.
fn bulk_server<const LEN: usize>(net: &dyn Net, gate: &Gate) {
    let listener = net.listen();
    gate.reach(LISTENING);
    let mut conn = listener.accept().expect("accept");
    receive(&mut *conn, LEN, 1);
    expect_end(&mut *conn);
    send(&mut *conn, LEN, 2);
}

fn bulk_client<const LEN: usize>(net: &dyn Net, gate: &Gate) {
    gate.wait(LISTENING);
    let mut conn = net.connect().expect("connect");
    send(&mut *conn, LEN, 1);
    conn.shutdown_write().expect("shutdown");
    let error = conn.write(b"x").expect_err("written after shutdown");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    receive(&mut *conn, LEN, 2);
    expect_end(&mut *conn);
}

/// Bulk transfer in each direction in turn, over a half-closed connection.
pub const BULK: Scenario = bulk::<10_000_000>("bulk of 10 MB each way");
pub const BULK_3: Scenario = bulk::<3_000_000>("bulk of 3 MB each way");
pub const BULK_1: Scenario = bulk::<1_000_000>("bulk of 1 MB each way");
pub const BULK_100K: Scenario = bulk::<100_000>("bulk of 100 kB each way");
pub const BULK_300K: Scenario = bulk::<300_000>("bulk of 300 kB each way");

const fn bulk<const LEN: usize>(name: &'static str) -> Scenario {
    Scenario {
        name,
        server: bulk_server::<LEN>,
        client: bulk_client::<LEN>,
    }
}

/// The server ends its direction first and reads on.
pub const HALF_CLOSE: Scenario = Scenario {
    name: "half-close by the server",
    server: |net, gate| {
        let listener = net.listen();
        gate.reach(LISTENING);
        let mut conn = listener.accept().expect("accept");
        send(&mut *conn, 50_000, 3);
        conn.shutdown_write().expect("shutdown");
        receive(&mut *conn, MEGABYTE, 4);
        expect_end(&mut *conn);
    },
    client: |net, gate| {
        gate.wait(LISTENING);
        let mut conn = net.connect().expect("connect");
        receive(&mut *conn, 50_000, 3);
        expect_end(&mut *conn);
        send(&mut *conn, MEGABYTE, 4);
    },
};

const MESSAGE: usize = 64;

/// `COUNT` connections in sequence: a request, an answer, closed by the server first.
fn short_server<const COUNT: usize>(net: &dyn Net, gate: &Gate) {
    let listener = net.listen();
    gate.reach(LISTENING);
    for at in 0..COUNT {
        let mut conn = listener
            .accept()
            .unwrap_or_else(|e| panic!("accept of {at}: {e}"));
        receive(&mut *conn, MESSAGE, at as u64);
        send(&mut *conn, MESSAGE, !at as u64);
    }
}

fn short_client<const COUNT: usize>(net: &dyn Net, gate: &Gate) {
    gate.wait(LISTENING);
    for at in 0..COUNT {
        let mut conn = net
            .connect()
            .unwrap_or_else(|e| panic!("connection {at}: {e}"));
        send(&mut *conn, MESSAGE, at as u64);
        receive(&mut *conn, MESSAGE, !at as u64);
        expect_end(&mut *conn);
    }
}

pub const SHORT_2000: Scenario = Scenario {
    name: "2,000 short connections",
    server: short_server::<2_000>,
    client: short_client::<2_000>,
};
pub const SHORT_200: Scenario = Scenario {
    name: "200 short connections",
    server: short_server::<200>,
    client: short_client::<200>,
};
pub const SHORT_30: Scenario = Scenario {
    name: "30 short connections",
    server: short_server::<30>,
    client: short_client::<30>,
};

/// The client resets: the server loses unread bytes and gets an error.
pub const RESET_BY_CLIENT: Scenario = Scenario {
    name: "reset by the client",
    server: |net, gate| {
        let listener = net.listen();
        gate.reach(LISTENING);
        let mut conn = listener.accept().expect("accept");
        receive(&mut *conn, 10, 5);
        gate.reach(2);
        let mut byte = [0];
        let error = conn
            .read(&mut byte)
            .expect_err("read from a reset connection");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(conn.read(&mut byte).expect("told once"), 0);
        let error = conn.write(b"x").expect_err("written to a reset connection");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    },
    client: |net, gate| {
        gate.wait(LISTENING);
        let mut conn = net.connect().expect("connect");
        send(&mut *conn, 10, 5);
        gate.wait(2);
        conn.abort();
    },
};

/// The server closes with unread bytes: the client gets an error.
pub const RESET_BY_CLOSE: Scenario = Scenario {
    name: "reset by closing with bytes unread",
    server: |net, gate| {
        let listener = net.listen();
        gate.reach(LISTENING);
        let mut conn = listener.accept().expect("accept");
        receive(&mut *conn, 10, 5);
        gate.wait(2);
        sleep(Duration::from_millis(50));
        // Millstream's read turns the stack, which lets the bytes in.
        receive(&mut *conn, 1, 6);
        drop(conn);
    },
    client: |net, gate| {
        gate.wait(LISTENING);
        let mut conn = net.connect().expect("connect");
        send(&mut *conn, 10, 5);
        send(&mut *conn, 1_000, 6);
        gate.reach(2);
        let error = conn
            .read(&mut [0])
            .expect_err("read from a reset connection");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    },
};

/// No socket listens at the next port.
pub const REFUSED: Scenario = Scenario {
    name: "refused",
    server: |net, gate| {
        let listener = net.listen();
        gate.reach(LISTENING);
        let _conn = listener.accept().expect("accept");
    },
    client: |net, gate| {
        gate.wait(LISTENING);
        for _ in 0..3 {
            let refused = net.connect_to(net.place().port - 1).err();
            let error = refused.expect("a connection to a closed port");
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        }
        net.connect().expect("connect");
    },
};

const SLOW_LEN: usize = 3 * MEGABYTE;

/// Reads nothing until the sender must have stopped, then irregularly, so that the window closes
/// and opens.
fn read_slowly(conn: &mut dyn super::net::Conn) {
    sleep(Duration::from_millis(400));
    let mut next = 0;
    receive_slowly(conn, SLOW_LEN, 7, |at| {
        if at >= next {
            next += 200_000;
            sleep(Duration::from_millis(15));
        }
    });
    expect_end(conn);
}

/// The server reads slowly.
pub const SLOW_SERVER: Scenario = Scenario {
    name: "slow reader at the server",
    server: |net, gate| {
        let listener = net.listen();
        gate.reach(LISTENING);
        let mut conn = listener.accept().expect("accept");
        read_slowly(&mut *conn);
    },
    client: |net, gate| {
        gate.wait(LISTENING);
        let mut conn = net.connect().expect("connect");
        send(&mut *conn, SLOW_LEN, 7);
    },
};

/// The client reads slowly.
pub const SLOW_CLIENT: Scenario = Scenario {
    name: "slow reader at the client",
    server: |net, gate| {
        let listener = net.listen();
        gate.reach(LISTENING);
        let mut conn = listener.accept().expect("accept");
        send(&mut *conn, SLOW_LEN, 7);
    },
    client: |net, gate| {
        gate.wait(LISTENING);
        let mut conn = net.connect().expect("connect");
        read_slowly(&mut *conn);
    },
};

/// A peer that sends single bytes without waiting, and gets one answer.
pub const TRICKLE: Scenario = Scenario {
    name: "a byte at a time",
    server: |net, gate| {
        let listener = net.listen();
        gate.reach(LISTENING);
        let mut conn = listener.accept().expect("accept");
        receive(&mut *conn, 2_000, 8);
        send(&mut *conn, 1, 9);
    },
    client: |net, gate| {
        gate.wait(LISTENING);
        let mut conn = net.connect().expect("connect");
        conn.set_nodelay();
        for byte in super::bytes::pattern(2_000, 8) {
            conn.write_all(&[byte]).expect("write");
        }
        let begin = Instant::now();
        receive(&mut *conn, 1, 9);
        // Waiting for an ACK of each byte would take 80 seconds.
        assert!(begin.elapsed() < Duration::from_secs(40));
    },
};

/// All scenarios for a good wire.
pub const ALL: [Scenario; 10] = [
    ECHO,
    BULK,
    HALF_CLOSE,
    SHORT_200,
    RESET_BY_CLIENT,
    RESET_BY_CLOSE,
    REFUSED,
    SLOW_SERVER,
    SLOW_CLIENT,
    TRICKLE,
];
