//! Values of socket options as bytes in Linux's layout, and back. Rows of the option table name
//! these forms.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tcp::FastOpenKeys;

use super::invalid;
use crate::settings::{HOP_LIMIT, Linger, MtuDiscover};

/// A C representation of a value.
pub(super) trait Form<T> {
    /// Reads a value; `EINVAL` if the bytes are too few or mean nothing.
    fn read(bytes: &[u8]) -> io::Result<T>;

    /// Writes a value. If `room` is smaller than the value, some forms write a shorter one.
    fn write(value: T, room: usize) -> Vec<u8>;
}

pub(super) fn int(value: i32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

/// The `int` at the beginning of a value.
pub(super) fn number(bytes: &[u8]) -> io::Result<i32> {
    let bytes = bytes.first_chunk().ok_or_else(invalid)?;
    Ok(i32::from_ne_bytes(*bytes))
}

/// Declares forms that are an `int`.
macro_rules! int_forms {
    ($($(#[$doc:meta])* $form:ident: $type:ty, read $read:expr, write $write:expr;)*) => { $(
        $(#[$doc])*
        pub(super) struct $form;

        impl Form<$type> for $form {
            fn read(bytes: &[u8]) -> io::Result<$type> {
                let read: fn(i32) -> Option<$type> = $read;
                read(number(bytes)?).ok_or_else(invalid)
            }

            fn write(value: $type, _: usize) -> Vec<u8> {
                let write: fn($type) -> i32 = $write;
                int(write(value))
            }
        }
    )* };
}

int_forms! {
    /// Any number but 0 is true.
    Flag: bool, read |number| Some(number != 0), write i32::from;
    /// Any number but 0 is false.
    InverseFlag: bool, read |number| Some(number == 0), write |value| i32::from(!value);
    /// Numbers other than 0 and 1 are refused, as by Linux's newer options.
    ZeroOrOne: bool, read |number| (0..=1).contains(&number).then_some(number == 1), write i32::from;
    /// A flag that is true until it is set.
    SetFlag: Option<bool>, read |number| Some(Some(number != 0)),
        write |value| value.unwrap_or(true).into();
    /// A number that is 0 until it is set.
    SetNumber: Option<u32>, read |number| u32::try_from(number).ok().map(Some),
        write |value| value.unwrap_or(0) as i32;
    /// All bits of the `int`, without a sign.
    Bits: u32, read |number| Some(number as u32), write |value| value as i32;
    /// The lowest byte of the `int`.
    LowByte: u8, read |number| Some(number as u8), write i32::from;
    /// `IPV6_TCLASS`: -1 is the default.
    ClassByte: u8, read |number| (-1..256).contains(&number).then_some(number.max(0) as u8),
        write i32::from;
    /// `IPV6_UNICAST_HOPS`: -1 is the default.
    Hops: Option<u8>, read hop_limit, write |limit| limit.unwrap_or(HOP_LIMIT).into();
    /// `IP_TTL`: like `Hops`, without 0.
    TimeToLive: Option<u8>, read |number| hop_limit(number).filter(|limit| *limit != Some(0)),
        write |limit| limit.unwrap_or(HOP_LIMIT).into();
    /// `IP_PMTUDISC_DONT` and its siblings.
    Discovery: MtuDiscover, read discovery, write |how| how as i32;
}

fn hop_limit(number: i32) -> Option<Option<u8>> {
    match number {
        -1 => Some(None),
        _ => u8::try_from(number).ok().map(Some),
    }
}

fn discovery(number: i32) -> Option<MtuDiscover> {
    use MtuDiscover::*;
    let all = [Dont, Want, Do, Probe, Interface, Omit];
    all.into_iter().find(|how| *how as i32 == number)
}

/// An `int` that has to fit the value's type.
pub(super) struct Number;

impl<T: TryFrom<i32> + Into<i64>> Form<T> for Number {
    fn read(bytes: &[u8]) -> io::Result<T> {
        T::try_from(number(bytes)?).map_err(|_| invalid())
    }

    fn write(value: T, _: usize) -> Vec<u8> {
        int(value.into() as i32)
    }
}

pub(super) struct LingerStruct;

impl Form<Linger> for LingerStruct {
    fn read(bytes: &[u8]) -> io::Result<Linger> {
        let on = number(bytes)?;
        let seconds = number(bytes.get(4..).ok_or_else(invalid)?)?;
        Ok(match on {
            0 => Linger::Background,
            // A negative time is the longest time.
            _ => Linger::Seconds(u32::try_from(seconds).unwrap_or(i32::MAX as u32)),
        })
    }

    fn write(value: Linger, _: usize) -> Vec<u8> {
        match value {
            Linger::Background => [int(0), int(0)].concat(),
            Linger::Seconds(seconds) => [int(1), int(seconds as i32)].concat(),
        }
    }
}

/// A `struct timeval`. Zero means no time limit; a negative time means not to wait at all.
pub(super) struct Timeval;

impl Form<Option<Duration>> for Timeval {
    fn read(bytes: &[u8]) -> io::Result<Option<Duration>> {
        let (seconds, rest) = bytes.split_first_chunk().ok_or_else(invalid)?;
        let (micros, _) = rest.split_first_chunk().ok_or_else(invalid)?;
        let (seconds, micros) = (i64::from_ne_bytes(*seconds), i64::from_ne_bytes(*micros));
        if !(0..1_000_000).contains(&micros) {
            return Err(Errno::DOM.into());
        }
        let Ok(whole) = u64::try_from(seconds) else {
            return Ok(Some(Duration::ZERO));
        };
        let timeout = Duration::from_secs(whole) + Duration::from_micros(micros as u64);
        Ok((!timeout.is_zero()).then_some(timeout))
    }

    fn write(value: Option<Duration>, _: usize) -> Vec<u8> {
        let timeout = value.unwrap_or_default();
        let micros = i64::from(timeout.subsec_micros());
        [
            (timeout.as_secs() as i64).to_ne_bytes(),
            micros.to_ne_bytes(),
        ]
        .concat()
    }
}

/// Bytes per second in four or eight bytes; all ones means no limit.
pub(super) struct Rate;

impl Form<Option<u64>> for Rate {
    fn read(bytes: &[u8]) -> io::Result<Option<u64>> {
        if let Some(bytes) = bytes.first_chunk() {
            return Ok(Some(u64::from_ne_bytes(*bytes)).filter(|rate| *rate != u64::MAX));
        }
        let rate = number(bytes)? as u32;
        Ok((rate != u32::MAX).then_some(rate.into()))
    }

    fn write(value: Option<u64>, room: usize) -> Vec<u8> {
        let rate = value.unwrap_or(u64::MAX);
        if room >= size_of::<u64>() {
            return rate.to_ne_bytes().to_vec();
        }
        let rate = u32::try_from(rate).unwrap_or(u32::MAX);
        rate.to_ne_bytes().to_vec()
    }
}

/// One or two Fast Open keys. A caller with room for one key reads one.
pub(super) struct Keys;

impl Form<Option<FastOpenKeys>> for Keys {
    fn read(bytes: &[u8]) -> io::Result<Option<FastOpenKeys>> {
        let (primary, rest) = bytes.split_first_chunk().ok_or_else(invalid)?;
        let backup = match rest {
            [] => None,
            rest => Some(*<&[u8; 16]>::try_from(rest).map_err(|_| invalid())?),
        };
        Ok(Some(FastOpenKeys {
            primary: *primary,
            backup,
        }))
    }

    fn write(value: Option<FastOpenKeys>, room: usize) -> Vec<u8> {
        let Some(keys) = value else {
            return Vec::new();
        };
        let backup = keys.backup.filter(|_| room >= 32);
        [&keys.primary[..], backup.as_ref().map_or(&[], |key| key)].concat()
    }
}
