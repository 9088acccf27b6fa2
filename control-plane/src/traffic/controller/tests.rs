use http::Method;
use muster_shared::conditions;
use muster_shared::names::annotation::{FOLLOWS, HOSTNAME};
use muster_shared::names::condition::HOSTNAME_PUBLISHED;
use serde_json::{Value, json};

use super::*;
use crate::fleet::lookups::Overridden;
use crate::fleet::testing::{Bench, claimed, cluster, pass, refusal};
use crate::settings::Settings;

const HOST: &str = "shop.example.com";

const BOTH: [(&str, &str); 2] = [("m1", "Healthy"), ("m2", "Healthy")];

/// Returns the Service `shop/<name>` that asks for a host name, with more annotations.
fn service(name: &str, more: &Value) -> Value {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("uid-{name}"),
            "annotations": { HOSTNAME: HOST },
        },
        "spec": {"type": "LoadBalancer"},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        service["metadata"]["annotations"][key] = value.clone();
    }
    service
}

/// Returns a binding in `m1` and `m2`, with the health that clusters report; each has an address of
/// its own.
fn bound(api_version: &str, kind: &str, name: &str, reports: &[(&str, &str)]) -> Value {
    let report = |(cluster, health): &(&str, &str)| {
        let ingress = json!([{"ip": format!("192.0.2.{}", &cluster[1..])}]);
        json!({
            "clusterName": cluster, "applied": true, "health": health,
            "status": {"loadBalancer": {"ingress": ingress}},
        })
    };
    let reports: Vec<Value> = reports.iter().map(report).collect();
    json!({
        "metadata": {
            "namespace": "shop", "name": format!("{name}-{}", kind.to_ascii_lowercase()),
            "uid": format!("binding-{name}"),
        },
        "spec": {
            "resource": {
                "apiVersion": api_version, "kind": kind, "namespace": "shop", "name": name,
            },
            "clusters": [{"name": "m1"}, {"name": "m2"}],
        },
        "status": {"aggregatedStatus": reports},
    })
}

fn service_in(reports: &[(&str, &str)]) -> Value {
    bound("v1", "Service", "web", reports)
}

/// Returns the Service `shop/web` that asks for the host name, and its binding.
fn web(reports: &[(&str, &str)]) -> [(&'static str, Value); 2] {
    [
        ("services", service("web", &Value::Null)),
        ("resourcebindings", service_in(reports)),
    ]
}

/// Makes a fleet of two clusters with a Service that asks for a host name, and more objects.
fn with<'a>(objects: impl IntoIterator<Item = (&'a str, Value)>) -> Bench {
    let settings = Settings {
        traffic_dns_endpoints: true,
        ..Settings::default()
    };
    let clusters = ["m1", "m2"].map(|name| ("clusters", cluster(name)));
    let bench = Bench::with(settings, clusters.into_iter().chain(objects));
    bench.api.serve("/api/v1", "v1", "services", "Service");
    bench
}

async fn started(mut bench: Bench) -> Bench {
    bench.run(start, 1).await;
    bench
}

/// Returns the addresses that the DNSEndpoint of a template has.
fn targets(bench: &Bench, name: &str) -> Vec<String> {
    let object = bench.api.object("dnsendpoints", "shop", name);
    let endpoints = object.unwrap_or_default()["spec"]["endpoints"].clone();
    let targets = endpoints.as_array().into_iter().flatten();
    let targets = targets.filter_map(|it| it["targets"].as_array()).flatten();
    targets
        .filter_map(|it| it.as_str().map(str::to_owned))
        .collect()
}

/// Returns the reason of the condition of a binding.
fn reason(bench: &Bench, name: &str) -> Option<String> {
    let binding = bench.binding(name).unwrap();
    let reported = conditions::get(&binding.status().conditions, HOSTNAME_PUBLISHED);
    reported.map(|it| it.reason.clone())
}

/// Returns where the name of `web` leads.
fn leads(bench: &Bench) -> Vec<String> {
    targets(bench, "web-service")
}

/// Returns what the condition of the binding of `web` says.
fn said(bench: &Bench) -> String {
    reason(bench, "web-service").unwrap()
}

/// Lets a Service ask for no host name any more.
fn give_up(bench: &Bench, name: &str) {
    let mut plain = service(name, &Value::Null);
    plain["metadata"]["annotations"] = json!({});
    bench.api.put("services", plain);
}

/// Returns a healthy Service that follows a workload, and the bindings of both.
fn following(workload: Value) -> [(&'static str, Value); 3] {
    let follows = json!({ FOLLOWS: "apps/v1/Deployment/shop" });
    [
        ("services", service("web", &follows)),
        ("resourcebindings", service_in(&BOTH)),
        ("resourcebindings", workload),
    ]
}

fn put_cluster(bench: &Bench, name: &str, ready: &str) {
    let mut cluster = cluster(name);
    cluster["status"]["conditions"][0]["status"] = json!(ready);
    bench.api.put("clusters", cluster);
}

#[tokio::test(start_paused = true)]
async fn a_host_name_follows_a_failover_and_comes_back_when_the_cluster_has_been_well_for_a_while()
{
    let bench = started(with(web(&BOTH))).await;
    assert_eq!(leads(&bench), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(said(&bench), "Published");
    let object = bench
        .api
        .object("dnsendpoints", "shop", "web-service")
        .unwrap();
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "uid-web");
    bench.api.forget();
    put_cluster(&bench, "m1", "Unknown");
    pass(1).await;
    assert_eq!(leads(&bench), ["192.0.2.2"], "it is out at once");
    let events = bench.api.events().await;
    let moved = "shop.example.com leads to m2 (192.0.2.2) now; it led to m1 (192.0.2.1), m2 (192.0.2.2) before: m1 has Ready=Unknown.";
    assert!(
        events
            .iter()
            .any(|it| it.1 == "HostnameMoved" && it.2 == moved),
        "{events:?}"
    );
    put_cluster(&bench, "m1", "True");
    pass(25).await;
    assert_eq!(leads(&bench), ["192.0.2.2"], "not yet");
    pass(10).await;
    assert_eq!(leads(&bench), ["192.0.2.1", "192.0.2.2"]);
    bench.api.forget();
    pass(3600).await;
    assert_eq!(bench.api.writes(), [], "at rest nothing is written");
}

#[tokio::test(start_paused = true)]
async fn a_name_keeps_its_last_address_while_nothing_serves_and_that_is_reported_once() {
    let bench = started(with(web(&[("m1", "Healthy")]))).await;
    assert_eq!(leads(&bench), ["192.0.2.1"]);
    put_cluster(&bench, "m1", "Unknown");
    pass(60).await;
    assert_eq!(leads(&bench), ["192.0.2.1"]);
    assert_eq!(said(&bench), "LastKnown");
    let reported = bench.api.reported().await;
    let reported = reported.iter().filter(|it| it.1 == "HostnameNotFollowed");
    assert_eq!(reported.count(), 2, "on the binding, and on the template");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_somebody_else_wrote_is_never_changed() {
    for (name, host) in [("web-service", "other.example.com"), ("theirs", HOST)] {
        let theirs = json!({
            "metadata": {"namespace": "shop", "name": name, "uid": "theirs"},
            "spec": {"endpoints": [{"dnsName": host, "targets": ["198.51.100.1"]}]},
        });
        let objects = web(&[("m1", "Healthy")]).into_iter();
        let bench = started(with(objects.chain([("dnsendpoints", theirs)]))).await;
        assert_eq!(targets(&bench, name), ["198.51.100.1"]);
        assert_eq!(bench.api.all("dnsendpoints").len(), 1);
        assert_eq!(said(&bench), "Conflict");
        bench.api.delete("dnsendpoints", "shop", name);
        pass(1).await;
        assert_eq!(leads(&bench), ["192.0.2.1"], "once it is gone: {name}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_written_counts_as_gone_only_if_the_api_says_so_of_it() {
    let bench = started(with(web(&[("m1", "Healthy")]))).await;
    let path = "/dnsendpoints/web-service";
    bench.api.refuse(Method::DELETE, path, 404, "");
    give_up(&bench, "web");
    pass(1).await;
    assert_eq!(leads(&bench), ["192.0.2.1"]);
    bench.api.answer_truly();
    bench.api.serve("/api/v1", "v1", "services", "Service");
    pass(120).await;
    assert_eq!(bench.api.all("dnsendpoints"), [Value::Null; 0]);
    assert_eq!(reason(&bench, "web-service"), None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_understood_is_reported_and_what_is_published_stays() {
    let bench = started(with(web(&[("m1", "Healthy")]))).await;
    bench
        .api
        .put("services", service("web", &json!({ HOSTNAME: "Shop" })));
    pass(1).await;
    assert_eq!(leads(&bench), ["192.0.2.1"]);
    assert_eq!(said(&bench), "Invalid");
}

#[tokio::test(start_paused = true)]
async fn an_api_without_the_kind_is_reported_and_reconciled_again() {
    let bench = with(web(&[("m1", "Healthy")]));
    let unserved = refusal(404, "404 page not found", "");
    bench
        .api
        .answer(Method::GET, "/dnsendpoints", 404, unserved);
    let bench = started(bench).await;
    pass(60).await;
    assert_eq!(said(&bench), "NotServed");
    bench.api.answer_truly();
    bench.api.serve("/api/v1", "v1", "services", "Service");
    pass(120).await;
    assert_eq!(leads(&bench), ["192.0.2.1"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_api_refuses_is_reported() {
    let bench = with(web(&[("m1", "Healthy")]));
    bench
        .api
        .refuse(Method::POST, "/dnsendpoints", 403, "web-service");
    let bench = started(bench).await;
    assert_eq!(said(&bench), "Refused");
}

#[tokio::test(start_paused = true)]
async fn a_name_goes_when_no_policy_propagates_its_template_any_more() {
    for is_claimed in [false, true] {
        let mut template = service("web", &Value::Null);
        if is_claimed {
            // Somebody deletes the binding, and it is made again.
            template = claimed(template);
        }
        let objects = [
            ("services", template),
            ("resourcebindings", service_in(&[("m1", "Healthy")])),
        ];
        let bench = started(with(objects)).await;
        assert_eq!(leads(&bench), ["192.0.2.1"]);
        bench.api.delete("resourcebindings", "shop", "web-service");
        pass(3600).await;
        let left = leads(&bench).len();
        assert_eq!(left, usize::from(is_claimed), "claimed: {is_claimed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_with_no_replica_of_the_workload_gets_no_users() {
    let mut workload = bound("apps/v1", "Deployment", "shop", &BOTH);
    workload["spec"]["replicas"] = json!(4);
    workload["spec"]["clusters"] =
        json!([{"name": "m1", "replicas": 0}, {"name": "m2", "replicas": 4}]);
    let bench = started(with(following(workload.clone()))).await;
    assert_eq!(leads(&bench), ["192.0.2.2"]);
    // The replicas move, and the name with them.
    let mut moved = workload.clone();
    moved["spec"]["clusters"] =
        json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 0}]);
    bench.api.put("resourcebindings", moved);
    pass(5).await;
    assert_eq!(leads(&bench), ["192.0.2.1"]);
    // An override policy leaves none of its share in m2.
    workload["spec"]["clusters"][0]["replicas"] = json!(2);
    let bench = with(following(workload));
    bench.fleet.override_lookup.answer(|_, cluster| {
        let none = Overridden {
            asked: Some(4),
            replicas: Some(0),
            members_scale: false,
        };
        Ok((cluster == "m2").then_some(none))
    });
    let bench = started(bench).await;
    assert_eq!(leads(&bench), ["192.0.2.1"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_given_up_goes_to_who_asks_for_it() {
    // The first one asks, and serves nowhere; the other is healthy.
    let silent = bound("v1", "Service", "db", &[("m1", "Unknown")]);
    let objects = [
        ("services", service("db", &Value::Null)),
        ("resourcebindings", silent),
    ];
    let bench = started(with(objects)).await;
    let first = || reason(&bench, "db-service");
    assert_eq!(first().as_deref(), Some("NothingServes"));
    for (plural, object) in web(&[("m1", "Healthy")]) {
        bench.api.put(plural, object);
    }
    pass(5).await;
    assert_eq!(said(&bench), "Conflict");
    give_up(&bench, "db");
    pass(3600).await;
    assert_eq!(first(), None);
    assert_eq!(leads(&bench), ["192.0.2.1"], "{}", said(&bench));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_given_up_for_one_that_is_taken_follows_failovers_until_that_is_free() {
    let taken = json!({ HOSTNAME: "db.example.com" });
    let other = [
        ("services", service("db", &taken)),
        ("resourcebindings", bound("v1", "Service", "db", &BOTH)),
    ];
    let bench = started(with(web(&BOTH).into_iter().chain(other))).await;
    let name = || {
        let object = bench.api.object("dnsendpoints", "shop", "web-service");
        object.unwrap()["spec"]["endpoints"][0]["dnsName"].clone()
    };
    bench.api.put("services", service("web", &taken));
    pass(5).await;
    assert_eq!(said(&bench), "Conflict");
    put_cluster(&bench, "m1", "Unknown");
    pass(5).await;
    assert_eq!(leads(&bench), ["192.0.2.2"]);
    assert_eq!((name(), &*said(&bench)), (json!(HOST), "Conflict"));
    let message = || {
        let said = bench
            .api
            .condition("resourcebindings", "web-service", HOSTNAME_PUBLISHED);
        said["message"].as_str().unwrap_or_default().to_owned()
    };
    let stays = "the former name stays: shop.example.com leads to m2 (192.0.2.2).";
    assert!(message().ends_with(stays), "{}", message());
    put_cluster(&bench, "m2", "Unknown");
    pass(5).await;
    assert!(
        message().contains("its last known addresses"),
        "{}",
        message()
    );
    put_cluster(&bench, "m2", "True");
    give_up(&bench, "db");
    pass(5).await;
    assert_eq!(name(), "db.example.com");
    assert_eq!(said(&bench), "Published");
}

#[tokio::test(start_paused = true)]
async fn a_former_name_that_an_older_object_publishes_as_well_is_followed_no_more() {
    let theirs = |host: &str| {
        json!({
            "metadata": {"namespace": "shop", "name": "theirs", "uid": "theirs"},
            "spec": {"endpoints": [{"dnsName": host, "targets": ["198.51.100.1"]}]},
        })
    };
    for (host, expected) in [
        ("other.example.com", vec!["192.0.2.2"]),
        (HOST, vec!["192.0.2.1", "192.0.2.2"]),
    ] {
        let taken = json!({ HOSTNAME: "db.example.com" });
        let others = [
            ("dnsendpoints", theirs("other.example.com")),
            ("services", service("db", &taken)),
            ("resourcebindings", bound("v1", "Service", "db", &BOTH)),
        ];
        let bench = started(with(web(&BOTH).into_iter().chain(others))).await;
        bench.api.put("services", service("web", &taken));
        pass(5).await;
        bench.api.put("dnsendpoints", theirs(host));
        pass(5).await;
        put_cluster(&bench, "m1", "Unknown");
        pass(5).await;
        assert_eq!(leads(&bench), expected, "{host}");
        assert_eq!(said(&bench), "Conflict", "{host}");
        bench.api.put("dnsendpoints", theirs("other.example.com"));
        pass(5).await;
        assert_eq!(leads(&bench), ["192.0.2.2"], "it has the name alone again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_does_not_lead_to_itself() {
    let mut bound = service_in(&BOTH);
    let ingress = json!([{"hostname": HOST}]);
    bound["status"]["aggregatedStatus"][0]["status"]["loadBalancer"]["ingress"] = ingress;
    bound["status"]["aggregatedStatus"][1]["status"]["loadBalancer"]["ingress"] =
        json!([{"hostname": "lb2.example.net"}]);
    let objects = [
        ("services", service("web", &Value::Null)),
        ("resourcebindings", bound),
    ];
    let bench = started(with(objects)).await;
    assert_eq!(leads(&bench), ["lb2.example.net"]);
}
