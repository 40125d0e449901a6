//! Why a command ends badly: one line, and the exit status that goes with it.

use std::fmt;
use std::process::ExitCode;

/// The end of a command that did not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The request cannot be met: a wrong option, address, interface, file. Status 2.
    Usage(String),
    /// The work failed on the way. Status 1.
    Run(String),
    /// Said already, or shown in a report. Status 1.
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
