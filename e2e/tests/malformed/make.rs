//! Malformed requests from a seed.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::wire::Request;

/// The namespace of objects that no malformed request may change.
pub const KEPT: &str = "kept";
/// The namespace in which requests may succeed.
pub const FREE: &str = "free";

/// A stream of numbers from a seed (SplitMix64).
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    /// Returns the stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or(0)
    }

    /// Returns one of several.
    pub fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.next() as u8).collect()
    }

    fn text(&mut self, most: usize) -> String {
        const LETTERS: &[&str] = &[
            "a", "Z", "0", "-", ".", "/", "_", "~", "%", "=", "!", ",", "(", ")", " ", "in", "é",
            "漢", "\u{0}", "\n", "\"", "\\", "$", "{", "*", "..", "😀",
        ];
        (0..self.below(most)).map(|_| *self.of(LETTERS)).collect()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 7 } else { 9 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.next() as i64),
            3 => json!(self.next() as f64 / 1e3),
            4 => json!(""),
            5 => json!(self.text(9)),
            6 => json!("2026-01-01T00:00:00Z"),
            7 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => (0..self.below(4))
                .map(|_| (self.text(4), self.value(depth - 1)))
                .collect(),
        }
    }
}

/// Objects of the kinds that are sent, by the path of their collection.
pub fn samples(namespace: &str) -> Vec<(String, Value)> {
    let core = format!("/api/v1/namespaces/{namespace}");
    let pod = json!({ "restartPolicy": "Always", "containers": [{ "name": "c", "image": "i:1",
        "resources": { "requests": { "cpu": "100m" } }, "ports": [{ "containerPort": 80 }], "env": [{ "name": "A", "value": "b" }] }] });
    vec![
        (
            format!("{core}/configmaps"),
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "labels": { "x": "1" } }, "data": { "k": "v" } }),
        ),
        (
            format!("{core}/secrets"),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a", "finalizers": ["x.y/z"] }, "data": { "k": "dg==" } }),
        ),
        (
            format!("{core}/pods"),
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" }, "spec": pod }),
        ),
        (
            format!("{core}/services"),
            json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" }, "spec": { "ports": [{ "port": 80 }] } }),
        ),
        (
            format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
            json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a" }, "spec": { "replicas": 2,
                "selector": { "matchLabels": { "a": "b" } }, "template": { "metadata": { "labels": { "a": "b" } }, "spec": pod } } }),
        ),
        (
            format!("/apis/fuzz.example.com/v1/namespaces/{namespace}/widgets"),
            json!({ "apiVersion": "fuzz.example.com/v1", "kind": "Widget", "metadata": { "name": "a" },
                "spec": { "size": 1, "tags": ["a"], "parts": [{ "id": "x", "n": 1 }] } }),
        ),
    ]
}

/// Returns the CRD of the samples.
pub fn definition() -> Value {
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.fuzz.example.com" },
        "spec": { "group": "fuzz.example.com", "scope": "Namespaced", "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "subresources": { "status": {} }, "schema": { "openAPIV3Schema": {
                "type": "object", "properties": { "spec": { "type": "object", "x-kubernetes-validations": [{ "rule": "self.size < 100" }], "properties": {
                    "size": { "type": "integer", "default": 0 }, "tags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
                    "parts": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                        "items": { "type": "object", "required": ["id"], "properties": { "id": { "type": "string" }, "n": { "type": "integer" } } } } } } } } } }] } })
}

const JSON: &str = "application/json";
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Returns a request that cannot succeed, on an object or a collection that is kept, and the codes
/// that are right answers to it.
#[allow(clippy::too_many_lines)] // one malformation a paragraph
pub fn refused(dice: &mut Dice) -> (Request, &'static [u16]) {
    let (collection, sample) = dice.of(&samples(KEPT)).clone();
    let whole = sample.to_string().into_bytes();
    let object = format!("{collection}/a");
    let request = |method, target: &str, media_type: Option<&str>, body: Vec<u8>| Request {
        method,
        target: target.to_owned(),
        media_type: media_type.map(str::to_owned),
        body,
    };
    let (method, target) = match dice.below(2) {
        0 => ("POST", collection.clone()),
        _ => ("PUT", object.clone()),
    };
    match dice.below(12) {
        0 => {
            let cut = 1 + dice.below(whole.len() - 1);
            (
                request(method, &target, Some(JSON), whole[..cut].to_vec()),
                &[400],
            )
        }
        1 => {
            // A body that begins like this is neither JSON nor, since tabs can't indent it, YAML.
            let mut bytes = b"\t\x01{".to_vec();
            bytes.extend(dice.bytes(2000));
            (request(method, &target, Some(JSON), bytes), &[400])
        }
        2 => {
            let mut bytes = b"k8s\0".to_vec();
            bytes.extend(dice.bytes(500));
            let media_type = "application/vnd.kubernetes.protobuf";
            (
                request(method, &target, Some(media_type), bytes),
                &[400, 415],
            )
        }
        3 => {
            let depth = 20_000 + dice.below(100_000);
            let open = *dice.of(&["[", "{\"a\":"]);
            (
                request(method, &target, Some(JSON), open.repeat(depth).into_bytes()),
                &[400],
            )
        }
        4 => {
            let size = 3 * 1024 * 1024 + 1 + dice.below(1 << 20);
            (
                request(method, &target, Some(JSON), vec![b' '; size]),
                &[413],
            )
        }
        5 => {
            let media_type = *dice.of(&["text/plain", "application/xml", "image/png", "nonsense"]);
            (request(method, &target, Some(media_type), whole), &[415])
        }
        6 => {
            let media_type = *dice.of(&["application/json", "text/plain", "application/patch"]);
            (request("PATCH", &object, Some(media_type), whole), &[415])
        }
        7 => {
            let media_type = *dice.of(&PATCHES[..3]);
            let cut = 1 + dice.below(whole.len() - 1);
            (
                request("PATCH", &object, Some(media_type), whole[..cut].to_vec()),
                // Custom resources have no strategic merge.
                &[400, 415],
            )
        }
        8 => {
            let name = *dice.of(&["A", "a b", "-a", "a/b", "ä", "..", "a_b", "%", "a\u{0}"]);
            let mut sample = sample;
            sample["metadata"]["name"] = name.into();
            let body = sample.to_string().into_bytes();
            (request("POST", &collection, Some(JSON), body), &[422])
        }
        9 => {
            let selector = *dice.of(&[
                "=",
                "a%20in",
                "a%20in%20(",
                "!",
                ",",
                "a=b=c",
                "a%3E%3E1",
                "-",
                "a%20b",
                "a=%F0%9F%98%80",
            ]);
            let target = format!("{collection}?labelSelector={selector}");
            (request("GET", &target, None, Vec::new()), &[400])
        }
        10 => {
            let version = *dice.of(&["x", "-1", "1.5", "99999999999999999999999", "%20", "0x1"]);
            let target = format!("{collection}?resourceVersion={version}");
            (request("GET", &target, None, Vec::new()), &[400, 422])
        }
        _ => {
            let body = json!([{ "op": *dice.of(&["remove", "replace", "test", "jump", ""]),
                "path": *dice.of(&["/nowhere/deep", "nowhere", "/metadata/labels/none/of/them"]), "value": dice.value(2) }]);
            let body = body.to_string().into_bytes();
            (
                request("PATCH", &object, Some(PATCHES[0]), body),
                &[400, 422],
            )
        }
    }
}

/// Returns a request in the namespace that is free, which may succeed, but may neither break the
/// server nor be its fault.
#[allow(clippy::too_many_lines)] // one oddity a paragraph
pub fn odd(dice: &mut Dice) -> Request {
    let (collection, mut sample) = dice.of(&samples(FREE)).clone();
    let name = format!("n{}", dice.below(20));
    sample["metadata"]["name"] = name.as_str().into();
    let object = format!("{collection}/{name}");
    let json = Some(JSON.to_owned());
    match dice.below(9) {
        0 | 1 => {
            for _ in 0..=dice.below(3) {
                disturb(dice, &mut sample);
            }
            let (method, target) = match dice.below(3) {
                0 => ("PUT", object),
                _ => ("POST", collection),
            };
            let validation = *dice.of(&["", "?fieldValidation=Strict", "?dryRun=All"]);
            Request {
                method,
                target: target + validation,
                media_type: json,
                body: sample.to_string().into_bytes(),
            }
        }
        2 => {
            let mut body = sample.to_string().into_bytes();
            for _ in 0..=dice.below(8) {
                let at = dice.below(body.len());
                body[at] = dice.next() as u8;
            }
            Request {
                method: "POST",
                target: collection,
                media_type: Some(dice.of(&[JSON, "application/yaml"]).to_string()),
                body,
            }
        }
        3 => {
            disturb(dice, &mut sample);
            let which = *dice.of(&["", "/status", "/scale", "/nosuch"]);
            Request {
                method: "PATCH",
                target: format!("{object}{which}?fieldManager=fuzz&force=true"),
                media_type: Some(PATCHES[3].to_owned()),
                body: sample.to_string().into_bytes(),
            }
        }
        4 => {
            let mut patch = json!({ "metadata": { "labels": dice.value(2) }, "spec": dice.value(3), "$patch": "delete" });
            if dice.below(2) == 0 {
                patch = json!({ "spec": { "template": { "spec": { "containers": [
                    { "$patch": *dice.of(&["delete", "replace", "merge", "jump"]), "name": dice.value(1) }, dice.value(2)] } },
                    "$setElementOrder/containers": dice.value(2), "$retainKeys": dice.value(1) } });
            }
            Request {
                method: "PATCH",
                target: object,
                media_type: Some(dice.of(&PATCHES[1..3]).to_string()),
                body: patch.to_string().into_bytes(),
            }
        }
        5 => {
            let operations: Value = (0..dice.below(5))
                .map(|_| {
                    json!({ "op": *dice.of(&["add", "remove", "replace", "move", "copy", "test"]),
                    "from": *dice.of(&["/metadata", "/spec", "/data/k", "/metadata/labels", ""]),
                    "path": *dice.of(&["/metadata/labels", "/spec", "/data/k", "/metadata/name", "/metadata/uid", "/apiVersion", "", "/-", "/spec/tags/-", "/spec/tags/9"]),
                    "value": dice.value(3) })
                })
                .collect();
            Request {
                method: "PATCH",
                target: object,
                media_type: Some(PATCHES[0].to_owned()),
                body: operations.to_string().into_bytes(),
            }
        }
        6 => {
            let key = *dice.of(&[
                "labelSelector",
                "fieldSelector",
                "limit",
                "continue",
                "timeoutSeconds",
                "resourceVersionMatch",
                "nosuch",
                "pretty",
            ]);
            let value = escaped(&dice.text(12));
            // A watch would go on for ever.
            let target = format!("{collection}?{key}={value}&watch=false");
            Request {
                method: "GET",
                target,
                media_type: None,
                body: Vec::new(),
            }
        }
        7 => {
            let method = *dice.of(&[
                "GET", "PUT", "POST", "PATCH", "OPTIONS", "HEAD", "TRACE", "FOO",
            ]);
            let mut target = (*dice.of(&[
                "/api/v1/",
                "/apis/",
                "/apis/apps/v1/",
                "/",
                "/openapi/v3/",
                "/api/v1/namespaces/free/",
            ]))
            .to_owned();
            for _ in 0..dice.below(5) {
                target += &escaped(&dice.text(6));
                target += *dice.of(&["/", "", "//", "/../", "/./"]);
            }
            Request {
                method,
                target,
                media_type: json,
                body: dice.bytes(40),
            }
        }
        _ => {
            let mut options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
                "preconditions": { "uid": null }, "propagationPolicy": "Background", "dryRun": [] });
            disturb(dice, &mut options);
            Request {
                method: "DELETE",
                target: object,
                media_type: json,
                body: options.to_string().into_bytes(),
            }
        }
    }
}

/// Returns a text with every byte as an escape.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "%{byte:02X}");
        out
    })
}

/// Puts any value in the place of one somewhere in a tree, or takes it out.
fn disturb(dice: &mut Dice, here: &mut Value) {
    match here {
        Value::Object(members) if !members.is_empty() && dice.below(5) > 0 => {
            let keys: Vec<String> = members.keys().cloned().collect();
            let key = dice.of(&keys).clone();
            match dice.below(10) {
                0 => {
                    members.remove(&key);
                }
                1 => {
                    let (name, value) = (dice.text(5), dice.value(3));
                    members.insert(name, value);
                }
                _ => disturb(dice, members.entry(key).or_insert(Value::Null)),
            }
        }
        Value::Array(items) if !items.is_empty() && dice.below(5) > 0 => {
            let index = dice.below(items.len());
            disturb(dice, &mut items[index]);
        }
        _ => *here = dice.value(3),
    }
}
