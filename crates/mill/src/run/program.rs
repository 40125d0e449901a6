//! The program that `mill run` starts: its path, and whether a library can be preloaded into it.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The file that a shell would execute.
pub fn find(name: &str) -> Result<PathBuf, Failure> {
    let is_program = |path: &Path| {
        let kind = path.metadata();
        kind.is_ok_and(|kind| kind.is_file() && kind.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match is_program(&path) {
            true => Ok(path),
            false => Err(Failure::Usage(format!("run: {name}: no program"))),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|place| place.join(name));
    places
        .find(|place| is_program(place))
        .ok_or_else(|| Failure::Usage(format!("run: {name}: not found")))
}

/// Refuses programs that are started without a loader or without preloaded libraries.
pub fn check(path: &Path) -> Result<(), Failure> {
    let refuse = |why: &str| Failure::Usage(format!("run: {}: {why}", path.display()));
    let unreadable = |error: std::io::Error| refuse(&error.to_string());
    let kind = path.metadata().map_err(unreadable)?;
    if is_privileged(&kind) {
        return Err(refuse("set-uid or set-gid: the loader preloads nothing"));
    }
    let mut head = Vec::new();
    let mut file = File::open(path).map_err(unreadable)?;
    file.by_ref()
        .take(HEAD_BYTES)
        .read_to_end(&mut head)
        .map_err(unreadable)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line);
        let line = String::from_utf8_lossy(line);
        let interpreter = line.split_whitespace().next().unwrap_or("/bin/sh");
        return match interpreter == path.to_string_lossy() {
            true => Err(refuse("interprets itself")),
            false => check_binary(Path::new(interpreter)),
        };
    }
    match is_static(&head) {
        true => Err(refuse("linked statically: nothing can be preloaded")),
        false => Ok(()),
    }
}

/// Checks a binary, such as a script's interpreter.
fn check_binary(path: &Path) -> Result<(), Failure> {
    let refuse = |why: &str| Failure::Usage(format!("run: {}: {why}", path.display()));
    let kind = path
        .metadata()
        .map_err(|error| refuse(&error.to_string()))?;
    match is_privileged(&kind) {
        true => Err(refuse("set-uid or set-gid: the loader preloads nothing")),
        false => Ok(()),
    }
}

fn is_privileged(kind: &Metadata) -> bool {
    let mode = kind.permissions().mode();
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let changes_user = mode & 0o4000 != 0 && kind.uid() != uid.as_raw();
    let changes_group = mode & 0o2000 != 0 && kind.gid() != gid.as_raw();
    changes_user || changes_group
}

/// True for an ELF file without a segment that names a loader.
pub(super) fn is_static(head: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    if !head.starts_with(b"\x7fELF") || head.get(4) != Some(&2) {
        return false;
    }
    let number = |at: usize, len: usize| {
        let bytes = head.get(at..at + len)?;
        let digits = bytes.iter().rev();
        Some(digits.fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte)))
    };
    let (Some(from), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2))
    else {
        return false;
    };
    let mut kinds = (0..count).map_while(|at| {
        let place = usize::try_from(from.checked_add(at * size)?).ok()?;
        number(place, 4)
    });
    // A table beyond the bytes read is left to the loader.
    !kinds.any(|kind| kind == u64::from(PT_INTERP)) && from + count * size <= head.len() as u64
}

/// Bytes of a file that are read: the header, and the table after it.
const HEAD_BYTES: u64 = 64 << 10;
