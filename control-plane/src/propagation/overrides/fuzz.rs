//! Overrides of tenants: images, documents inside fields, JSON pointers.

use muster_fuzz::Fuzz;
use muster_shared::api::override_policy::{ImageOverrider, PlaintextOverrider};
use serde_json::{Value, json};

use super::limits::{LARGEST_MANIFEST, Room};
use super::{image, patch, pointer, pointer_fault, yaml};

fn change(image: &str, component: &str, operator: &str, value: &str) -> Result<String, String> {
    let overrider = json!({ "component": component, "operator": operator, "value": value });
    let overrider: ImageOverrider = serde_json::from_value(overrider).unwrap();
    image::change(image, &overrider)
}

#[test]
fn what_becomes_of_an_image_is_an_image() {
    Fuzz::new("image")
        .words(&[
            "nginx",
            "quay.io",
            "localhost",
            ":5000",
            "/",
            ":",
            "@",
            "v1",
            "UPPER",
            "-",
            "_",
            ".",
            "..",
            "[::1]",
            "sha256:",
            "50d858e0985ecc7f60418aaf0cc5ab58",
            "a/b",
            "\n",
            "é",
            " ",
        ])
        .executions(4_000)
        .longest(300)
        .run_text(|text| {
            let (image, value) = text.split_once('\n').unwrap_or((text, "eu.io"));
            let mut outcome = String::new();
            for component in ["Registry", "Repository", "Tag"] {
                for operator in ["add", "replace", "remove"] {
                    match change(image, component, operator, value) {
                        Ok(changed) => {
                            let again = change(&changed, "Registry", "add", "");
                            assert_eq!(again.as_ref(), Ok(&changed), "{component} {operator}");
                            outcome.push('+');
                        }
                        Err(error) => {
                            assert!(error.len() < 300, "{error}");
                            outcome.push('-');
                        }
                    }
                }
            }
            outcome
        });
}

const YAML: &[&str] = &[
    "a: ",
    "b:\n",
    "- ",
    "  ",
    "\n",
    "{",
    "}",
    "[",
    "]",
    ", ",
    ": ",
    "'",
    "\"",
    "|\n",
    ">-\n",
    "&x ",
    "*x",
    "<<: *x",
    "!!str ",
    "!!int ",
    "# S3CR3T\n",
    "yes",
    "no",
    "0644",
    "0x1f",
    "1e3",
    "1.5",
    ".inf",
    "~",
    "null",
    "true",
    "S3CR3T",
    "---\n",
    "...\n",
    "? ",
    "\t",
    "\u{85}",
    "\\n",
    "2001-01-01",
    "1:30",
];

#[test]
fn a_document_stays_what_it_is_when_it_is_written_again() {
    Fuzz::new("yaml-document")
        .words(YAML)
        .executions(4_000)
        .run_text(|text| match yaml::read(text) {
            Ok(document) => {
                let written = yaml::write(&document, LARGEST_MANIFEST).unwrap();
                let again = yaml::read(&written);
                assert_eq!(again.as_ref(), Ok(&document), "{written}");
                written
            }
            Err(error) => {
                assert!(!error.contains("S3CR3T"), "{error}");
                error
            }
        });
}

#[test]
fn a_pointer_leads_where_another_reader_of_pointers_goes() {
    let document = json!({
        "a": { "b": [1, { "c": null }], "": "x", "~": 1, "/": 2, "0": 3 }, "": { "": [] }, "-": [0],
    });
    Fuzz::new("pointer")
        .words(&[
            "/", "a", "b", "c", "0", "1", "-", "~0", "~1", "~", "00", "+1", "é",
        ])
        .executions(5_000)
        .longest(300)
        .run_text(|text| {
            let fault = pointer_fault(text);
            let rule = json!({ "path": text, "operator": "replace", "value": "new" });
            let rule: PlaintextOverrider = serde_json::from_value(rule).unwrap();
            let mut changed = document.clone();
            let mut room = Room::beside(&document).unwrap();
            let replaced = patch::plaintext(&mut changed, &[rule], &mut room);
            if fault.is_some() {
                assert!(replaced.is_err());
                return "no pointer".to_owned();
            }
            let path = pointer::resolve(&pointer::parse(text).unwrap(), &document, false);
            assert_eq!(
                replaced.is_ok(),
                document.pointer(path.as_str()).is_some(),
                "{text:?}"
            );
            if replaced.is_ok() {
                let found = changed.pointer(path.as_str());
                assert_eq!(found, Some(&Value::from("new")), "{text:?}");
            } else {
                assert_eq!(changed, document, "{text:?}");
            }
            format!("{} {}", replaced.is_ok(), text.matches('/').count().min(4))
        });
}
