//! The state that all stages of a stack share: the engine, the keys of connections to come, and the
//! clock of the stages.
//!
//! Each stage has its own state (`Arrivals`, `AppRequests`, `Departures`). The stages of a turn
//! take the core and hand its parts on: what is below them takes the engine, or parts of it. The
//! port is separate, so that frames lent by it and the state that they change can be borrowed at
//! once.

use crate::admission::Admission;
use crate::engine::Engine;
use crate::stage_clock::{Stage, StageClock, StageCycles};

/// See the module's documentation.
pub(crate) struct Core {
    /// Alone on the heap: it is large, and who makes a stack may have a small one.
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

    /// The engine, to be looked at.
    #[inline(always)]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine.
    #[inline(always)]
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The state of connections to come, to be looked at.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Charges the time since the last lap to this stage.
    #[inline(always)]
    pub fn lap(&mut self, stage: Stage) {
        self.stages.lap(stage);
    }

    /// Cycles of each stage so far.
    pub fn stage_cycles(&self) -> StageCycles {
        self.stages.cycles()
    }
}
