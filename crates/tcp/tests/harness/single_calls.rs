//! Calls of an application, made one at a time. The stack combines several in one run.

use tcp::{Connection, Cx, Effects};

/// Calls of the application, each as a run of its own.
pub trait SingleCalls {
    /// The application has read: `unread` published bytes are left.
    fn on_read(&mut self, cx: &mut Cx<'_>, unread: u32) -> Effects;

    /// Ends the application's data: a FIN follows the buffered bytes.
    fn shutdown_write(&mut self, cx: &mut Cx<'_>) -> Effects;
}

impl SingleCalls for Connection {
    fn on_read(&mut self, cx: &mut Cx<'_>, unread: u32) -> Effects {
        let run = self.begin_run();
        self.note_read(cx, unread);
        self.end_run(cx, Effects::NONE, run)
    }

    fn shutdown_write(&mut self, cx: &mut Cx<'_>) -> Effects {
        let run = self.begin_run();
        self.note_shutdown_write();
        self.end_run(cx, Effects::NONE, run)
    }
}
