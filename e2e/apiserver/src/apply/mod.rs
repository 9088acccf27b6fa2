//! Server-side apply and field management: who owns which field of an object.
//!
//! The rules are those of Kubernetes' documentation of server-side apply and of its merge
//! specification (KEP 555).

mod check;
mod combine;
mod conflict;
mod element;
mod managed;
mod set;
mod typed;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::schema::Schema;
use combine::Comparison;
pub use conflict::Conflict;
use managed::{Managed, Manager, Owned};
use set::FieldSet;

/// The manager of what was there before anybody applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Why an apply was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 409 `Conflict`; each cause has reason `FieldManagerConflict`.
    #[error("{message}")]
    Conflicts {
        /// `Apply failed with 1 conflict: conflict with "x": .spec.replicas`
        message: String,
        /// The causes, in the order of the message.
        conflicts: Vec<Conflict>,
    },
    /// 400 `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// 500 without a reason, as the real server answers: the configuration does not fit the schema.
    #[error("{0}")]
    Typed(String),
}

/// Returns `live` after manager `manager` applied `config`, with its managed fields brought up to
/// date. `live` is `None` when the object does not exist yet. `subresource` is empty for the object
/// itself. Defaults are not filled in: the caller decodes, defaults and validates what comes back.
#[allow(clippy::too_many_arguments)]
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    manager: &str,
    api_version: &str,
    subresource: &str,
    force: bool,
    schema: &Schema,
    now: Timestamp,
) -> Result<Value, ApplyError> {
    let asked = config["apiVersion"].as_str().unwrap_or_default();
    if asked != api_version {
        return Err(ApplyError::BadRequest(format!(
            "Incorrect version specified in apply patch. Specified patch version: {asked}, expected: {api_version}"
        )));
    }
    if !config["metadata"]["managedFields"].is_null() {
        return Err(ApplyError::BadRequest(
            "metadata.managedFields must be nil".to_owned(),
        ));
    }
    let misfits = check::misfits(schema.root(), config);
    if !misfits.is_empty() {
        let subject = subject(config, api_version);
        return Err(ApplyError::Typed(format!(
            "failed to create typed patch object ({subject}): {misfits}"
        )));
    }
    let mut owners = live.and_then(Managed::read).unwrap_or_default();
    let empty = if live.is_none() || owners.0.is_empty() {
        schema.empty(api_version, config["kind"].as_str().unwrap_or_default())
    } else {
        Value::Null
    };
    let live = without_managed_fields(live.unwrap_or(&empty));
    if owners.0.is_empty() {
        let first = Manager::updater(BEFORE_FIRST_APPLY, api_version, subresource);
        note(
            &empty,
            &live,
            &mut owners,
            &first,
            api_version,
            subresource,
            schema,
            now,
        );
    }
    let request = Request {
        live: &live,
        config,
        manager,
        api_version,
        subresource,
        schema,
    };
    let (mut object, mut owners) = request.run(owners, force).map_err(conflict::error)?;
    if object != live {
        owners.touch(&Manager::applier(manager, subresource), now);
    }
    owners.write(&mut object);
    Ok(object)
}

/// One apply, without its circumstances.
struct Request<'a> {
    live: &'a Value,
    config: &'a Value,
    manager: &'a str,
    api_version: &'a str,
    subresource: &'a str,
    schema: &'a Schema,
}

impl Request<'_> {
    /// Returns the merged object and its managers, or the conflicts.
    fn run(
        &self,
        mut owners: Managed,
        force: bool,
    ) -> Result<(Value, Managed), Vec<conflict::Found>> {
        let at = self.schema.root();
        let me = Manager::applier(self.manager, self.subresource);
        let merged = combine::merge(at, self.live, self.config);
        let before = owners.0.remove(&me);
        let time = before.as_ref().and_then(|owned| owned.time.clone());
        let set = reset(
            self.schema,
            self.subresource,
            &typed::to_set(at, self.config),
        );
        owners.0.insert(
            me.clone(),
            Owned {
                set,
                version: self.api_version.to_owned(),
                time,
            },
        );
        let object = match before {
            // Where nothing is given up, as in most applies, there is nothing to prune.
            Some(before) if !before.set.difference(&owners.0[&me].set).is_empty() => {
                prune(self.schema, &merged, &owners, &before.set)
            }
            _ => merged,
        };
        let comparison = combine::compare(at, self.live, &object)
            .map(|set| reset(self.schema, self.subresource, set));
        let conflicts = yield_fields(&mut owners, &me, &comparison, force);
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
        strip(&mut owners, &me);
        owners.drop_empty();
        Ok((object, owners))
    }
}

/// Takes what changed from everybody but `me`. Unless forced, nothing is taken that somebody else
/// holds with another value; that is reported instead.
fn yield_fields(
    owners: &mut Managed,
    me: &Manager,
    comparison: &Comparison,
    force: bool,
) -> Vec<conflict::Found> {
    let changed = comparison.modified.union(&comparison.added);
    if !force {
        let found: Vec<conflict::Found> = owners
            .0
            .iter()
            .filter(|(other, _)| *other != me)
            .flat_map(|(other, owned)| {
                let paths = owned.set.intersection(&changed).paths();
                paths
                    .into_iter()
                    .map(|path| conflict::Found::new(other, owned, path))
            })
            .collect();
        if !found.is_empty() {
            return found;
        }
    }
    for (_, owned) in owners.0.iter_mut().filter(|(other, _)| *other != me) {
        // What is held with the same value stays shared: only what changed is lost.
        let lost = owned.set.intersection(&changed);
        if !lost.is_empty() {
            owned.set = owned.set.difference(&lost);
        }
        if !owned.set.intersection(&comparison.removed).is_empty() {
            owned.set = owned.set.difference(&comparison.removed);
        }
    }
    Vec::new()
}

/// Removes from `merged` what the manager applied last time, does not apply any more, and nobody
/// else owns.
fn prune(schema: &Schema, merged: &Value, owners: &Managed, last: &FieldSet) -> Value {
    let at = schema.root();
    let named = |set: &FieldSet| set.with_named_fields(Some(at));
    let set_of = |value: &Value| named(&typed::to_set(at, value));
    let without = |doomed: &FieldSet| typed::remove(Some(at), merged, doomed);
    let last = named(last);
    let everything = set_of(merged);
    let owned = owners
        .0
        .values()
        .fold(FieldSet::default(), |all, owned| all.union(&owned.set));
    let pruned = without(&last);
    let pruned = without(&everything.difference(&set_of(&pruned).union(&named(&owned))));
    without(&everything.difference(&set_of(&pruned)).intersection(&last))
}

/// Brings `new.metadata.managedFields` up to date after a write that was not an apply (`old` is
/// `None` on create). `new` is complete: defaulted, with whatever the request said in
/// `managedFields`.
pub fn track_update(
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    api_version: &str,
    subresource: &str,
    schema: &Schema,
    now: Timestamp,
) {
    let recorded = || old.and_then(Managed::read).unwrap_or_default();
    let reset = asks_for_reset(new);
    let mut owners = if !subresource.is_empty() {
        recorded()
    } else if reset {
        Managed::default()
    } else {
        Managed::read(new)
            .filter(|owners| !owners.0.is_empty())
            .unwrap_or_else(recorded)
    };
    // An object that nobody tracks is not tracked from an update on: only creation and apply begin
    // it.
    if owners.0.is_empty() && old.is_some() {
        owners.write(new);
        return;
    }
    let empty;
    let before = if let Some(old) = old {
        old
    } else {
        empty = schema.empty(api_version, new["kind"].as_str().unwrap_or_default());
        &empty
    };
    // Nobody owns the list of owners: it may stay in the one and be missing in the other.
    if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let me = Manager::updater(manager, api_version, subresource);
    note(
        before,
        new,
        &mut owners,
        &me,
        api_version,
        subresource,
        schema,
        now,
    );
    owners.write(new);
}

/// Credits `me` with what changed from `before` to `after`, and takes it from everybody else.
#[allow(clippy::too_many_arguments)]
fn note(
    before: &Value,
    after: &Value,
    owners: &mut Managed,
    me: &Manager,
    api_version: &str,
    subresource: &str,
    schema: &Schema,
    now: Timestamp,
) {
    let comparison =
        combine::compare(schema.root(), before, after).map(|set| reset(schema, subresource, set));
    // Everybody loses what changed, `me` included; then `me` gains it.
    let nobody = Manager::updater("", "", "");
    yield_fields(owners, &nobody, &comparison, true);
    let gained = comparison
        .modified
        .union(&comparison.added)
        .difference(&system_fields());
    owners.drop_empty();
    if !gained.is_empty() {
        let mine = owners.0.entry(me.clone()).or_default();
        mine.set = mine.set.union(&gained);
        api_version.clone_into(&mut mine.version);
        // Of a scale, the real server notes the fields but not the time.
        if subresource != "scale" {
            owners.touch(me, now);
        }
    }
}

/// Keeps the old times where nothing differs but when managers wrote: nothing was written.
pub fn keep_times(old: &Value, new: &mut Value) {
    let same_but = |left_out: &str, a: &Value, b: &Value| {
        let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
            return a == b;
        };
        a.len() == b.len()
            && a.iter()
                .all(|(key, value)| key == left_out || b.get(key) == Some(value))
    };
    // Most writes change something else: find that out before comparing more.
    if !same_but("metadata", old, new)
        || !same_but("managedFields", &old["metadata"], &new["metadata"])
    {
        return;
    }
    let entries = |object: &Value| object["metadata"]["managedFields"].as_array().cloned();
    let (before, after) = (
        entries(old).unwrap_or_default(),
        entries(new).unwrap_or_default(),
    );
    let same = |(a, b): (&Value, &Value)| {
        let both = a.get("time").is_some() == b.get("time").is_some();
        both && same_but("time", a, b)
    };
    if before.len() == after.len() && before.iter().zip(&after).all(same) {
        new.clone_from(old);
    }
}

/// Returns whether the managed fields of an object make sense.
pub fn is_readable(object: &Value) -> bool {
    Managed::read(object).is_some()
}

/// Returns whether an object asks to forget all owners: its list of managed fields is there but
/// empty, or holds one empty entry.
fn asks_for_reset(object: &Value) -> bool {
    match object["metadata"]["managedFields"]
        .as_array()
        .map(Vec::as_slice)
    {
        Some([]) => true,
        Some([only]) => only
            .as_object()
            .is_some_and(|entry| entry.values().all(|v| v.is_null() || *v == json!(""))),
        _ => false,
    }
}

/// Returns the set without what a write to this endpoint cannot change: nobody owns what is reset.
fn reset(schema: &Schema, subresource: &str, set: &FieldSet) -> FieldSet {
    let mut fixed = FieldSet::default();
    for path in schema.reset_fields(subresource) {
        let path: Vec<_> = path
            .iter()
            .map(|name| element::Element::field(name))
            .collect();
        fixed.insert(&path);
    }
    set.recursive_difference(&fixed)
}

/// Fields that the server fills in or that name the object: they are never owned.
fn system_fields() -> FieldSet {
    let mut fields = FieldSet::default();
    for path in [
        &["apiVersion"][..],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ] {
        let path: Vec<_> = path
            .iter()
            .map(|name| element::Element::field(name))
            .collect();
        fields.insert(&path);
    }
    fields
}

fn strip(owners: &mut Managed, me: &Manager) {
    if let Some(mine) = owners.0.get_mut(me) {
        mine.set = mine.set.difference(&system_fields());
    }
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// Returns the object as messages name it: `default/web; apps/v1, Kind=Deployment`.
fn subject(config: &Value, api_version: &str) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (
        text(&config["metadata"]["namespace"]),
        text(&config["metadata"]["name"]),
    );
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!(
        "{namespace}/{name}; {slash}{api_version}, Kind={}",
        text(&config["kind"])
    )
}

#[cfg(test)]
mod tests;
