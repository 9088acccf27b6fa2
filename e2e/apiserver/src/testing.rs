//! One-line starts for tests.

use crate::ApiServer;
use crate::Options;
use crate::Running;

impl ApiServer {
    /// Starts a server with nothing but what every cluster has.
    ///
    /// # Panics
    /// If it does not start; a test can't go on without it.
    pub async fn for_test() -> Running {
        Self::start(Options::default())
            .await
            .expect("an embedded API server starts on loopback: invariant of tests")
    }
}
