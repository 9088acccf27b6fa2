//! Replays recorded Works that Karmada creates from a binding (`work_rendering`).

use std::path::Path;

use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::names::finalizer;
use muster_vectors::{replay, same};
use serde_json::{Value, json};

use super::render::{Origin, render_plain};
use crate::fleet::binding::BindingKey;

#[test]
fn the_works_of_a_binding_are_those_that_karmada_makes() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    replay("work_rendering", &own, &[], |case| {
        let works = works(&case.input).map_err(|error| error.to_string())?;
        same(&case.output, &json!({ "works": works }))
    })
    .unwrap();
}

fn works(input: &Value) -> Result<Vec<Value>, muster_interpreter::Error> {
    let namespaced = input["scope"] == "Namespaced";
    let mut origin = Origin {
        key: BindingKey {
            namespace: namespaced.then(|| input["bindingNamespace"].as_str().unwrap().to_owned()),
            name: input["bindingName"].as_str().unwrap().to_owned(),
        },
        id: String::new(),
    };
    origin.id = input["bindingLabels"][origin.label()]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let spec: ResourceBindingSpec = serde_json::from_value(input["spec"].clone()).unwrap();
    let inject = input["statefulFailoverInjection"] == true;
    let mut rendered = render_plain(&origin, &spec, &input["template"], inject)?;
    rendered.sort_by(|a, b| a.namespace.cmp(&b.namespace));
    let work = |work: &super::render::Rendered| {
        let spec = work.spec(None);
        json!({
            "namespace": work.namespace,
            "name": work.name,
            "labels": work.labels,
            "annotations": work.annotations,
            "finalizers": [finalizer::WORK],
            "manifests": spec["workload"]["manifests"],
            "suspendDispatching": spec["suspendDispatching"],
            "preserveResourcesOnDeletion": spec["preserveResourcesOnDeletion"],
        })
    };
    Ok(rendered.iter().map(work).collect())
}
