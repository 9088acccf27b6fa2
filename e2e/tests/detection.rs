//! Silences: noticed in time, and never imagined.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // how a test says that it failed

mod roll;

use std::time::Duration;

use muster_e2e::harness::route::Condition;
use roll::{GRACE, Setting, ready, silent};
use tokio::time::Instant;

/// How late a silence may be noticed here, beside the last heartbeat's age: tests share their
/// machine with other tests.
const LATE: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_cut_off_just_after_it_joined_is_missed_after_one_grace() {
    let start_up = "--cluster-startup-grace-period=60s".to_owned();
    roll::call(
        Setting::named("just-joined", 1).flag(start_up),
        async |roll| {
            // Joins while the control plane listens, so that its start-up grace begins before it is
            // heard.
            roll.join("late")?;
            roll::until(roll, "it is ready", |view| ready(view, "late")).await?;
            let cut = Instant::now();
            roll.cut(["late"]);
            roll::until(roll, "it is missed", |view| silent(view, "late")).await?;
            assert!(
                cut.elapsed() < GRACE + LATE,
                "missed after {:?}",
                cut.elapsed()
            );
            assert!(
                cut.elapsed() > roll::AT_LEAST,
                "missed too early, after {:?}",
                cut.elapsed()
            );
            Ok(())
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_control_plane_is_cut_off_itself_nobody_is_taken_for_silent() {
    roll::call(
        Setting::named("own-network", 6).flag("--leader-elect=false".to_owned()),
        async |roll| {
            roll.place("web", "member1", &serde_json::Value::Null)?;
            roll.to_fleet.set(Condition::Silent);
            // This one really dies meanwhile, and nobody can know.
            roll.cut(["member6"]);
            let away = 2 * GRACE;
            roll::holds(roll, "nobody is judged unheard", away, roll::nobody_silent).await?;
            let back = Instant::now();
            roll.to_fleet.set(Condition::Up);
            roll::until(roll, "the dead one is missed", |view| {
                silent(view, "member6")
            })
            .await?;
            let after = back.elapsed();
            assert!(
                after + Duration::from_millis(500) > roll::AT_LEAST,
                "it had a full grace after the outage, not {after:?}"
            );
            roll::holds(roll, "the others are alive", GRACE, |view| {
                roll::nobody_silent_but(view, "member6")
            })
            .await?;
            assert_eq!(roll::leaving(roll), 0, "nobody was evicted");
            Ok(())
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_takes_nobody_for_silent_before_it_has_listened_for_a_full_grace() {
    roll::call(Setting::named("new-leader", 4), async |roll| {
        roll.cut(["member4"]);
        roll.control_plane.kill().await;
        roll::holds(roll, "nobody is there to notice", 2 * GRACE, |view| {
            roll::nobody_silent(view)
        })
        .await?;
        let resumed = Instant::now();
        roll.control_plane.resume();
        roll::until(roll, "the dead one is missed", |view| {
            silent(view, "member4")
        })
        .await?;
        assert!(
            resumed.elapsed() > GRACE,
            "missed {:?} after the new leader was started",
            resumed.elapsed()
        );
        roll::holds(roll, "the others are alive", GRACE, |view| {
            roll::nobody_silent_but(view, "member4")
        })
        .await?;
        Ok(())
    })
    .await;
}
