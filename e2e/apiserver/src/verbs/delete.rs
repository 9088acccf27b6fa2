//! Deleting objects: preconditions, finalizers, propagation, grace.

use std::sync::Arc;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::read;
use super::write::{draft, options};
use crate::admission;
use crate::context::{Outcome, RequestContext};
use crate::kinds::strategy;
use crate::store::{Expect, Object};
use crate::wire::field_error::FieldError;
use crate::wire::media;
use crate::wire::metadata;
use crate::wire::status_error::{GroupName, StatusError};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Races lost against other writers before giving up.
const ATTEMPTS: usize = 100;

/// How to delete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Seconds until the object may go.
    pub grace: Option<i64>,
    /// Only this object.
    pub uid: Option<String>,
    /// Only this state.
    pub resource_version: Option<String>,
    /// `Orphan`, `Background` or `Foreground`.
    pub propagation: Option<String>,
    /// Only a rehearsal.
    pub dry_run: bool,
}

impl Options {
    /// Reads the options from the body, or from the query if there is none.
    fn read(context: &RequestContext<'_>, body: &[u8]) -> Result<Self, StatusError> {
        let mut options = Self {
            dry_run: options(context, "DeleteOptions")?.dry_run,
            ..Self::default()
        };
        if body.is_empty() {
            options.grace = context.query.number("gracePeriodSeconds")?;
            options.propagation = context.query.get("propagationPolicy").map(str::to_owned);
            let precondition = |name: &str| {
                context
                    .query
                    .get(&format!("preconditions.{name}"))
                    .map(str::to_owned)
            };
            options.uid = precondition("uid");
            options.resource_version = precondition("resourceVersion");
            let orphans = context.query.get("orphanDependents").map(Value::from);
            options.check(unread(&orphans.unwrap_or_default()))?;
            return Ok(options);
        }
        let tree = media::tree_of(context.content_type, body)?;
        if tree["kind"].as_str().is_some_and(|k| k != "DeleteOptions") {
            return Err(StatusError::bad_request(format!(
                "no kind {} is registered for version {} in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
                tree["kind"], tree["apiVersion"]
            )));
        }
        let text = |v: &Value| v.as_str().map(str::to_owned);
        options.grace = tree["gracePeriodSeconds"].as_i64();
        options.propagation = text(&tree["propagationPolicy"]);
        options.uid = text(&tree["preconditions"]["uid"]);
        options.resource_version = text(&tree["preconditions"]["resourceVersion"]);
        let rehearsals = tree["dryRun"].as_array().map_or(&[][..], Vec::as_slice);
        let mut errors = unread(&tree["orphanDependents"]);
        if rehearsals.iter().any(|v| v != "All") {
            let given = Value::from(rehearsals);
            errors.push(FieldError::unsupported("dryRun", &given, &["All"]));
        }
        options.dry_run |= !rehearsals.is_empty();
        options.check(errors)?;
        Ok(options)
    }

    /// Returns the options as an object.
    pub fn tree(&self) -> Value {
        let mut tree = json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1" });
        let mut preconditions = Map::new();
        for (field, value) in [
            ("uid", &self.uid),
            ("resourceVersion", &self.resource_version),
        ] {
            if let Some(value) = value {
                preconditions.insert(field.to_owned(), value.as_str().into());
            }
        }
        for (field, value) in [
            ("gracePeriodSeconds", json!(self.grace)),
            ("propagationPolicy", json!(self.propagation)),
        ] {
            if !value.is_null() {
                tree[field] = value;
            }
        }
        if !preconditions.is_empty() {
            tree["preconditions"] = preconditions.into();
        }
        if self.dry_run {
            tree["dryRun"] = json!(["All"]);
        }
        tree
    }

    fn check(&self, mut errors: Vec<FieldError>) -> Result<(), StatusError> {
        if let Some(policy) = &self.propagation
            && !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan")
        {
            let allowed = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(FieldError::unsupported(
                "propagationPolicy",
                &policy.as_str().into(),
                &allowed,
            ));
        }
        if errors.is_empty() {
            return Ok(());
        }
        let kind = GroupName {
            group: "meta.k8s.io",
            name: "DeleteOptions",
        };
        Err(StatusError::invalid(kind, "", &errors))
    }

    /// Returns the finalizers that make the garbage collector act as asked.
    fn finalizers(&self, current: &[&str]) -> Vec<String> {
        let chosen = match self.propagation.as_deref() {
            Some("Orphan") => Some(ORPHAN),
            Some("Foreground") => Some(FOREGROUND),
            Some(_) => None,
            None => current
                .iter()
                .copied()
                .find(|f| [ORPHAN, FOREGROUND].contains(f)),
        };
        let others = current
            .iter()
            .copied()
            .filter(|f| ![ORPHAN, FOREGROUND].contains(f));
        others.chain(chosen).map(str::to_owned).collect()
    }
}

/// Refuses the older form of the propagation policy, which is not read here.
fn unread(orphans: &Value) -> Vec<FieldError> {
    let detail = "orphanDependents is not implemented by this API";
    let error = FieldError::invalid("propagationPolicy", orphans, detail);
    (!orphans.is_null()).then_some(error).into_iter().collect()
}

/// Deletes the object of the call.
pub async fn one(context: &RequestContext<'_>, body: &[u8]) -> Result<Outcome, StatusError> {
    let options = Options::read(context, body)?;
    delete(
        context,
        &context.path.name,
        &context.path.namespace,
        &options,
    )
    .await
}

/// Deletes what the call's selectors find.
pub async fn collection(context: &RequestContext<'_>, body: &[u8]) -> Result<Outcome, StatusError> {
    let options = Options::read(context, body)?;
    let (objects, version) = read::selected(context)?;
    let mut items = Vec::with_capacity(objects.len());
    for object in objects {
        let mut item = object.value();
        if let Some(members) = item
            .as_object_mut()
            .filter(|_| context.served.resource.custom.is_none())
        {
            members.retain(|key, _| key != "apiVersion" && key != "kind");
        }
        items.push(item);
        match delete(
            context,
            object.head.name(),
            object.head.namespace(),
            &options,
        )
        .await
        {
            Err(refusal) if refusal.code() != StatusCode::NOT_FOUND => return Err(refusal),
            _ => {}
        }
    }
    let list = json!({
        "kind": context.served.resource.list_kind,
        "apiVersion": context.served.api_version(),
        "metadata": { "resourceVersion": version.to_string() },
        "items": items,
    });
    let mut list = list;
    if context.served.resource.custom.is_some() {
        list["metadata"]["continue"] = "".into();
    }
    Ok(Outcome::Tree(StatusCode::OK, list))
}

/// Deletes an object, or begins to.
pub async fn delete(
    context: &RequestContext<'_>,
    name: &str,
    namespace: &str,
    options: &Options,
) -> Result<Outcome, StatusError> {
    let resource = &context.served.resource;
    strategy(resource).may_delete(name)?;
    for _ in 0..ATTEMPTS {
        let key = resource.key(namespace, name);
        let stored = resource
            .collection
            .get(&key)
            .ok_or_else(|| StatusError::not_found(resource.name(), name))?;
        let old = stored.value();
        check_preconditions(context, name, &old, options)?;
        let now = context.server.clock.now();
        if !is_pending(context, &old, options, now) {
            let said = (options.tree(), options.dry_run);
            admission::delete(context, &old, said).await?;
        }
        if let Some(outcome) = step(context, &stored, &old, options, now)? {
            return Ok(outcome);
        }
    }
    Err(StatusError::modified(resource.name(), name))
}

fn check_preconditions(
    context: &RequestContext<'_>,
    name: &str,
    old: &Value,
    options: &Options,
) -> Result<(), StatusError> {
    let kind = context.served.resource.kind_name();
    let (uid, version) = (
        metadata::text(old, "uid"),
        metadata::text(old, "resourceVersion"),
    );
    if let Some(wanted) = options.uid.as_deref().filter(|w| *w != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(StatusError::conflict(kind, name, &why));
    }
    if let Some(wanted) = options
        .resource_version
        .as_deref()
        .filter(|w| *w != version)
    {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(StatusError::conflict(kind, name, &why));
    }
    Ok(())
}

/// Returns whether the deletion has begun and this request has nothing to add.
fn is_pending(
    context: &RequestContext<'_>,
    old: &Value,
    options: &Options,
    now: Timestamp,
) -> bool {
    let begun = old["metadata"]["deletionTimestamp"].is_string();
    strategy(&context.served.resource)
        .grace(old, options.grace)
        .is_some_and(|period| {
            let grace = shorten(old, begun, period, options.grace.is_some(), now);
            matches!(grace, Grace::Pending)
        })
}

/// Makes one attempt at the deletion; returns `None` if somebody else was faster.
fn step(
    context: &RequestContext<'_>,
    stored: &Arc<Object>,
    old: &Value,
    options: &Options,
    now: Timestamp,
) -> Result<Option<Outcome>, StatusError> {
    let resource = &context.served.resource;
    let mut new = old.clone();
    let begun = old["metadata"]["deletionTimestamp"].is_string();
    let strategy = strategy(resource);
    let mut graceful = false;
    if let Some(period) = strategy.grace(old, options.grace) {
        match shorten(old, begun, period, options.grace.is_some(), now) {
            Grace::Pending => return Ok(Some(Outcome::Stored(StatusCode::OK, Arc::clone(stored)))),
            Grace::Over => {}
            Grace::Until(time, seconds) => {
                graceful = seconds > 0;
                mark(&mut new, time, seconds, begun);
            }
        }
    }
    let mut current = metadata::finalizers(old);
    let own = strategy.deletion_finalizer().filter(|_| !begun);
    current.extend(own.filter(|f| !current.contains(f)));
    let finalizers = options.finalizers(&current);
    set_finalizers(&mut new, &finalizers);
    strategy.begin_deletion(context, &mut new);
    let held = !finalizers.is_empty() || strategy.holds(&new);
    if held && !new["metadata"]["deletionTimestamp"].is_string() {
        if strategy.marks_deletion(&new) {
            let time = metadata::time(now);
            metadata::of(&mut new).insert("deletionTimestamp".to_owned(), time.into());
        } else {
            mark(&mut new, now, 0, false);
        }
    }
    if graceful || held {
        if new == *old {
            return Ok(Some(Outcome::Stored(StatusCode::OK, Arc::clone(stored))));
        }
        if options.dry_run {
            return Ok(Some(Outcome::Tree(StatusCode::OK, new)));
        }
        let put = resource.collection.put(
            draft(&context.served, &new)?,
            Expect::Version(stored.version),
        );
        return Ok(put.ok().map(|written| {
            context.server.written(resource, &written);
            Outcome::Stored(StatusCode::OK, written)
        }));
    }
    if !options.dry_run {
        match resource
            .collection
            .remove(draft(&context.served, &new)?, stored.version)
        {
            Ok(gone) => {
                context.server.removed(resource, &gone);
                if resource.facts.return_deleted {
                    return Ok(Some(Outcome::Stored(StatusCode::OK, gone)));
                }
            }
            Err(_) => return Ok(None),
        }
    }
    if resource.facts.return_deleted {
        return Ok(Some(Outcome::Tree(StatusCode::OK, new)));
    }
    Ok(Some(Outcome::Tree(StatusCode::OK, success(context, &new))))
}

/// Returns the `Status` that answers a completed deletion.
fn success(context: &RequestContext<'_>, gone: &Value) -> Value {
    let resource = &context.served.resource;
    let mut details = Map::new();
    for (key, value) in [
        ("name", metadata::text(gone, "name")),
        ("group", &resource.group),
        ("kind", &resource.plural),
        ("uid", metadata::text(gone, "uid")),
    ] {
        if !value.is_empty() {
            details.insert(key.to_owned(), value.into());
        }
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

enum Grace {
    /// Deletion has begun and this request doesn't shorten it.
    Pending,
    /// Nothing to wait for.
    Over,
    /// Ends then, after so many seconds.
    Until(Timestamp, i64),
}

/// Returns the grace of an object after a request for its deletion: grace only ever gets shorter.
fn shorten(old: &Value, begun: bool, period: i64, asked: bool, now: Timestamp) -> Grace {
    let after = |from: Timestamp, seconds: i64| {
        from.checked_add(SignedDuration::from_secs(seconds))
            .unwrap_or(from)
    };
    if !begun {
        return Grace::Until(after(now, period), period);
    }
    let before = old["metadata"]["deletionGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(0);
    if before == 0 {
        return Grace::Over;
    }
    if !asked || period >= before {
        return Grace::Pending;
    }
    let end: Option<Timestamp> = metadata::text(old, "deletionTimestamp").parse().ok();
    let moved = after(end.unwrap_or(now), period - before);
    if moved < now {
        return Grace::Until(now, period.min(1));
    }
    Grace::Until(moved, period)
}

fn mark(object: &mut Value, time: Timestamp, seconds: i64, begun: bool) {
    let generation = object["metadata"]["generation"]
        .as_i64()
        .filter(|g| *g > 0 && !begun);
    let fields = metadata::of(object);
    fields.insert("deletionTimestamp".to_owned(), metadata::time(time).into());
    fields.insert("deletionGracePeriodSeconds".to_owned(), seconds.into());
    if let Some(generation) = generation {
        fields.insert("generation".to_owned(), (generation + 1).into());
    }
}

fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let fields = metadata::of(object);
    if finalizers.is_empty() {
        fields.remove("finalizers");
    } else {
        fields.insert("finalizers".to_owned(), json!(finalizers));
    }
}
