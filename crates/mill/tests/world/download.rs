//! A transfer that lasts, so that something can happen in the middle of it.

use std::io::Read as _;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::{CURL, World};

/// Bytes that are read at once, and the pause between two reads: a megabyte takes a second.
const PIECE_BYTES: usize = 16 << 10;
const PAUSE: Duration = Duration::from_millis(16);

/// The kernel's receive buffer, so that it holds little of a transfer.
const RECEIVE_BUFFER: &str = "net.ipv4.tcp_rmem=4096 131072 131072";

/// A download by curl on the kernel's side. Its output is read slowly, since curl takes a few
/// megabytes at once even with `--limit-rate`. Pipe and buffers hold some 200 KB, so the rest is
/// sent at the reader's pace.
pub struct Download {
    curl: Child,
    reader: Option<JoinHandle<Vec<u8>>>,
}

impl Download {
    /// Starts a download, with further words for curl, and returns when the first bytes are there.
    pub fn start(world: &World, words: &[&str]) -> Self {
        let set = world.kernel(&["sysctl", "-qw", RECEIVE_BUFFER]);
        assert!(set.status.success(), "{set:?}");
        let mut command = world.command("kernel", &[&CURL[..], words].concat());
        let mut curl = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut pipe = curl.stdout.take().unwrap();
        let (has_begun, begins) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            let (mut body, mut piece) = (Vec::new(), [0; PIECE_BYTES]);
            loop {
                let len = pipe.read(&mut piece).unwrap();
                body.extend_from_slice(&piece[..len]);
                let _ = has_begun.send(());
                if len == 0 {
                    return body;
                }
                std::thread::sleep(PAUSE);
            }
        });
        begins.recv().unwrap();
        let reader = Some(reader);
        Self { curl, reader }
    }

    /// The whole body. curl's errors are on stderr.
    pub fn body(mut self) -> Vec<u8> {
        let body = self.reader.take().unwrap().join().unwrap();
        assert!(self.curl.wait().unwrap().success());
        body
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        let _ = self.curl.kill();
        let _ = self.curl.wait();
    }
}
