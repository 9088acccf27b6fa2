//! Finds the definitions of custom resources that stay in members in which objects of them are
//! preserved.
//!
//! Whoever deletes a definition in the fleet deletes every object of it as well. Garbage collection
//! takes the bindings of these objects and that of the definition at the same time, in no order.
//! Which kind a definition is of is known as long as its template is there. One whose template is
//! gone, or is not listed yet, counts as that of each kind of its group.

use std::collections::HashSet;

use muster_shared::api::binding::ObjectReference;
use muster_shared::names::api_group;

use super::namespaces::preserved_in;
use crate::fleet::Fleet;
use crate::fleet::binding_index::{Trait, is_definition};
use crate::fleet::template::TemplateKey;
use crate::fleet::template_event::Lookup;

/// Returns the names of the definitions that the fleet propagates and that may be of a resource.
pub(super) fn definitions_of(fleet: &Fleet, resource: &ObjectReference) -> Vec<String> {
    let definitions = fleet.bindings.having(Trait::IsDefinition, None);
    let of_resource = definitions.filter(|binding| {
        let definition = &binding.spec.resource;
        is_of_group(definition, resource)
            && kind_of(fleet, definition).is_none_or(|kind| kind == resource.kind)
    });
    of_resource
        .map(|it| it.spec.resource.name.clone())
        .collect()
}

/// Returns the clusters in which objects stay that may be of a definition; none for another
/// resource. Their bindings are still there; one that has gone has marked the definition's Work.
pub(super) fn preserved_of(fleet: &Fleet, definition: &ObjectReference) -> HashSet<String> {
    let mut clusters = HashSet::new();
    if !is_definition(definition) {
        return clusters;
    }
    let kind = kind_of(fleet, definition);
    for binding in fleet.bindings.having(Trait::IsPreserved, None) {
        let resource = &binding.spec.resource;
        if is_of_group(definition, resource) && kind.as_ref().is_none_or(|it| *it == resource.kind)
        {
            clusters.extend(preserved_in(&binding).map(str::to_owned));
        }
    }
    clusters
}

/// Returns whether a definition is of the API group of a resource.
fn is_of_group(definition: &ObjectReference, resource: &ObjectReference) -> bool {
    let name = definition.name.split_once('.');
    name.is_some_and(|(_, group)| group == api_group(&resource.api_version))
}

/// Returns the kind that a definition is of, if its template is there.
fn kind_of(fleet: &Fleet, definition: &ObjectReference) -> Option<String> {
    let key = TemplateKey::of(definition);
    let Lookup::Found(template) = fleet.templates.get(&key) else {
        return None;
    };
    let object = template.object(&key.kind);
    object["spec"]["names"]["kind"].as_str().map(str::to_owned)
}
