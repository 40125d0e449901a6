//! States by Linux's numbers: their names in `ss`, and the sets that its filter has.

/// Every state.
pub const ALL: u16 = 0x0ffe;
/// The bit of `LISTEN`.
pub const LISTEN: u16 = 1 << 10;

const ESTABLISHED: u16 = 1 << 1;
const SYN_SENT: u16 = 1 << 2;
const SYN_RECV: u16 = 1 << 3;
const FIN_WAIT_1: u16 = 1 << 4;
const FIN_WAIT_2: u16 = 1 << 5;
const TIME_WAIT: u16 = 1 << 6;
const CLOSED: u16 = 1 << 7;
const CLOSE_WAIT: u16 = 1 << 8;
const LAST_ACK: u16 = 1 << 9;
const CLOSING: u16 = 1 << 11;

const CONNECTED: u16 = ALL & !CLOSED & !LISTEN;

/// States that are shown by default.
pub const DEFAULT: u16 = ALL & !(LISTEN | CLOSED | TIME_WAIT | SYN_RECV);

/// The states of a name in a filter, in upper or lower case.
pub fn named(name: &str) -> Option<u16> {
    Some(match name.to_ascii_lowercase().as_str() {
        "established" => ESTABLISHED,
        "syn-sent" => SYN_SENT,
        "syn-recv" | "syn-rcv" => SYN_RECV,
        "fin-wait-1" => FIN_WAIT_1,
        "fin-wait-2" => FIN_WAIT_2,
        "time-wait" => TIME_WAIT,
        "unconnected" | "close" | "closed" => CLOSED,
        "close-wait" => CLOSE_WAIT,
        "last-ack" => LAST_ACK,
        "listening" | "listen" => LISTEN,
        "closing" => CLOSING,
        "all" => ALL,
        "connected" => CONNECTED,
        "synchronized" => CONNECTED & !SYN_SENT,
        "bucket" => SYN_RECV | TIME_WAIT,
        "big" => ALL & !(SYN_RECV | TIME_WAIT),
        _ => return None,
    })
}

/// The name of a state in the `State` column.
pub fn column(number: u64) -> &'static str {
    match number {
        1 => "ESTAB",
        2 => "SYN-SENT",
        3 => "SYN-RECV",
        4 => "FIN-WAIT-1",
        5 => "FIN-WAIT-2",
        6 => "TIME-WAIT",
        7 => "UNCONN",
        8 => "CLOSE-WAIT",
        9 => "LAST-ACK",
        10 => "LISTEN",
        11 => "CLOSING",
        _ => "UNKNOWN",
    }
}

/// The bit of a state's number in a set of states.
pub fn bit(number: u64) -> u16 {
    match number {
        1..=11 => 1 << number,
        _ => 0,
    }
}
