//! Bytes of a file between reading and sending.
//!
//! A connection takes as many bytes as its send buffer has room for, which is seldom everything
//! that was read. The remaining bytes stay here for its next visit, so that they are not read
//! twice. Owns one buffer for all connections of a worker; another document, or another offset,
//! replaces its contents. Called by connections.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;

use super::documents::Document;
use crate::limits::FILE_READ_BYTES;

/// See the module's documentation.
pub struct FileBuffer {
    bytes: Box<[u8]>,
    /// The document that the bytes belong to.
    document: Option<Rc<Document>>,
    /// The range of the bytes in the document.
    held: Range<u64>,
}

impl FileBuffer {
    pub fn new() -> Self {
        Self {
            bytes: vec![0; FILE_READ_BYTES].into_boxed_slice(),
            document: None,
            held: 0..0,
        }
    }

    /// The first bytes of `wanted` of the document, at least one. The document is in `file`;
    /// `wanted` is not empty.
    ///
    /// # Errors
    /// Errors of reading; `UnexpectedEof` if the file has become shorter.
    pub fn bytes_of(
        &mut self,
        document: &Rc<Document>,
        file: &File,
        wanted: &Range<u64>,
    ) -> io::Result<&[u8]> {
        let is_its = self
            .document
            .as_ref()
            .is_some_and(|of| Rc::ptr_eq(of, document));
        if !is_its || !self.held.contains(&wanted.start) {
            self.held = 0..0;
            self.document = Some(Rc::clone(document));
            let count = (wanted.end - wanted.start).min(self.bytes.len() as u64) as usize;
            let count = match file.read_at(&mut self.bytes[..count], wanted.start)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => count,
            };
            self.held = wanted.start..wanted.start + count as u64;
        }
        let from = (wanted.start - self.held.start) as usize;
        let to = (self.held.end.min(wanted.end) - self.held.start) as usize;
        Ok(&self.bytes[from..to])
    }
}

#[cfg(test)]
mod tests {
    use super::super::documents::{Content, Documents, Found};
    use super::super::testing::Site;
    use super::*;
    use crate::http::path;

    /// A document of `length` bytes. Each byte is the low byte of its offset, plus `plus`.
    fn document(site: &Site, name: &str, length: usize, plus: usize) -> Rc<Document> {
        let bytes: Vec<u8> = (0..length).map(|at| (at + plus) as u8).collect();
        site.write(name, bytes);
        let mut documents = Documents::open(&site.path).unwrap();
        match documents.find(&path::parse(&format!("/{name}")).unwrap(), 0) {
            Ok(Found::Document(document)) => document,
            other => panic!("{other:?}"),
        }
    }

    fn file(document: &Document) -> &File {
        match &document.content {
            Content::File(file) => file,
            Content::Memory(_) => panic!("in memory"),
        }
    }

    #[test]
    fn bytes_that_were_not_taken_are_not_read_again() {
        let site = Site::new("buffer-again");
        let one = document(&site, "one", 2_000_000, 0);
        let mut buffer = FileBuffer::new();
        let first = buffer.bytes_of(&one, file(&one), &(0..2_000_000)).unwrap();
        assert_eq!((first.len(), first[9]), (FILE_READ_BYTES, 9));
        // Further reads of the file would return nothing.
        site.write("one", "");
        let again = buffer.bytes_of(&one, file(&one), &(10..2_000_000)).unwrap();
        assert_eq!((again.len(), again[0]), (FILE_READ_BYTES - 10, 10));
        let end = FILE_READ_BYTES as u64;
        let last = buffer
            .bytes_of(&one, file(&one), &(end - 1..2_000_000))
            .unwrap();
        assert_eq!(last.len(), 1);
        let part = buffer.bytes_of(&one, file(&one), &(20..25)).unwrap();
        assert_eq!(part, [20, 21, 22, 23, 24]);
        let behind = buffer.bytes_of(&one, file(&one), &(end..2_000_000));
        assert_eq!(behind.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        // A failed read must not leave bytes that could be taken for the document's.
        let gone = buffer.bytes_of(&one, file(&one), &(10..2_000_000));
        assert!(gone.is_err());
    }

    #[test]
    fn bytes_of_another_document_are_read() {
        let site = Site::new("buffer-other");
        let (one, two) = (
            document(&site, "one", 2_000_000, 0),
            document(&site, "two", 2_000_000, 1),
        );
        let mut buffer = FileBuffer::new();
        for _ in 0..2 {
            for (document, first) in [(&one, 5), (&two, 6)] {
                let bytes = buffer
                    .bytes_of(document, file(document), &(5..2_000_000))
                    .unwrap();
                assert_eq!(bytes[0], first);
            }
        }
    }
}
