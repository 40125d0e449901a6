//! The service's notes for its successor: the claims and leases of each application, and what the
//! dead and the kernel's settings still need.
//!
//! Owns one file in the run directory, written anew with every change of an application, a claim or
//! a lease. A killed service leaves it; the next service reads it, reserves the same ports and
//! waits for the applications. Called by the service.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

/// Version of the file format.
const VERSION: u32 = 1;
/// The file in a run directory.
const FILE: &str = "state.json";

/// All notes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notes {
    /// Version of the format, which the file sets.
    pub(crate) version: u32,
    /// Each application.
    pub applications: Vec<ApplicationNote>,
    /// Each ledger of the dead whose peers are yet to be reset.
    #[serde(default)]
    pub dead: Vec<DeadNote>,
    /// Ranges of ports, first and last, that were added to `ip_local_reserved_ports`.
    #[serde(default)]
    pub reserved: Vec<(u16, u16)>,
    /// Inode of the network namespace whose setting has these ranges.
    #[serde(default)]
    pub network: u64,
}

impl Notes {
    /// The ranges that were added to `ip_local_reserved_ports`.
    pub fn reserved(&self) -> impl Iterator<Item = RangeInclusive<u16>> {
        self.reserved.iter().map(|&(first, last)| first..=last)
    }
}

/// A kept ledger, with the rights that its application had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadNote {
    /// The number under which the data plane keeps the ledger.
    pub ledger: u32,
    /// The user id.
    pub uid: u32,
    /// Bytes of the ledger.
    pub bytes: u64,
    /// Claims.
    pub endpoints: Vec<SocketAddr>,
    /// Leases: first port, last port.
    pub leases: Vec<(u16, u16)>,
}

/// One application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplicationNote {
    /// The number.
    pub number: u16,
    /// The name.
    pub name: String,
    /// The process id.
    pub pid: i32,
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// Number of contexts that it announced.
    pub contexts: u16,
    /// `SO_COOKIE` of the socket that its processes share.
    #[serde(default)]
    pub family: Option<u64>,
    /// Claims, each with the contexts that listen.
    pub claims: Vec<(SocketAddr, Vec<u16>)>,
    /// Claimed endpoints that a socket of the application reserves in the kernel.
    #[serde(default)]
    pub bound: Vec<SocketAddr>,
    /// Leases: context, first port, last port.
    pub leases: Vec<(u16, u16, u16)>,
    /// Bytes of each context's memory file and ledger.
    #[serde(default)]
    pub costs: Vec<(u16, u64, u64)>,
}

/// The file.
#[derive(Debug)]
pub struct NotesFile {
    path: PathBuf,
}

impl NotesFile {
    /// The file in the run directory.
    pub fn new(run_dir: &Path) -> Self {
        Self {
            path: run_dir.join(FILE),
        }
    }

    /// The notes of the previous service; empty if there are none, or they cannot be read.
    pub fn read(&self) -> Notes {
        read(&self.path)
    }

    /// The ranges that services on other NICs of the network namespace added to
    /// `ip_local_reserved_ports`: their run directories lie beside this one.
    pub fn reserved_by_others(&self, network: u64) -> Vec<RangeInclusive<u16>> {
        let directories = self.services().and_then(|all| fs::read_dir(all).ok());
        let files = directories
            .into_iter()
            .flatten()
            .filter_map(|directory| Some(directory.ok()?.path().join(FILE)));
        let notes = files
            .filter(|file| *file != self.path)
            .map(|file| read(&file));
        let notes = notes.filter(|notes| notes.network == network);
        notes
            .flat_map(|notes| notes.reserved().collect::<Vec<_>>())
            .collect()
    }

    /// Keeps services on other NICs from reading or changing notes about shared settings, until the
    /// file is dropped. `None`: the directory of the run directories cannot be locked.
    pub fn lock_settings(&self) -> Option<File> {
        let directory = File::open(self.services()?).ok()?;
        rustix::fs::flock(&directory, FlockOperation::LockExclusive).ok()?;
        Some(directory)
    }

    /// The directory of the services' run directories.
    fn services(&self) -> Option<&Path> {
        self.path.parent()?.parent()
    }

    /// Replaces the notes atomically: a reader finds the old ones or the new ones.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, notes: Notes) -> io::Result<()> {
        let notes = Notes {
            version: VERSION,
            ..notes
        };
        let bytes = serde_json::to_vec(&notes)?;
        let next = self.path.with_extension("next");
        fs::write(&next, bytes)?;
        fs::rename(next, &self.path)
    }

    /// Removes the notes.
    pub fn remove(&self) {
        // An error is ignored: without a file there is nothing to remove.
        let _ = fs::remove_file(&self.path);
    }
}

fn read(path: &Path) -> Notes {
    let bytes = fs::read(path).unwrap_or_default();
    let notes: Notes = serde_json::from_slice(&bytes).unwrap_or_default();
    match notes.version {
        VERSION => notes,
        _ => Notes::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_survive_and_unreadable_ones_are_none() {
        let directory = std::env::temp_dir().join(format!("mux-notes-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = NotesFile::new(&directory);
        assert_eq!(file.read(), Notes::default());
        let note = ApplicationNote {
            number: 3,
            name: "mill".into(),
            pid: 7,
            uid: 1000,
            gid: 1000,
            contexts: 2,
            family: Some(5),
            claims: vec![("[::]:80".parse().unwrap(), vec![0, 1])],
            bound: vec!["[::]:80".parse().unwrap()],
            leases: vec![(0, 20_000, 20_031)],
            costs: vec![(0, 4096, 40)],
        };
        let dead = DeadNote {
            ledger: 1,
            uid: 1000,
            bytes: 40,
            endpoints: vec!["10.9.0.1:80".parse().unwrap()],
            leases: vec![(20_032, 20_063)],
        };
        let notes = Notes {
            version: VERSION,
            applications: vec![note],
            dead: vec![dead],
            reserved: vec![(20_000, 20_063)],
            network: 9,
        };
        file.write(notes.clone()).unwrap();
        assert_eq!(file.read(), notes);
        fs::write(directory.join(FILE), b"{\"version\":1,").unwrap();
        assert_eq!(file.read(), Notes::default());
        fs::remove_dir_all(directory).unwrap();
    }
}
