//! The `DNSEndpoint` of external-dns that says where a host name leads: what is written, and what
//! an object that exists says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use muster_shared::api::binding::ObjectReference;
use muster_shared::k8s::{ApiResource, DynamicObject, GroupVersionKind, ResourceExt as _};
use muster_shared::names::annotation::PUBLISHED_TARGETS;
use serde_json::{Value, json};

use super::decide::Targets;
use super::request::Request;
use crate::fleet::binding::controller_of;
use crate::fleet::template::TemplateKey;

/// Returns the kind of the objects.
pub fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("externaldns.k8s.io", "v1alpha1", "DNSEndpoint");
    ApiResource::from_gvk_with_plural(&kind, "dnsendpoints")
}

/// Returns the records of a host name, in a stable order.
fn records(request: &Request, targets: &Targets) -> Value {
    let mut records: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for address in targets.values().flatten() {
        let kind = match address.parse() {
            Ok(IpAddr::V4(_)) => "A",
            Ok(IpAddr::V6(_)) => "AAAA",
            Err(_) => "CNAME",
        };
        records.entry(kind).or_default().insert(address);
    }
    let record = |(kind, targets)| {
        json!({
            "dnsName": request.hostname, "recordTTL": request.ttl,
            "recordType": kind, "targets": targets,
        })
    };
    records.into_iter().map(record).collect()
}

/// Returns the object for a template.
pub fn new(name: &str, template: &ObjectReference, request: &Request, targets: &Targets) -> Value {
    let kind = resource();
    json!({
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name,
            "namespace": template.namespace,
            "annotations": { PUBLISHED_TARGETS: json!(targets).to_string() },
            "ownerReferences": owners(template),
        },
        "spec": { "endpoints": records(request, targets) },
    })
}

/// Returns the merge patch that makes an object as it is wanted; `None` if it is.
pub fn patch(
    held: &DynamicObject,
    template: &ObjectReference,
    request: &Request,
    targets: &Targets,
) -> Option<Value> {
    let endpoints = records(request, targets);
    let owner = controller_of(&held.metadata).map(|it| it.uid.as_str());
    let is_as_wanted = held.data["spec"]["endpoints"] == endpoints
        && published(held) == *targets
        && owner == template.uid.as_deref();
    (!is_as_wanted).then(|| {
        json!({
            "metadata": {
                "resourceVersion": held.metadata.resource_version,
                "uid": held.metadata.uid,
                "annotations": { PUBLISHED_TARGETS: json!(targets).to_string() },
                "ownerReferences": owners(template),
            },
            "spec": { "endpoints": endpoints },
        })
    })
}

/// Returns the owner reference by which the garbage collector removes the object with its
/// template.
fn owners(template: &ObjectReference) -> Value {
    json!([{
        "apiVersion": template.api_version, "kind": template.kind, "name": template.name,
        "uid": template.uid, "controller": true,
    }])
}

/// Returns whether an object was written for a template of this kind and name. One of the same name
/// that was deleted and made again has another uid, and takes the object over.
pub fn is_of(held: &DynamicObject, template: &ObjectReference) -> bool {
    self::template(held).is_some_and(|it| it == TemplateKey::of(template))
}

/// Returns the template that an object was written for; `None` if somebody else wrote it.
pub fn template(held: &DynamicObject) -> Option<TemplateKey> {
    let owner = controller_of(&held.metadata)?;
    let is_ours = held.annotations().contains_key(PUBLISHED_TARGETS);
    let template = ObjectReference {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        namespace: held.namespace(),
        name: owner.name.clone(),
        ..ObjectReference::default()
    };
    is_ours.then(|| TemplateKey::of(&template))
}

/// Returns the addresses by cluster that were written into an object. What cannot be read is none.
pub fn published(held: &DynamicObject) -> Targets {
    let text = held.annotations().get(PUBLISHED_TARGETS);
    let targets = text.and_then(|text| serde_json::from_str(text).ok());
    targets.unwrap_or_default()
}

/// Returns the host names that an object has records for, as DNS compares them.
pub fn hostnames(held: &DynamicObject) -> BTreeSet<String> {
    let endpoints = held.data["spec"]["endpoints"].as_array();
    let names = endpoints
        .into_iter()
        .flatten()
        .filter_map(|it| it["dnsName"].as_str());
    names
        .map(|it| it.trim_end_matches('.').to_ascii_lowercase())
        .collect()
}

/// Returns the host name that an object leads to the copies of a template while that asks for
/// another one; `None` if the object was not written for it, or has not one such name.
pub fn former(held: &DynamicObject, template: &ObjectReference, asked: &str) -> Option<String> {
    let mut names = hostnames(held);
    let former = names.pop_first().filter(|it| it != asked)?;
    (names.is_empty() && is_of(held, template)).then_some(former)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(uid: &str) -> ObjectReference {
        ObjectReference {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "web".to_owned(),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        }
    }

    fn request() -> Request {
        Request {
            hostname: "shop.example.com".to_owned(),
            ttl: 30,
            follows: None,
        }
    }

    fn targets(addresses: &[&str]) -> Targets {
        let addresses = addresses.iter().map(|it| (*it).to_owned()).collect();
        Targets::from([("m1".to_owned(), addresses)])
    }

    fn held(addresses: &[&str]) -> DynamicObject {
        let object = new(
            "web-service",
            &template("u"),
            &request(),
            &targets(addresses),
        );
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn records_have_the_type_of_their_addresses_and_a_stable_order() {
        for (addresses, expected) in [
            (
                vec!["192.0.2.2", "192.0.2.1"],
                json!([["A", ["192.0.2.1", "192.0.2.2"]]]),
            ),
            (
                vec!["2001:db8::1", "192.0.2.1"],
                json!([["A", ["192.0.2.1"]], ["AAAA", ["2001:db8::1"]]]),
            ),
            (vec!["lb.example"], json!([["CNAME", ["lb.example"]]])),
        ] {
            let records = records(&request(), &targets(&addresses));
            let records = records.as_array().unwrap().iter();
            let got: Vec<Value> = records
                .map(|it| json!([it["recordType"], it["targets"]]))
                .collect();
            assert_eq!(json!(got), expected);
        }
        let first = &records(&request(), &targets(&["lb.example"]))[0];
        assert_eq!(first["dnsName"], "shop.example.com");
        assert_eq!(first["recordTTL"], 30);
    }

    #[test]
    fn an_object_is_written_when_anything_of_it_differs() {
        let there = targets(&["192.0.2.1"]);
        let object = held(&["192.0.2.1"]);
        assert_eq!(published(&object), there);
        assert_eq!(patch(&object, &template("u"), &request(), &there), None);
        let other = Request {
            ttl: 60,
            ..request()
        };
        assert!(patch(&object, &template("u"), &other, &there).is_some());
        assert!(
            patch(
                &object,
                &template("u"),
                &request(),
                &targets(&["192.0.2.2"])
            )
            .is_some()
        );
        let anew = patch(&object, &template("u2"), &request(), &there).unwrap();
        assert_eq!(anew["metadata"]["ownerReferences"][0]["uid"], "u2");
    }

    #[test]
    fn an_object_of_somebody_else_is_told_from_one_that_was_written_for_the_template() {
        let mut object = held(&["192.0.2.1"]);
        assert!(is_of(&object, &template("u2")), "made anew");
        let other = ObjectReference {
            name: "db".to_owned(),
            ..template("u")
        };
        assert!(!is_of(&object, &other));
        object.metadata.annotations = None;
        assert!(
            !is_of(&object, &template("u")),
            "it was not written by the controller"
        );
        assert!(published(&object).is_empty());
    }

    #[test]
    fn a_former_host_name_is_the_only_one_of_an_object_that_was_written_for_the_template() {
        let own = held(&["192.0.2.1"]);
        let mut two = own.clone();
        let more = json!({"dnsName": "a.example.com"});
        let records = two.data["spec"]["endpoints"].as_array_mut().unwrap();
        records.push(more);
        let mut of_somebody_else = own.clone();
        of_somebody_else.metadata.annotations = None;
        let before = Some("shop.example.com");
        for (what, object, asked, expected) in [
            ("another one is asked for", &own, "b.example.com", before),
            ("it is asked for", &own, "shop.example.com", None),
            ("there are two", &two, "b.example.com", None),
            ("another's", &of_somebody_else, "b.example.com", None),
        ] {
            let found = former(object, &template("u"), asked);
            assert_eq!(found.as_deref(), expected, "{what}");
        }
    }

    #[test]
    fn host_names_are_compared_as_dns_does() {
        let mut object = held(&["192.0.2.1"]);
        object.data["spec"]["endpoints"][0]["dnsName"] = json!("Shop.Example.com.");
        assert!(hostnames(&object).contains("shop.example.com"));
        object.data = json!({"spec": {"endpoints": "none"}});
        assert!(hostnames(&object).is_empty());
    }
}
