//! The failure of a command: one line, and its exit status.

use std::fmt;
use std::process::ExitCode;

/// The reason why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The request is impossible: a wrong option, address, interface or file. Status 2.
    Usage(String),
    /// The work failed. Status 1.
    Run(String),
    /// The failure was reported already. Status 1.
    Reported,
}

impl Failure {
    /// The status that the program ends with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Run(_) | Self::Reported => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(cause) | Self::Run(cause) => formatter.write_str(cause),
            Self::Reported => Ok(()),
        }
    }
}
