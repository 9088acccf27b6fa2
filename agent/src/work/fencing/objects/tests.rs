use std::sync::Arc;

use http::Method;
use muster_shared::names;
use parking_lot::Mutex;
use serde_json::Value;

use super::*;
use crate::testing::{self, group};

/// A member with objects of a few kinds, which answers no list that it is not asked for in pages.
#[derive(Default)]
struct Server {
    /// Objects by the plural of their kind.
    objects: HashMap<&'static str, Vec<Value>>,
    /// Objects in a page at most.
    most: usize,
    /// Numbers of the lists that are answered by 410.
    expires: Vec<usize>,
    /// Names of objects of which writes fail.
    refuses: Vec<&'static str>,
    lists: Mutex<Vec<String>>,
    writes: Mutex<Vec<String>>,
}

impl Server {
    fn answer(&self, method: &Method, path: &str, query: &str) -> (u16, Value) {
        let refusal = |code: u16| {
            let status = json!({ "kind": "Status", "status": "Failure", "code": code });
            (code, status)
        };
        let (plural, name) = match path.rsplit('/').collect::<Vec<_>>()[..] {
            [last, ..] if self.objects.contains_key(last) => (last, None),
            [name, plural, ..] => (plural, Some(name)),
            _ => return refusal(404),
        };
        if let Some(name) = name {
            self.writes.lock().push(format!("{method} {plural}/{name}"));
            return if self.refuses.contains(&name) {
                refusal(403)
            } else {
                (200, json!({ "metadata": { "name": name } }))
            };
        }
        let mut lists = self.lists.lock();
        lists.push(format!("{plural}?{query}"));
        let field = |name: &str| {
            let mut fields = query.split('&').filter_map(|it| it.split_once('='));
            fields.find_map(|(key, value)| (key == name).then_some(value))
        };
        let number = |name| field(name).and_then(|it| it.parse::<usize>().ok());
        if field("resourceVersion") != Some("0") {
            let Some(limit) = number("limit").filter(|limit| *limit <= self.most) else {
                return refusal(504);
            };
            if self.expires.contains(&lists.len()) {
                return refusal(410);
            }
            let (from, all) = (number("continue").unwrap_or(0), &self.objects[plural]);
            let end = (from + limit).min(all.len());
            let next = (end < all.len()).then(|| end.to_string());
            let metadata = json!({ "continue": next.unwrap_or_default() });
            return (
                200,
                json!({ "metadata": metadata, "items": all[from..end] }),
            );
        }
        let list = json!({ "metadata": {}, "items": self.objects[plural] });
        (200, list)
    }

    fn start(self) -> (Objects, Arc<Self>) {
        let server = Arc::new(self);
        let answering = Arc::clone(&server);
        let workloads = [
            ("deployments", "Deployment"),
            ("statefulsets", "StatefulSet"),
        ];
        let groups = [
            group("", &[("pods", "Pod")]),
            group("apps", &workloads),
            group("batch", &[("jobs", "Job"), ("cronjobs", "CronJob")]),
        ];
        let client = testing::member(groups.into(), move |head, _| {
            let query = head.uri.query().unwrap_or_default();
            answering.answer(&head.method, head.uri.path(), query)
        });
        (Objects::new(client.clone(), Discovery::new(client)), server)
    }

    fn wrote(&self) -> Vec<String> {
        let mut wrote = self.writes.lock().clone();
        wrote.sort();
        wrote
    }
}

/// Starts a member with such objects of a kind, of which a page has fifty at most.
fn server(plural: &'static str, objects: Vec<Value>) -> (Objects, Arc<Server>) {
    let server = Server {
        objects: HashMap::from([(plural, objects)]),
        most: 50,
        ..Server::default()
    };
    server.start()
}

fn kind(name: &str) -> GroupVersionKind {
    GroupVersionKind::gvk("apps", "v1", name)
}

/// Returns a fenced object that is stopped by its replicas.
fn fenced(name: &str, replicas: u32) -> Value {
    let mut object = json!({
        "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-{name}") },
        "spec": { "replicas": replicas },
    });
    testing::fence(&mut object, Some(json!({ "spec": { "replicas": 0 } })));
    object
}

fn many(number: usize, replicas: u32) -> Vec<Value> {
    (0..number)
        .map(|n| fenced(&format!("web-{n:02}"), replicas))
        .collect()
}

async fn stop(objects: &Objects, name: &str) -> Round {
    let fleet = FleetId::Unknown(String::new());
    stop_for(objects, name, &fleet).await
}

async fn stop_for(objects: &Objects, name: &str, fleet: &FleetId) -> Round {
    let events = Events::nowhere();
    objects.stop(&kind(name), &|_| true, fleet, &events).await
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_fleet_or_of_none_is_not_stopped() {
    for (mark, known, stopped) in [
        (None, true, 1),
        (Some("ours"), true, 1),
        (Some("theirs"), true, 0),
        // It runs here or there, and twice is worse than not at all.
        (Some("theirs"), false, 1),
    ] {
        let mut object = fenced("web", 1);
        object["metadata"]["annotations"][annotation::FLEET] = json!(mark);
        let (objects, server) = server("deployments", vec![object]);
        let ours = FleetId::Known {
            id: "ours".to_owned(),
            published: true,
            accepted: ["ours".to_owned()].into(),
        };
        let fleet = if known {
            ours
        } else {
            FleetId::Unknown(String::new())
        };
        stop_for(&objects, "Deployment", &fleet).await;
        assert_eq!(server.wrote().len(), stopped, "{mark:?} {known}");
        let lists = server.lists.lock();
        let selects = |it: &String| it.contains("karmada.io%2Fmanaged%3Dtrue");
        assert!(lists.iter().all(selects), "{lists:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_has_the_orders_of_its_owner_is_not_stopped() {
    let own = names::work("Deployment", "web", "shop");
    for (work, is_controlled, stopped) in [
        (Some(&*own), true, 1),
        (Some("thing-5d"), false, 1),
        (Some("thing-5d"), true, 0),
        (None, true, 0),
    ] {
        let mut object = fenced("web", 1);
        object["metadata"]["annotations"][annotation::WORK_NAME] = json!(work);
        let owner = json!({ "kind": "Thing", "uid": "t", "controller": is_controlled });
        object["metadata"]["ownerReferences"] = json!([owner]);
        let (objects, server) = server("deployments", vec![object]);
        let round = stop(&objects, "Deployment").await;
        assert_eq!(round.stopped, stopped, "{work:?} {is_controlled}");
        assert_eq!(server.wrote().len(), stopped, "{work:?} {is_controlled}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_in_a_queue_is_deleted_unless_it_has_ended() {
    let suspend = json!({ "spec": { "suspend": true } });
    let (queued, plain) = (json!({ label::KUEUE_QUEUE: "team" }), json!({}));
    let (job, cron_job) = (("jobs", "Job"), ("cronjobs", "CronJob"));
    let (patched, deleted, left) = (Some("PATCH"), Some("DELETE"), None);
    let all = [
        // The fleet does not know of the queue: a default of the member has given it.
        (job, &queued, Some(&suspend), "Other", deleted),
        (job, &queued, None, "Other", deleted),
        (job, &plain, Some(&suspend), "Other", patched),
        (job, &queued, None, "Complete", left),
        (job, &queued, Some(&suspend), "Failed", left),
        // Its Jobs may be in a queue, but not it.
        (cron_job, &queued, Some(&suspend), "Other", patched),
    ];
    for ((plural, kind), labels, stop, condition, expected) in all {
        let mut object = json!({
            "metadata": { "name": "sum", "namespace": "shop", "uid": "u", "labels": labels },
            "spec": { "suspend": false },
            "status": { "conditions": [{ "type": condition, "status": "True" }] },
        });
        testing::fence(&mut object, stop.cloned());
        let (objects, server) = Server {
            objects: HashMap::from([("jobs", Vec::new()), (plural, vec![object])]),
            most: 50,
            ..Server::default()
        }
        .start();
        let (fleet, events) = (FleetId::Unknown(String::new()), Events::nowhere());
        let of_kind = GroupVersionKind::gvk("batch", "v1", kind);
        objects.stop(&of_kind, &|_| true, &fleet, &events).await;
        let expected = expected.map(|it| format!("{it} {plural}/sum"));
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(server.wrote(), expected, "{kind} {condition} {labels}");
    }
}

#[tokio::test(start_paused = true)]
async fn objects_are_read_in_pages_and_all_of_them_stopped() {
    let (objects, server) = server("deployments", many(70, 1));
    let round = stop(&objects, "Deployment").await;
    let found = (round.stopped, round.changed, round.failed, round.trouble);
    assert_eq!(found, (70, 70, 0, None));
    assert_eq!(server.wrote().len(), 70);
    let lists = server.lists.lock();
    assert!(lists.iter().all(|it| it.contains("labelSelector")));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_or_stopped_keeps_no_other_one_running() {
    let mut all = many(3, 1);
    // Times that not every clock has, orders that are none, and fields that nothing remembers.
    all[0]["metadata"]["creationTimestamp"] = json!("9999-12-31T23:59:59Z");
    all[0]["metadata"]["managedFields"] = json!([{ "time": "9999-12-31T23:59:59Z" }]);
    let mut orderless = fenced("orderless", 1);
    orderless["metadata"]["annotations"][annotation::FENCING] = json!("5");
    let mut huge = fenced("huge", 1);
    huge["spec"]["replicas"] = json!("x".repeat(1_300_000));
    all.splice(1..1, [orderless, huge, fenced("refused", 1)]);
    let (objects, server) = Server {
        objects: HashMap::from([("deployments", all)]),
        most: 50,
        refuses: vec!["refused"],
        ..Server::default()
    }
    .start();
    let round = stop(&objects, "Deployment").await;
    assert_eq!((round.stopped, round.failed), (3, 1));
    let wrote =
        ["refused", "web-00", "web-01", "web-02"].map(|it| format!("PATCH deployments/{it}"));
    assert_eq!(server.wrote(), wrote);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_forgotten_between_two_pages_is_read_anew() {
    let (objects, server) = Server {
        objects: HashMap::from([("deployments", many(50, 1))]),
        most: 50,
        expires: vec![2],
        ..Server::default()
    }
    .start();
    let round = stop(&objects, "Deployment").await;
    let found = (round.stopped, round.changed, round.trouble);
    assert_eq!(found, (50, 50, None));
    assert_eq!(server.wrote().len(), 50, "each once");
}

#[tokio::test(start_paused = true)]
async fn what_was_read_before_a_page_failed_is_stopped_and_the_next_rounds_ask_for_less() {
    for (most, rounds) in [(50, 1), (20, 2), (3, 4)] {
        let (objects, server) = Server {
            objects: HashMap::from([("deployments", many(30, 1))]),
            most,
            ..Server::default()
        }
        .start();
        for _ in 1..rounds {
            assert!(stop(&objects, "Deployment").await.trouble.is_some());
        }
        _ = stop(&objects, "Deployment").await;
        assert!(!server.wrote().is_empty(), "{most}");
    }
}

#[tokio::test(start_paused = true)]
async fn whether_there_are_fenced_objects_is_asked_of_the_cache() {
    for (number, expected) in [(0, false), (2, true)] {
        let (objects, _) = Server {
            objects: HashMap::from([("deployments", many(number, 1))]),
            ..Server::default()
        }
        .start();
        assert_eq!(objects.has_fenced(&kind("Deployment")).await, Ok(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_stopped_object_are_read_in_pages_and_one_that_stays_keeps_no_other_one() {
    let pod = |name: String, owner: &str| {
        json!({ "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-{name}"),
            "creationTimestamp": "9999-12-31T23:59:59Z",
            "ownerReferences": [{ "uid": owner, "controller": true }] } })
    };
    let mut pods: Vec<_> = (0..30)
        .map(|n| pod(format!("web-{n:02}"), "uid-web-00"))
        .collect();
    pods.push(pod("other".into(), "uid-other"));
    let (objects, server) = Server {
        objects: HashMap::from([("statefulsets", many(1, 1)), ("pods", pods)]),
        most: 50,
        refuses: vec!["web-03"],
        ..Server::default()
    }
    .start();
    let round = stop(&objects, "StatefulSet").await;
    assert_eq!((round.stopped, round.failed), (0, 1));
    let wrote = server.wrote();
    let deleted = wrote.iter().filter(|it| it.starts_with("DELETE")).count();
    assert_eq!(deleted, 30, "all that are tried");
    assert!(!wrote.contains(&"DELETE pods/other".to_owned()));
}
