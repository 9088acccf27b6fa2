//! The role that an object has in a cluster, as its Work records it. Pure.
//!
//! The record is an annotation of the Work, so that a decision needs no memory: which clusters were
//! ordered to be primary, and which have not said yet that they are demoted.

use muster_shared::api::data_replication::DataRole;
use muster_shared::api::work::WorkStatus;
use muster_shared::fencing::Orders;
use muster_shared::names::annotation;
use muster_shared::work_status::{DATA_ROLE, SeenRole};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::check::holds;
use crate::fleet::labelled::Labelled as _;
use crate::fleet::works::CachedWork;

/// Part of a role change that a cluster has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// The object is ordered to be primary.
    Primary,
    /// The object may have been primary, is ordered to be secondary, and does not report that yet.
    Demoting,
    /// The object is secondary.
    Secondary,
}

/// Role of an object in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Part of the change.
    pub step: Step,
    /// Number that is raised whenever the object gets another value: what its agent reports of a
    /// former number is about a former value.
    number: u32,
    /// Field of the object.
    path: String,
    /// Value of the field.
    value: String,
}

/// Role that the status of an object reports, of the order that it was given last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reported {
    /// Nothing yet.
    #[default]
    Nothing,
    /// The object is demoted.
    Demoted,
    /// The object is promoted.
    Promoted,
}

impl Mark {
    /// Reads the mark of a Work; `None` if its object has no role.
    pub fn on(work: &CachedWork) -> Option<Self> {
        let text = work.metadata.annotation(annotation::DATA_ROLE)?;
        serde_json::from_str(text).ok()
    }

    /// Returns the mark of a step that follows another one.
    pub fn after(before: Option<&Self>, step: Step, role: &DataRole) -> Self {
        let value = match step {
            Step::Primary => &role.primary,
            Step::Demoting | Step::Secondary => &role.secondary,
        };
        let is_same = |it: &&Self| it.value == *value && it.path == role.path;
        let number = before.map_or(0, |it| it.number);
        Self {
            step,
            number: match before.filter(is_same) {
                Some(_) => number,
                None => number.wrapping_add(1),
            },
            path: role.path.clone(),
            value: value.clone(),
        }
    }

    /// Writes the role into the manifest for a cluster; returns the annotation of its Work.
    pub fn write(&self, manifest: &mut Value) -> (String, String) {
        set(manifest, &self.path, &self.value);
        let number = json!(self.number.to_string());
        object_in(manifest, "metadata");
        object_in(&mut manifest["metadata"], "annotations")[annotation::DATA_ROLE] = number;
        let key = annotation::DATA_ROLE.to_owned();
        (key, json!(self).to_string())
    }

    /// Returns whether the agent reports the object with this role. One that does not report roles,
    /// or whose report is too long, will never say that the object is promoted or demoted.
    pub fn is_reported(&self, report: &WorkStatus) -> bool {
        self.seen(report).is_some()
    }

    /// Returns the status that the object had with this role, and its generation then.
    fn seen<'a>(&self, report: &'a WorkStatus) -> Option<(&'a Value, i64)> {
        let status = &report.manifest_statuses.first()?.status.as_ref()?.0;
        let seen = SeenRole::deserialize(&status[DATA_ROLE]).ok()?;
        (seen.step == self.number).then_some((status, seen.generation))
    }

    /// Returns what the report on a Work says of this role.
    pub fn reported(&self, role: &DataRole, report: &WorkStatus) -> Reported {
        let Some((status, generation)) = self.seen(report) else {
            return Reported::Nothing;
        };
        let says = |check| holds(check, status, Some(generation));
        match self.step {
            Step::Primary if says(&role.promoted) => Reported::Promoted,
            Step::Demoting | Step::Secondary if says(&role.demoted) => Reported::Demoted,
            Step::Primary | Step::Demoting | Step::Secondary => Reported::Nothing,
        }
    }
}

/// Returns the generation of the object in the member at the time of the report, if the agent says.
pub fn generation(status: &Value) -> Option<i64> {
    status[DATA_ROLE]["generation"].as_i64()
}

/// Returns the orders by which the agent of a cluster that is cut off demotes an object.
pub fn orders(role: &DataRole, after_seconds: u32) -> Orders {
    let mut stop = json!({});
    set(&mut stop, &role.path, &role.secondary);
    let grace = role.demotion_seconds();
    Orders {
        after_seconds,
        grace_seconds: u32::try_from(grace).unwrap_or_default(),
        stop: Some(stop),
    }
}

/// Sets a field that is named by its path.
fn set(object: &mut Value, path: &str, value: &str) {
    let Some((first, rest)) = path.split_once('.') else {
        object[path] = json!(value);
        return;
    };
    set(object_in(object, first), rest, value);
}

/// Returns a field that has to be an object.
fn object_in<'a>(value: &'a mut Value, field: &str) -> &'a mut Value {
    if !value[field].is_object() {
        value[field] = Value::Object(Map::new());
    }
    &mut value[field]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role() -> DataRole {
        let object = json!({"apiVersion": "r.example.com/v1", "kind": "Replication", "name": "db"});
        serde_json::from_value(json!({
            "object": object, "follows": object, "path": "spec.a.state",
            "primary": "primary", "secondary": "secondary",
            "promoted": {"path": "status.state", "value": "Primary"},
            "demoted": {"path": "status.state", "value": "Secondary"},
        }))
        .unwrap()
    }

    fn report(status: &Value) -> WorkStatus {
        let status = json!({"manifestStatuses": [{"identifier": {}, "status": status}]});
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn a_number_is_raised_with_each_value_and_not_with_each_step() {
        let role = role();
        let (mut mark, mut numbers) = (None, Vec::new());
        for step in [
            Step::Secondary,
            Step::Primary,
            Step::Primary,
            Step::Demoting,
            Step::Secondary,
        ] {
            let next = Mark::after(mark.as_ref(), step, &role);
            numbers.push(next.number);
            mark = Some(next);
        }
        assert_eq!(numbers, [1, 2, 2, 3, 3]);
    }

    #[test]
    fn the_field_is_written_wherever_it_is_and_read_back_from_the_work() {
        let mark = Mark::after(None, Step::Primary, &role());
        for mut manifest in [json!({}), json!({"spec": {"a": 5, "b": 1}, "metadata": {}})] {
            let (key, text) = mark.write(&mut manifest);
            assert_eq!(manifest["spec"]["a"]["state"], "primary");
            assert_eq!(manifest["metadata"]["annotations"][&key], "1");
            let work = json!({"metadata": {"annotations": {key: text}}});
            let work: CachedWork = serde_json::from_value(work).unwrap();
            assert_eq!(Mark::on(&work), Some(mark.clone()));
        }
        let stop = orders(&role(), 60).stop;
        assert_eq!(stop, Some(json!({"spec": {"a": {"state": "secondary"}}})));
    }

    #[test]
    fn only_a_status_of_the_present_role_says_anything() {
        let role = role();
        let first = Mark::after(None, Step::Secondary, &role);
        let second = Mark::after(Some(&first), Step::Primary, &role);
        let third = Mark::after(Some(&second), Step::Demoting, &role);
        let seen = |step: u32, state: &str, observed: i64| {
            json!({
                "state": state, "observedGeneration": observed,
                "dataRole": {"step": step, "generation": 4},
            })
        };
        for (what, mark, status, expected) in [
            (
                "demoted",
                &third,
                seen(3, "Secondary", 4),
                Reported::Demoted,
            ),
            (
                "of before",
                &third,
                seen(1, "Secondary", 4),
                Reported::Nothing,
            ),
            (
                "not read",
                &third,
                seen(3, "Secondary", 3),
                Reported::Nothing,
            ),
            ("not done", &third, seen(3, "Primary", 4), Reported::Nothing),
            (
                "promoted",
                &second,
                seen(2, "Primary", 4),
                Reported::Promoted,
            ),
            (
                "not yet",
                &second,
                seen(2, "Secondary", 4),
                Reported::Nothing,
            ),
            (
                "another agent",
                &third,
                json!({"state": "Secondary"}),
                Reported::Nothing,
            ),
        ] {
            assert_eq!(mark.reported(&role, &report(&status)), expected, "{what}");
        }
        assert_eq!(
            third.reported(&role, &WorkStatus::default()),
            Reported::Nothing
        );
    }
}
