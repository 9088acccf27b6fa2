//! A silence that is none: the network of the control plane itself fails.

use std::time::Duration;

use crate::heartbeats::{self, GRACE, Setting, silent};
use muster_e2e::harness::route::Condition;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn while_the_control_plane_is_cut_off_itself_nobody_is_taken_for_silent() {
    heartbeats::run(
        Setting::named("own-network", 6).flag("--leader-elect=false".to_owned()),
        async |fleet| {
            fleet.place("web", "member1", &serde_json::Value::Null)?;
            fleet.to_fleet.set(Condition::Silent);
            // This one really dies meanwhile, and nobody can know.
            fleet.cut(["member6"]);
            let away = GRACE + Duration::from_secs(1);
            heartbeats::holds(
                fleet,
                "nobody is judged silent",
                away,
                heartbeats::nobody_silent,
            )
            .await?;
            let back = Instant::now();
            fleet.to_fleet.set(Condition::Up);
            heartbeats::until(fleet, "the dead one is missed", |view| {
                silent(view, "member6")
            })
            .await?;
            let after = back.elapsed();
            assert!(
                after + Duration::from_millis(500) > heartbeats::AT_LEAST,
                "it had a full grace after the outage, not {after:?}"
            );
            let time = Duration::from_secs(1);
            heartbeats::holds(fleet, "the others are alive", time, |view| {
                heartbeats::nobody_silent_but(view, "member6")
            })
            .await?;
            assert_eq!(heartbeats::leaving(fleet), 0, "nobody was evicted");
            Ok(())
        },
    )
    .await;
}
