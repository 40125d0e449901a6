//! Texts to stdout.

use std::io::{self, ErrorKind, Write as _};

use crate::failure::Failure;

/// Prints a text.
///
/// # Errors
/// See [`written`].
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    written(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}

/// The outcome of writing to stdout. A reader that has gone wanted no more, which is no failure.
///
/// # Errors
/// The text did not leave, as on a full disk.
pub fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("stdout: {error}")))
        }
        _ => Ok(()),
    }
}
