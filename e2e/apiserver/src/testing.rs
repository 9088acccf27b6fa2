//! One-line starts for tests.

use serde_json::Value;

use crate::ApiServer;
use crate::Options;
use crate::Running;

impl ApiServer {
    /// Starts a server with nothing but what every cluster has.
    ///
    /// # Panics
    /// If it does not start; a test can't go on without it.
    pub async fn for_test() -> Running {
        Self::for_test_with(Vec::new()).await
    }

    /// Starts a server with these CRDs established.
    ///
    /// # Panics
    /// If it does not start; a test can't go on without it.
    pub async fn for_test_with(crds: Vec<Value>) -> Running {
        let options = Options {
            crds,
            ..Options::default()
        };
        Self::start(options)
            .await
            .expect("an embedded API server starts on loopback: invariant of tests")
    }
}
