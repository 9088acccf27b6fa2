use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kube::Config;
use muster_shared::client::Gateway;
use muster_shared::lease::{self, Annotations, Candidate, Leadership, Timing};
use muster_shared::tasks::Tasks;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Fleet;
use super::template_event::Lookup;
use super::testing::{Bench, FakeApi, cluster, pass, template_key};
use crate::settings::Settings;

const RECORD: (&str, &str, &str) = ("configmaps", "karmada-system", "muster-pause");

/// Returns a fleet of one cluster in which both the fleet and the cluster are paused.
async fn paused() -> Bench {
    let record = json!({
        "metadata": {"namespace": RECORD.1, "name": RECORD.2, "uid": "p"},
        "data": {"reason": "freeze"},
    });
    let m1 = super::testing::paused(cluster("m1"));
    Bench::followed([(RECORD.0, record), ("clusters", m1)]).await
}

/// Returns whether the fleet is paused, and whether its cluster is paused, by itself or with the
/// fleet.
fn held(bench: &Bench) -> (bool, bool) {
    let (pauses, now) = (&bench.fleet.pauses, bench.fleet.clock.now());
    (
        pauses.of_fleet(now).is_some(),
        pauses.of("m1", now).is_some(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_a_list_lacks_goes_on_until_the_api_says_that_its_record_is_gone() {
    let bench = paused().await;
    bench.api.hide(RECORD.0, RECORD.1, RECORD.2);
    bench.api.hide("clusters", "", "m1");
    pass(60).await;
    assert!(bench.fleet.clusters.list().is_empty(), "the list is short");
    assert_eq!(held(&bench), (true, true));
    // No watch reports the end of what the cache does not have.
    bench.api.delete(RECORD.0, RECORD.1, RECORD.2);
    pass(6).await;
    assert_eq!(held(&bench), (false, true));
    bench.api.delete("clusters", "", "m1");
    pass(6).await;
    assert_eq!(held(&bench), (false, false));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_no_list_and_no_watch_shows_is_read_and_so_is_its_end() {
    let bench = Bench::followed([("clusters", cluster("m1"))]).await;
    bench.api.hide(RECORD.0, RECORD.1, RECORD.2);
    let metadata = json!({"namespace": RECORD.1, "name": RECORD.2});
    bench.api.put(RECORD.0, json!({ "metadata": metadata }));
    pass(6).await;
    assert_eq!(held(&bench), (true, true));
    bench.api.delete(RECORD.0, RECORD.1, RECORD.2);
    pass(6).await;
    assert_eq!(held(&bench), (false, false));
}

#[tokio::test(start_paused = true)]
async fn a_pause_whose_record_cannot_be_read_goes_on() {
    let bench = paused().await;
    bench.api.refuse(Method::GET, RECORD.2, 500, "");
    bench.api.delete(RECORD.0, RECORD.1, RECORD.2);
    pass(60).await;
    assert_eq!(held(&bench), (true, true));
    bench.api.answer_truly();
    pass(6).await;
    assert_eq!(held(&bench), (false, true));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_ended_ends_at_once() {
    let bench = paused().await;
    bench.api.delete(RECORD.0, RECORD.1, RECORD.2);
    pass(1).await;
    assert_eq!(held(&bench), (false, true));
    bench.api.put("clusters", cluster("m1"));
    pass(1).await;
    assert_eq!(held(&bench), (false, false));
}

/// Returns the fleet of an API that is followed by a process which does not lead yet, and the tasks
/// that follow it.
fn standby(api: &FakeApi) -> (Arc<Fleet>, Tasks) {
    let lease = json!({"metadata": {"namespace": "karmada-system", "name": "leader"}, "spec": {}});
    api.put("leases", lease);
    let config = Config::new("http://fleet".parse().unwrap());
    let gateway = Gateway::over(Arc::new(api.clone()), "fleet", config);
    let mut tasks = Tasks::new(CancellationToken::new());
    let leadership = Leadership::elected();
    let fleet = Fleet::new(&gateway, Settings::default(), leadership, &mut tasks).unwrap();
    fleet.follow(&mut tasks);
    (fleet, tasks)
}

/// Has the process of a fleet take part in the election.
fn elect(fleet: &Fleet) {
    let candidate = Candidate {
        namespace: "karmada-system".to_owned(),
        name: "leader".to_owned(),
        identity: "b".to_owned(),
        timing: Timing::default(),
        annotations: Annotations::default(),
    };
    let (client, leadership) = (fleet.urgent_client.clone(), fleet.leadership.clone());
    let retire = CancellationToken::new();
    tokio::spawn(lease::campaign(client, candidate, leadership, retire));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stood_by_lists_again_before_it_takes_over() {
    let api = FakeApi::default();
    api.put("clusters", cluster("m1"));
    api.hide("clusters", "", "m1");
    let web = json!({"metadata": {"namespace": "shop", "name": "web"}});
    api.put("deployments", web);
    api.hide("deployments", "shop", "web");
    api.serve_deployments();
    let (fleet, _tasks) = standby(&api);
    let template = template_key("apps/v1", "Deployment", "web");
    fleet.templates.name(&template.kind);
    let waiting = Arc::clone(&fleet);
    let ready = tokio::spawn(async move { waiting.ready().await });
    pass(5).await;
    assert!(!ready.is_finished(), "another process leads");
    // The cluster joins, the template is made, and no watch reports them.
    api.show_again("clusters", "", "m1");
    api.show_again("deployments", "shop", "web");
    pass(5).await;
    assert!(fleet.clusters.list().is_empty());
    assert!(matches!(fleet.templates.get(&template), Lookup::Absent));
    elect(&fleet);
    let ready = tokio::time::timeout(Duration::from_secs(10), ready).await;
    assert!(ready.unwrap().unwrap());
    assert_eq!(fleet.cluster_names(), ["m1"]);
    assert!(matches!(fleet.templates.get(&template), Lookup::Found(_)));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_leads_as_soon_as_it_knows_the_fleet_waits_for_no_other_list() {
    let api = FakeApi::default();
    let (fleet, _tasks) = standby(&api);
    let waiting = Arc::clone(&fleet);
    let ready = tokio::spawn(async move { waiting.ready().await });
    fleet.synced().await;
    pass(1).await;
    assert!(!ready.is_finished(), "it has no lease yet");
    elect(&fleet);
    let ready = tokio::time::timeout(Duration::from_millis(500), ready).await;
    assert!(ready.unwrap().unwrap());
}
