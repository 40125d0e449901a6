//! The state that all stages of a stack share: the engine, the keys of connections to come, and the
//! clock of the stages.
//!
//! Each stage has its own state (`Arrivals`, `AppRequests`, `Departures`). A stage takes the core
//! and passes on only the parts that a function needs. The port is separate, so that frames which
//! it lends and the core can be borrowed at the same time.

use crate::admission::Admission;
use crate::engine::Engine;
use crate::stage_clock::{Stage, StageClock, StageCycles};

/// See the module's documentation.
pub(crate) struct Core {
    /// Boxed because the engine is large and the thread that makes a stack may have a small stack
    /// of its own.
    engine: Box<Engine>,
    admission: Admission,
    stages: StageClock,
}

impl Core {
    pub fn new(engine: Box<Engine>, admission: Admission) -> Self {
        Self {
            engine,
            admission,
            stages: StageClock::default(),
        }
    }

    /// The engine and the keys of connections to come.
    #[inline(always)]
    pub fn split(&mut self) -> (&mut Engine, &mut Admission) {
        (&mut self.engine, &mut self.admission)
    }

    /// The engine, by shared reference.
    #[inline(always)]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine, by mutable reference.
    #[inline(always)]
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The state for new connections, by shared reference.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Charges the time since the last lap to `stage`.
    #[inline(always)]
    pub fn lap(&mut self, stage: Stage) {
        self.stages.lap(stage);
    }

    /// Cycles of each stage so far.
    pub fn stage_cycles(&self) -> StageCycles {
        self.stages.cycles()
    }
}
