//! The error of opening a port: every driver returns it, and [`crate::open()`] passes it on.

use std::fmt::Display;

use rustix::io::Errno;

/// Why a port could not be opened: one line that says what and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// A system call failed.
    #[error("{wire}: {step}: {errno}{}", hint(*.errno))]
    Io {
        /// The wire as the user named it, or a short form of it: `tap:mill0`.
        wire: String,
        /// The step that failed: `TUNSETIFF`, `bind`.
        step: String,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The wish is understood and cannot be met: out of range, not supported here, taken.
    #[error("{wire}: {why}")]
    Refused {
        /// The wire as the user named it, or a short form of it.
        wire: String,
        /// The reason, in one line.
        why: String,
    },
}

impl OpenError {
    /// A system call failed at `step`.
    pub fn io(wire: impl Display, step: impl Into<String>, errno: Errno) -> Self {
        Self::Io {
            wire: wire.to_string(),
            step: step.into(),
            errno,
        }
    }

    /// The request cannot be met.
    pub fn refused(wire: impl Display, why: impl Into<String>) -> Self {
        Self::Refused {
            wire: wire.to_string(),
            why: why.into(),
        }
    }
}

/// The usual remedy for an errno.
fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM | Errno::ACCESS => " (needs root or CAP_NET_ADMIN and CAP_NET_RAW)",
        _ => "",
    }
}
