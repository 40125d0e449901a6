//! Flags and control messages of `sendmsg` and `recvmsg`, and their comparison with what a script
//! expects.

use posix::{ControlMessage, Reply, number};

use super::Runner;
use super::arguments::int;
use crate::ast::{Expr, Message};

/// Nanoseconds of a second.
const SECOND_NS: i64 = 1_000_000_000;

impl Runner<'_> {
    /// Flags and control messages of a `recvmsg`, compared with the script's.
    pub(super) fn check_message(&self, wanted: &Message, reply: &Reply) -> Result<(), String> {
        let Reply::Message { control, flags, .. } = reply else {
            return Err("no message".to_owned());
        };
        let wanted_flags = int(&wanted.flags)?;
        if wanted_flags != i64::from(*flags) {
            return Err(format!(
                "expected msg_flags {wanted_flags:#x}, seen {flags:#x}"
            ));
        }
        if wanted.control.len() != control.len() {
            return Err(format!(
                "expected {} control messages, seen {}",
                wanted.control.len(),
                control.len()
            ));
        }
        for (wanted, seen) in wanted.control.iter().zip(control) {
            let (wanted, data) = self::control(wanted)?;
            let (level, kind) = (wanted.level, wanted.kind);
            if (level, kind) != (seen.level, seen.kind) {
                return Err(format!(
                    "expected a control message of level {level} and type {kind}, seen {} and {}",
                    seen.level, seen.kind
                ));
            }
            self.check_control(data, &wanted.data, &seen.data)?;
        }
        Ok(())
    }

    fn check_control(&self, expr: &Expr, wanted: &[u8], seen: &[u8]) -> Result<(), String> {
        if let Expr::List(attributes) = expr {
            return self.check_attributes(attributes, seen);
        }
        let (len, found) = (wanted.len(), seen.len());
        if len != found {
            return Err(format!(
                "expected {len} bytes of control data, seen {found}"
            ));
        }
        match expr {
            // The address of the host that reported the error follows, and is not compared.
            Expr::ExtendedError(_) if seen.starts_with(&wanted[..EXTENDED_ERROR_BYTES]) => Ok(()),
            Expr::ExtendedError(_) => Err(format!("expected the error {wanted:?}, seen {seen:?}")),
            Expr::Timestamping { seconds, nanos } => self.check_stamp((*seconds, *nanos), seen),
            _ if wanted == seen => Ok(()),
            _ => Err(format!(
                "expected the control data {wanted:?}, seen {seen:?}"
            )),
        }
    }

    /// Compares `{TCP_NLA_BUSY=1000, TCP_NLA_SND_CWND=..., ..}` with netlink attributes, in order.
    /// Attributes behind those are ignored, since later kernels add some.
    fn check_attributes(&self, wanted: &[Expr], mut seen: &[u8]) -> Result<(), String> {
        for attribute in wanted {
            let Expr::Assign(name, value) = attribute else {
                return Err("expected {name=value, ..}".to_owned());
            };
            let kind = int(&Expr::Word(name.clone()))?;
            let Some((found, data, rest)) = attribute_of(seen) else {
                return Err(format!("there is no {name}"));
            };
            seen = rest;
            if i64::from(found) != kind {
                return Err(format!("expected {name} ({kind}), seen attribute {found}"));
            }
            if **value == Expr::Ellipsis {
                continue;
            }
            let wanted = int(value)?;
            let off = data.wrapping_sub(wanted as u64) as i64;
            let is_time = (1..=3).contains(&kind) && wanted != 0;
            let tolerance = if is_time { self.config.tolerance } else { 0 };
            if off.unsigned_abs() > tolerance.unsigned_abs() {
                return Err(format!("expected {name} = {wanted}, seen {data}"));
            }
        }
        Ok(())
    }

    /// Compares a software time stamp, counted from the script's start. A stamp of zero in the
    /// script is not compared.
    fn check_stamp(&self, (seconds, nanos): (i64, i64), seen: &[u8]) -> Result<(), String> {
        let wanted_ns = seconds
            .checked_mul(SECOND_NS)
            .and_then(|ns| ns.checked_add(nanos))
            .ok_or_else(|| format!("a time stamp of {seconds} s is out of range"))?;
        if wanted_ns == 0 {
            return Ok(());
        }
        let word = |at: usize| {
            let bytes = seen.get(at..at + 8)?;
            Some(i64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let (Some(seen_s), Some(seen_ns)) = (word(0), word(8)) else {
            return Err(format!("expected a time stamp, seen {seen:?}"));
        };
        let seen_ns = seen_s * SECOND_NS + seen_ns - self.host.epoch_ns();
        match seen_ns.abs_diff(wanted_ns) / 1_000 <= self.config.tolerance.unsigned_abs() {
            true => Ok(()),
            false => Err(format!(
                "expected a time stamp of {wanted_ns} ns, seen {seen_ns}"
            )),
        }
    }
}

/// Bytes of a `struct sock_extended_err`.
const EXTENDED_ERROR_BYTES: usize = 16;

/// Bytes of a `struct cmsghdr`.
const CONTROL_HEADER_BYTES: usize = 16;

/// Room for control messages of unknown length.
const CONTROL_BYTES: usize = 1024;

/// Type and value of the first netlink attribute, and the bytes behind it.
fn attribute_of(bytes: &[u8]) -> Option<(u16, u64, &[u8])> {
    let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let len = usize::from(half(0)?);
    let data = bytes.get(4..len).filter(|data| data.len() <= 8)?;
    let mut value = [0; 8];
    value[..data.len()].copy_from_slice(data);
    let rest = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    Some((half(2)?, u64::from_le_bytes(value), rest))
}

/// A script's control message in C's layout, and the expression of its data.
pub(super) fn control(expr: &Expr) -> Result<(ControlMessage, &Expr), String> {
    let Expr::Control { level, kind, data } = expr else {
        return Err("expected {cmsg_level=..}".to_owned());
    };
    let (level, kind) = (int(level)? as i32, int(kind)? as i32);
    let mut bytes = Vec::new();
    match &**data {
        Expr::ExtendedError(fields) => {
            for (at, len) in [(0, 4), (1, 1), (2, 1), (3, 1), (99, 1), (4, 4), (5, 4)] {
                let value = fields.get(at).map_or(Ok(0), int)?;
                bytes.extend(&value.to_le_bytes()[..len]);
            }
            let address = if level == number::SOL_IP { 16 } else { 28 };
            bytes.resize(EXTENDED_ERROR_BYTES + address, 0);
        }
        Expr::Timestamping { seconds, nanos } => {
            bytes.extend(seconds.to_ne_bytes());
            bytes.extend(nanos.to_ne_bytes());
            // The structure has three stamps. The first is the one made by software.
            bytes.resize(48, 0);
        }
        Expr::List(_) => {}
        other => bytes.extend((int(other)? as i32).to_ne_bytes()),
    }
    let message = ControlMessage {
        level,
        kind,
        data: bytes,
    };
    Ok((message, data))
}

/// Room for exactly the control messages that a script expects. Linux reports when more arrive.
pub(super) fn control_room(wanted: &[Expr]) -> Result<usize, String> {
    let mut room = 0;
    for expr in wanted {
        room += match control(expr)? {
            (_, Expr::List(_)) => CONTROL_BYTES,
            (message, _) => CONTROL_HEADER_BYTES + message.data.len().next_multiple_of(8),
        };
    }
    Ok(room)
}
