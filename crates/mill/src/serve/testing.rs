//! For tests: a directory with files, and a server for it over kernel sockets. Both are removed on
//! drop.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::documents::Documents;
use super::stats::Stats;
use super::worker::Worker;
use crate::net::Net;
use crate::net::kernel::Kernel;
use crate::stop::Stop;

/// A temporary directory.
pub struct Site {
    pub path: PathBuf,
}

impl Site {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mst-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A worker on its own thread.
pub struct Server {
    pub address: SocketAddr,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<Stats>>,
}

impl Server {
    pub fn start(directory: &Path, connections_max: usize) -> Self {
        let listener = Kernel
            .listen(SocketAddr::from(([127, 0, 0, 1], 0)), 64)
            .unwrap();
        let address = rustix::net::getsockname(&listener)
            .unwrap()
            .try_into()
            .unwrap();
        let stop = Arc::new(Stop::new().unwrap());
        let stopped = Arc::clone(&stop);
        let directory = directory.to_path_buf();
        let thread = std::thread::spawn(move || {
            let documents = Documents::open(&directory).unwrap();
            let worker = Worker::new(Kernel, vec![listener], documents, connections_max).unwrap();
            worker.run(stopped.fd()).unwrap()
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }

    /// Stops the worker and returns its counts.
    pub fn stop(mut self) -> Stats {
        self.stop.raise();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.raise();
    }
}
