//! Values of settings as text, in the forms that `sysctl` takes and prints.

use millstream::{BufferSizes, FastOpenKeys};

use super::SysctlError;

/// A number as `sysctl` takes it: decimal, or hexadecimal after `0x`. A negative one means the
/// largest number.
pub(super) fn unsigned(value: &str) -> Result<u32, SysctlError> {
    let value = value.trim();
    let number = match value.strip_prefix("0x").or(value.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => value.parse(),
    };
    match number {
        Ok(negative @ i64::MIN..0) if negative >= i64::from(i32::MIN) => Ok(u32::MAX),
        Ok(number) => u32::try_from(number).map_err(|_| SysctlError::Value),
        Err(_) => Err(SysctlError::Value),
    }
}

pub(super) fn narrow<T: TryFrom<u32>>(value: &str) -> Result<T, SysctlError> {
    T::try_from(unsigned(value)?).map_err(|_| SysctlError::Value)
}

/// A number up to `most`.
pub(super) fn at_most(value: &str, most: u8) -> Result<u8, SysctlError> {
    narrow(value).and_then(|number| {
        if number <= most {
            Ok(number)
        } else {
            Err(SysctlError::Value)
        }
    })
}

pub(super) fn is_on(value: &str) -> Result<bool, SysctlError> {
    // Linux prints and takes Y and N for module parameters of type `bool`.
    match value.trim() {
        "Y" | "y" => Ok(true),
        "N" | "n" => Ok(false),
        value => unsigned(value).map(|number| number != 0),
    }
}

/// A number of units, converted to ns.
pub(super) fn nanos(value: &str, unit_ns: u64) -> Result<u64, SysctlError> {
    unsigned(value).map(|number| u64::from(number) * unit_ns)
}

/// One key, or two with a comma between them. The first makes cookies; both are accepted.
pub(super) fn fast_open_keys(value: &str) -> Result<FastOpenKeys, SysctlError> {
    let mut keys = value.split(',').map(fast_open_key);
    let mut both = FastOpenKeys::new(keys.next().ok_or(SysctlError::Value)??);
    both.backup = keys.next().transpose()?;
    match keys.next() {
        None => Ok(both),
        Some(_) => Err(SysctlError::Value),
    }
}

/// Four hexadecimal words, each stored in little-endian order.
fn fast_open_key(value: &str) -> Result<[u8; 16], SysctlError> {
    let mut key = [0; 16];
    let mut words = value.trim().split('-');
    for place in key.chunks_exact_mut(4) {
        let word = words.next().ok_or(SysctlError::Value)?;
        let word = u32::from_str_radix(word, 16).map_err(|_| SysctlError::Value)?;
        place.copy_from_slice(&word.to_le_bytes());
    }
    match words.next() {
        None => Ok(key),
        Some(_) => Err(SysctlError::Value),
    }
}

/// The three sizes of a buffer: least, default and largest.
pub(super) fn sizes(value: &str) -> Result<BufferSizes, SysctlError> {
    let mut words = value.split_whitespace().map(unsigned);
    let mut next = || words.next().unwrap_or(Err(SysctlError::Value));
    Ok(BufferSizes {
        bytes_min: next()?,
        bytes_default: next()?,
        bytes_max: next()?,
    })
}

/// The three sizes as Linux prints them.
pub(super) fn sizes_text(sizes: &BufferSizes) -> String {
    let BufferSizes {
        bytes_min,
        bytes_default,
        bytes_max,
    } = sizes;
    format!("{bytes_min}\t{bytes_default}\t{bytes_max}")
}

/// The keys as Linux prints them; empty if the stack chose them, since they are secret then.
pub(super) fn keys_text(keys: Option<FastOpenKeys>) -> String {
    let text = |key: &[u8; 16]| {
        let word = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
        };
        let words: Vec<String> = key
            .chunks_exact(4)
            .map(|bytes| format!("{:08x}", word(bytes)))
            .collect();
        words.join("-")
    };
    match keys {
        None => String::new(),
        Some(FastOpenKeys {
            primary,
            backup: None,
        }) => text(&primary),
        Some(FastOpenKeys {
            primary,
            backup: Some(backup),
        }) => format!("{},{}", text(&primary), text(&backup)),
    }
}
