//! A fleet as large as they get: what status says of it, and how much that is.

use super::*;

const CLUSTERS: usize = 3_500;
const WORKLOADS: usize = 100_000;

fn is_silent(cluster: usize) -> bool {
    let (region, at) = (cluster / 100, cluster % 100);
    region == 3 && at < 80 || region % 2 == 0 && at == 50 || region == 5 && at < 2
}

/// Returns 3,500 clusters in 35 regions, of which 100 are silent, 80 of them in one region. Half of
/// the workloads that were there have moved.
fn fleet() -> Snapshot {
    let region = |at: usize| format!("region-{:02}", at / 100);
    let name = |at: usize| format!("{}-c{:03}", region(at), at % 100);
    let clusters = (0..CLUSTERS).map(|at| {
        let ready = if is_silent(at) { "Unknown" } else { "True" };
        let mut it = cluster(&name(at), ready, &[]);
        it.spec.region = Some(region(at));
        if is_silent(at) {
            it.spec.taints = read(json!([{ "key": "failed", "effect": "NoExecute" }]));
        }
        it
    });
    let leases = (0..CLUSTERS).map(|at| {
        let renewed = if is_silent(at) {
            "2026-01-01T00:04:20Z"
        } else {
            "2026-01-01T00:09:58Z"
        };
        (name(at), lease(&name(at), renewed))
    });
    let mut works = Vec::new();
    let bindings: Vec<_> = (0..WORKLOADS)
        .map(|at| {
            let title = format!("w{at:05}");
            let home = at * 7 % CLUSTERS;
            if !is_silent(home) {
                return sentence::placed(&title, &name(home), "Healthy", None);
            }
            if at % 2 == 0 {
                works.push(work(&title, &name(home)));
                return sentence::placed(&title, &name((home + 1_001) % CLUSTERS), "Healthy", None);
            }
            let message = format!("{} has taint failed:NoExecute: it leaves", name(home));
            sentence::placed(
                &title,
                &name(home),
                "Unknown",
                Some(("WaitingForRate", &message)),
            )
        })
        .collect();
    let settings = Settings::of_flags(&["--resource-eviction-rate=5".to_owned()]).unwrap();
    Snapshot {
        leases: Ok(leases.collect()),
        works: Ok(works),
        settings,
        ..snapshot(clusters.collect(), bindings)
    }
}

/// Bytes of an answer for the page with all clusters: no more than the table of clusters needs.
const LARGEST: usize = 2_000_000;

#[test]
fn the_loss_of_a_region_of_a_large_fleet_is_reported_as_that_and_in_a_bounded_answer() {
    let snapshot = fleet();
    let mut report = decide(&snapshot);
    report.cluster_list = snapshot.cluster_rows();
    report.limit(200);
    let text = serde_json::to_string(&report).unwrap();
    assert!(text.len() < LARGEST, "{}", text.len());
    // For whoever draws it: `.ci/scenes` does.
    if let Some(file) = std::env::var_os("MUSTER_LARGE_STATUS") {
        std::fs::write(file, text).unwrap();
    }
    let reported: Vec<String> = report.summary.lines().into_iter().map(|it| it.1).collect();
    assert_eq!(
        report.summary.line(),
        "ALARM: 100 of 3500 clusters silent at once for 5 min 40 s (last heard 00:04:20Z), 80 of them in region-03 (of 100 there): 1600 of 2800 workloads run elsewhere, 1200 wait for their turn, at the pace of the fleet"
    );
    assert_eq!(
        reported,
        [
            "perhaps 1200 workloads are without service, at worst since 00:04:20Z (Deployment default/w00043, w00045, w00047 and 1197 more): their clusters (region-03-c001, region-03-c015, region-03-c029 and 3 more) are silent",
            "in 4 min (00:14:00Z): the last of 1200 workloads that wait has been placed elsewhere, at the latest",
            "let it go on; look first for what the 80 in region-03 have in common, then find out with direct access (kubeconfig, the provider's console) whether the 100 clusters run or are dead; to list those that are not ready: kubectl muster get clusters | grep -v ' True[ ,]'",
            "200 old copies not confirmed gone in region-03-c008 (silent): Deployment default/w00044, w00544, w01044 and 197 more; 200 old copies not confirmed gone in region-03-c022 (silent): Deployment default/w00046, w00546, w01046 and 197 more; 200 old copies not confirmed gone in region-03-c036 (silent): Deployment default/w00048, w00548, w01048 and 197 more; and 1000 in 5 other clusters. The clusters remove them themselves when they are back. Only if two copies at once do harm until then, cut the clusters off from what the copies write to (network, storage), since these are too many to stop one by one; that ends the service of what has no copy elsewhere, too; what is placed in region-03-c008 or leaves it: kubectl muster get workloads -A --cluster region-03-c008",
        ]
    );
}
