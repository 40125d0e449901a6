//! The served directory: opens files in it, and caches the popular ones.
//!
//! The kernel resolves each path with `openat2` and `RESOLVE_BENEATH`, so neither `..` nor a
//! symbolic link leads out. Small files are kept in memory, large ones as open descriptors that are
//! read while they are sent. At its limits the cache drops the least recently used documents. An
//! entry older than [`CACHE_FRESH_NS`] is compared with the file before use. Owned by a worker.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use lru::LruCache;
use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::http::media;
use crate::http::path::DocumentPath;
use crate::limits::{CACHE_BYTES_MAX, CACHE_DOCUMENTS_MAX, CACHE_FRESH_NS, CACHED_FILE_BYTES_MAX};

/// The file that is served for a directory.
const INDEX: &[u8] = b"index.html";

/// A file that can be sent.
#[derive(Debug)]
pub struct Document {
    pub length: u64,
    /// Seconds since 1970.
    pub modified: u64,
    pub media: String,
    pub content: Content,
    identity: Identity,
}

/// The place of a document's bytes.
#[derive(Debug)]
pub enum Content {
    Memory(Box<[u8]>),
    File(File),
}

/// The object at a path.
#[derive(Clone, Debug)]
pub enum Found {
    Document(Rc<Document>),
    /// A directory requested without a slash. The client must be redirected, or relative links in
    /// the index would be wrong.
    Directory,
    Nothing,
}

/// Attributes that change with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    length: u64,
    modified_ns: i128,
}

struct Entry {
    document: Rc<Document>,
    checked_ns: u64,
}

/// The directory and its cache.
pub struct Documents {
    root: OwnedFd,
    cache: LruCache<DocumentPath, Entry>,
    cached_bytes: u64,
}

impl Documents {
    /// Opens the directory, and checks that the kernel can confine paths to it.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(directory, flags, Mode::empty())?;
        let documents = Self {
            root,
            cache: LruCache::unbounded(),
            cached_bytes: 0,
        };
        documents.open_beneath(b".", OFlags::PATH)?;
        Ok(documents)
    }

    /// The object at a path, from the cache if it is fresh.
    pub fn find(&mut self, path: &DocumentPath, now_ns: u64) -> io::Result<Found> {
        if let Some(entry) = self.cache.get(path)
            && now_ns.saturating_sub(entry.checked_ns) < CACHE_FRESH_NS
        {
            return Ok(Found::Document(Rc::clone(&entry.document)));
        }
        self.look_up(path, now_ns)
    }

    /// The object at a path, from the file system.
    #[cold]
    fn look_up(&mut self, path: &DocumentPath, now_ns: u64) -> io::Result<Found> {
        let opened = match self.open_document(path) {
            Ok(opened) => opened,
            Err(error) if is_absence(error) => {
                self.forget(path);
                return Ok(Found::Nothing);
            }
            Err(error) => return Err(error.into()),
        };
        let Opened::File(file, stat) = opened else {
            return Ok(if matches!(opened, Opened::Directory) {
                Found::Directory
            } else {
                Found::Nothing
            });
        };
        if let Some(entry) = self.cache.get_mut(path)
            && entry.document.identity == identity(&stat)
        {
            entry.checked_ns = now_ns;
            return Ok(Found::Document(Rc::clone(&entry.document)));
        }
        let document = Rc::new(load(path, file, &stat)?);
        self.keep(path, &document, now_ns);
        Ok(Found::Document(document))
    }

    fn open_document(&self, path: &DocumentPath) -> Result<Opened, Errno> {
        let mut name = path.bytes.clone();
        if path.is_directory {
            if !name.is_empty() {
                name.push(b'/');
            }
            name.extend_from_slice(INDEX);
        }
        // With NONBLOCK, opening a FIFO does not wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open_beneath(&name, flags)?;
        let stat = fs::fstat(&file)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Opened::File(file.into(), stat),
            FileType::Directory => Opened::Directory,
            _ => Opened::Other,
        })
    }

    fn open_beneath(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        loop {
            match fs::openat2(
                &self.root,
                name,
                flags | OFlags::CLOEXEC,
                Mode::empty(),
                resolve,
            ) {
                // The kernel noticed a concurrent rename and could not be sure.
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return result,
            }
        }
    }

    fn keep(&mut self, path: &DocumentPath, document: &Rc<Document>, now_ns: u64) {
        let entry = Entry {
            document: Rc::clone(document),
            checked_ns: now_ns,
        };
        self.cached_bytes += document.memory_bytes();
        if let Some((_, replaced)) = self.cache.push(path.clone(), entry) {
            self.cached_bytes -= replaced.document.memory_bytes();
        }
        while self.cache.len() > CACHE_DOCUMENTS_MAX || self.cached_bytes > CACHE_BYTES_MAX {
            let Some((_, oldest)) = self.cache.pop_lru() else {
                return;
            };
            self.cached_bytes -= oldest.document.memory_bytes();
        }
    }

    fn forget(&mut self, path: &DocumentPath) {
        if let Some(entry) = self.cache.pop(path) {
            self.cached_bytes -= entry.document.memory_bytes();
        }
    }
}

enum Opened {
    File(File, Stat),
    Directory,
    Other,
}

impl Document {
    fn memory_bytes(&self) -> u64 {
        match &self.content {
            Content::Memory(bytes) => bytes.len() as u64,
            Content::File(_) => 0,
        }
    }
}

/// True for errors that mean there is nothing to serve: absent, forbidden, or outside.
fn is_absence(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT
            | Errno::NOTDIR
            | Errno::XDEV
            | Errno::LOOP
            | Errno::ACCESS
            | Errno::PERM
            | Errno::NAMETOOLONG
            | Errno::NXIO
            | Errno::NODEV
            | Errno::INVAL
            | Errno::ILSEQ
    )
}

fn identity(stat: &Stat) -> Identity {
    Identity {
        device: stat.st_dev,
        inode: stat.st_ino,
        length: u64::try_from(stat.st_size).unwrap_or(0),
        modified_ns: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
    }
}

fn load(path: &DocumentPath, file: File, stat: &Stat) -> io::Result<Document> {
    let identity = identity(stat);
    let name: &[u8] = if path.is_directory {
        INDEX
    } else {
        &path.bytes
    };
    let mut length = identity.length;
    let content = if length <= CACHED_FILE_BYTES_MAX {
        let bytes = read_whole(&file, length as usize)?;
        // The file may have become shorter meanwhile: serve the bytes that were read.
        length = bytes.len() as u64;
        Content::Memory(bytes)
    } else {
        Content::File(file)
    };
    Ok(Document {
        length,
        modified: u64::try_from(stat.st_mtime).unwrap_or(0),
        media: media::type_of(name),
        content,
        identity,
    })
}

fn read_whole(file: &File, length: usize) -> io::Result<Box<[u8]>> {
    use std::os::unix::fs::FileExt;

    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes.into_boxed_slice())
}

#[cfg(test)]
mod tests;
