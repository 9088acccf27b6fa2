//! The demonstration's story, as tests: what moves, what must not, and what a killed control plane may not break.

mod support;

use std::sync::Arc;
use std::time::Duration;

use muster_e2e::sandbox::expect;
use muster_e2e::sandbox::picture::Picture;
use muster_e2e::sandbox::scenario::VICTIM;
use muster_e2e::sandbox::story::{Failure, Story};
use support::scenario;

/// How long a thing that must not happen is waited for: longer than it takes where it may happen.
const LONG_ENOUGH: Duration = Duration::from_secs(12);

async fn to_the_end(story: &Story) -> Result<(), Failure> {
    story.until_healthy_elsewhere().await?;
    story.heal().await?;
    story.rest().await
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_of_a_silent_member_come_up_elsewhere_and_leave_it_when_it_returns() {
    scenario(
        "story",
        |_| {},
        async |story: Arc<Story>| {
            story.cut()?;
            story.until_unknown().await?;
            story.until_tainted().await?;
            story.until_moved().await?;
            to_the_end(&story).await
        },
    )
    .await;
}
