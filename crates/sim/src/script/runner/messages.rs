//! What `recvmsg` gives beside bytes: flags and control messages, compared with what a script expects.

use posix::Reply;

use super::Runner;
use super::arguments::int;
use crate::script::ast::{Expr, Message};

/// Nanoseconds of a second.
const SECOND_NS: i64 = 1_000_000_000;

impl Runner<'_> {
    /// What `recvmsg` gave apart from bytes.
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
            let Expr::Control { level, kind, data } = wanted else {
                return Err("expected {cmsg_level=..}".to_owned());
            };
            let (level, kind) = (int(level)?, int(kind)?);
            if (level, kind) != (seen.level.into(), seen.kind.into()) {
                return Err(format!(
                    "expected a control message of level {level} and type {kind}, seen {} and {}",
                    seen.level, seen.kind
                ));
            }
            self.check_control(data, &seen.data)?;
        }
        Ok(())
    }

    fn check_control(&self, wanted: &Expr, seen: &[u8]) -> Result<(), String> {
        match wanted {
            Expr::ExtendedError(fields) => {
                let mut bytes = Vec::new();
                for (at, len) in [(0, 4), (1, 1), (2, 1), (3, 1), (99, 1), (4, 4), (5, 4)] {
                    let value = fields.get(at).map_or(Ok(0), int)?;
                    bytes.extend(&value.to_le_bytes()[..len]);
                }
                match seen.starts_with(&bytes) {
                    true => Ok(()),
                    false => Err(format!("expected the error {bytes:?}, seen {seen:?}")),
                }
            }
            Expr::Timestamping { seconds, nanos } => self.check_stamp((*seconds, *nanos), seen),
            other => {
                let wanted = int(other)? as i32;
                match posix::layout::to_int(seen) == Some(wanted) {
                    true => Ok(()),
                    false => Err(format!("expected the control data {wanted}, seen {seen:?}")),
                }
            }
        }
    }

    /// A software time stamp counts from when the script began; one of zero is not looked at.
    fn check_stamp(&self, (seconds, nanos): (i64, i64), seen: &[u8]) -> Result<(), String> {
        let wanted_ns = seconds * SECOND_NS + nanos;
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
        match (seen_ns - wanted_ns).abs() / 1_000 <= self.config.tolerance {
            true => Ok(()),
            false => Err(format!(
                "expected a time stamp of {wanted_ns} ns, seen {seen_ns}"
            )),
        }
    }
}
