//! Lists: selection, paging on a consistent state, and the forms that clients ask for.

use std::collections::VecDeque;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::context::{Outcome, RequestContext};
use crate::registry::codec;
use crate::registry::fields;
use crate::store::Selection;
use crate::store::{Compacted, Object, Page, Scan};
use crate::wire::field_error::FieldError;
use crate::wire::media::{self, Accept, Body, Form};
use crate::wire::protobuf::{self, encode};
use crate::wire::selectors;
use crate::wire::status_error::{GroupName, StatusError};

/// Bytes of a list that are written at once.
const PIECE: usize = 256 * 1024;

/// How long a list waits for a version of the future before it is refused, as a real server does.
const FUTURE: std::time::Duration = std::time::Duration::from_secs(3);

/// Returns what the call selects.
pub fn selection(context: &RequestContext<'_>) -> Result<Selection, StatusError> {
    let labels = context
        .query
        .get("labelSelector")
        .map(selectors::labels)
        .transpose();
    let labels = labels
        .map_err(StatusError::bad_request)?
        .unwrap_or_default();
    let parsed = context
        .query
        .get("fieldSelector")
        .map(selectors::fields)
        .transpose();
    let parsed = parsed
        .map_err(StatusError::bad_request)?
        .unwrap_or_default();
    let fields = fields::known(&context.served, parsed).map_err(StatusError::bad_request)?;
    Ok(Selection { labels, fields })
}

/// Returns the prefix of the keys that the call's namespace covers.
pub fn prefix(context: &RequestContext<'_>) -> String {
    if context.path.namespace.is_empty() {
        String::new()
    } else {
        format!("{}/", context.path.namespace)
    }
}

/// Returns everything that the call selects, and the version of that state.
pub fn selected(context: &RequestContext<'_>) -> Result<(Vec<Arc<Object>>, u64), StatusError> {
    let selection = selection(context)?;
    let prefix = prefix(context);
    let scan = Scan {
        prefix: &prefix,
        ..Scan::default()
    };
    let page = context
        .served
        .resource
        .collection
        .scan(scan, |o| selection.matches(o));
    page.map(|p| (p.objects, p.version))
        .map_err(|_| StatusError::internal("the present is never compacted"))
}

/// Returns a resource version in the query, or what is wrong with it.
pub fn version(context: &RequestContext<'_>) -> Result<Option<u64>, FieldError> {
    let parse = |text: &str| {
        text.parse().map_err(|_| {
            let message = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
            FieldError::invalid("resourceVersion", &text.into(), message)
        })
    };
    context.query.get("resourceVersion").map(parse).transpose()
}

/// Answers a read of one object.
pub async fn get(context: &RequestContext<'_>) -> Result<Outcome, StatusError> {
    if let Some(asked) = version(context).map_err(bad_version)? {
        reach(context, asked).await?;
    }
    Ok(Outcome::Stored(StatusCode::OK, context.stored()?))
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn bad_version(error: FieldError) -> StatusError {
    StatusError::bad_request(format!("invalid resource version: {error}"))
}

/// Refuses the options of a list or watch.
pub fn list_invalid(error: FieldError) -> StatusError {
    list_invalid_all(&[error])
}

/// Refuses the options of a list or watch for several reasons.
pub fn list_invalid_all(errors: &[FieldError]) -> StatusError {
    let options = GroupName {
        group: "meta.k8s.io",
        name: "ListOptions",
    };
    StatusError::invalid(options, "", errors)
}

/// Where a list goes on.
#[derive(Debug)]
struct Continue {
    /// The state it began with; `None` to go on with the present one.
    version: Option<u64>,
    /// The last key seen.
    after: String,
}

impl Continue {
    fn encode(&self) -> String {
        // -1 asks for the present state, as in a real server's tokens.
        let version = self.version.map_or_else(|| json!(-1), Value::from);
        let token = json!({ "v": "meta.k8s.io/v1", "rv": version, "start": format!("{}\u{0}", self.after) });
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(text: &str) -> Result<Self, StatusError> {
        let wrong = || {
            StatusError::bad_request(
                "invalid continue token: continue key is not valid: invalid continue token",
            )
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|_| wrong())?;
        let token: Value = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        if token["v"] != "meta.k8s.io/v1" {
            return Err(wrong());
        }
        let after = token["start"]
            .as_str()
            .and_then(|s| s.strip_suffix('\u{0}'))
            .ok_or_else(wrong)?;
        let version = match token["rv"].as_i64() {
            Some(-1) => None,
            Some(rv) => Some(u64::try_from(rv).map_err(|_| wrong())?),
            None => return Err(wrong()),
        };
        Ok(Self {
            version,
            after: after.to_owned(),
        })
    }
}

/// Answers a list.
pub async fn list(context: &RequestContext<'_>) -> Result<Response<Body>, StatusError> {
    let selection = selection(context)?;
    let prefix = prefix(context);
    let limit = context
        .query
        .number("limit")?
        .and_then(|n| usize::try_from(n).ok())
        .filter(|n| *n > 0);
    let from = context
        .query
        .get("continue")
        .map(Continue::decode)
        .transpose()?;
    let asked = version(context).map_err(bad_version)?;
    if context.query.optional_flag("sendInitialEvents").is_some() {
        let detail = "sendInitialEvents is forbidden for list";
        return Err(list_invalid(FieldError::forbidden(
            "sendInitialEvents",
            detail,
        )));
    }
    let exact = check_match(context, asked, from.is_some())?;
    if let Some(asked) = asked {
        reach(context, asked).await?;
    }
    let at = match &from {
        Some(from) => from.version,
        None if exact => asked,
        None => None,
    };
    let after = from.as_ref().map(|f| f.after.as_str());
    let scan = Scan {
        prefix: &prefix,
        after,
        at,
        limit,
    };
    let collection = &context.served.resource.collection;
    let page = collection.scan(scan, |o| selection.matches(o)).map_err(
        |Compacted { .. }| match &from {
            Some(from) => {
                let on = Continue {
                    version: None,
                    after: from.after.clone(),
                };
                StatusError::continue_expired(on.encode())
            }
            None => StatusError::expired(
                "The resourceVersion for the provided list is too old.".to_owned(),
            ),
        },
    )?;
    Ok(write(context, page, selection.is_everything()).await)
}

fn check_match(
    context: &RequestContext<'_>,
    asked: Option<u64>,
    continued: bool,
) -> Result<bool, StatusError> {
    let forbidden = |detail: &str| {
        Err(list_invalid(FieldError::forbidden(
            "resourceVersionMatch",
            detail,
        )))
    };
    if continued && asked.is_some_and(|v| v != 0) {
        return Err(StatusError::bad_request(
            "specifying resource version is not allowed when using continue",
        ));
    }
    match context.query.get("resourceVersionMatch") {
        None => Ok(context.query.get("limit").is_some() && asked.is_some_and(|v| v != 0)),
        Some(_) if continued => {
            forbidden("resourceVersionMatch is forbidden when continue is provided")
        }
        Some(_) if asked.is_none() => {
            forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
        }
        Some("Exact") if asked == Some(0) => {
            forbidden(r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#)
        }
        Some("Exact") => Ok(true),
        Some("NotOlderThan") => Ok(false),
        Some(other) => Err(list_invalid(FieldError::unsupported(
            "resourceVersionMatch",
            &other.into(),
            &["Exact", "NotOlderThan", ""],
        ))),
    }
}

/// Waits a little for a version that isn't there yet.
pub async fn reach(context: &RequestContext<'_>, asked: u64) -> Result<(), StatusError> {
    if asked <= context.server.store.version() {
        return Ok(());
    }
    tokio::time::sleep(FUTURE).await;
    let current = context.server.store.version();
    if asked <= current {
        Ok(())
    } else {
        Err(StatusError::too_large_version(asked, current))
    }
}

async fn write(context: &RequestContext<'_>, page: Page, counted: bool) -> Response<Body> {
    let mut metadata = Map::new();
    metadata.insert(
        "resourceVersion".to_owned(),
        page.version.to_string().into(),
    );
    if let Some(after) = &page.next {
        let on = Continue {
            version: Some(page.version),
            after: after.to_string(),
        };
        metadata.insert("continue".to_owned(), on.encode().into());
        if counted {
            metadata.insert("remainingItemCount".to_owned(), page.remaining.into());
        }
    }
    // The real server builds lists of custom resources by hand, and this shows.
    if context.served.resource.custom.is_some() && context.accept.form == Form::Object {
        metadata.entry("continue").or_insert_with(|| "".into());
    }
    let metadata = Value::Object(metadata);
    if context.accept == Accept::default() {
        return stream(context, page.objects, &metadata);
    }
    if context.accept.protobuf
        && let Some(kind) =
            encode::Kind::of(&context.served.api_version(), &context.served.resource.kind)
    {
        return compact(context, &kind, page.objects, &metadata).await;
    }
    let objects = page.objects.iter();
    let items = objects.map(|object| object.value());
    let items: Vec<Value> = items.collect();
    let list = match context.accept.form {
        Form::Table => context.table(&items.iter().collect::<Vec<_>>(), metadata),
        Form::Metadata => json!({
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": items.iter().map(codec::metadata_only).collect::<Vec<_>>(),
        }),
        Form::Object => json!({
            "kind": context.served.resource.list_kind,
            "apiVersion": context.served.api_version(),
            "metadata": metadata,
            "items": items,
        }),
    };
    media::tree(StatusCode::OK, &list)
}

/// Writes a list in protobuf. Its length is before it, so all of it is there before the first
/// byte is sent; it is held in pieces that go as they are sent.
async fn compact(
    context: &RequestContext<'_>,
    kind: &encode::Kind,
    objects: Vec<Arc<Object>>,
    metadata: &Value,
) -> Response<Body> {
    let version = context.served.api_version();
    let list = encode::List::new(&version, &context.served.resource.list_kind, metadata);
    let (mut pieces, mut length) = (VecDeque::new(), 0);
    let mut objects = objects.into_iter().peekable();
    while objects.peek().is_some() {
        let mut piece = Vec::with_capacity(PIECE + PIECE / 8);
        while piece.len() < PIECE
            && let Some(object) = objects.next()
        {
            kind.item(object.json_bytes(), &mut piece);
        }
        length += piece.len();
        pieces.push_back(Bytes::from(piece));
        // A long list is not to keep others from being answered.
        tokio::task::yield_now().await;
    }
    pieces.push_front(list.head(length).into());
    pieces.push_back(Bytes::from_static(&encode::TAIL));
    let body = media::pieces(futures::stream::iter(pieces));
    media::answer(StatusCode::OK, protobuf::MEDIA_TYPE, body)
}

/// Writes a list piece by piece from the stored bytes, so that a large one never exists as a whole.
fn stream(
    context: &RequestContext<'_>,
    objects: Vec<Arc<Object>>,
    metadata: &Value,
) -> Response<Body> {
    let kind = Value::from(context.served.resource.list_kind.as_str());
    let api_version = Value::from(context.served.api_version());
    let head =
        format!(r#"{{"kind":{kind},"apiVersion":{api_version},"metadata":{metadata},"items":["#)
            .into_bytes();
    let size: usize = objects.iter().map(|o| o.size()).sum();
    let served = context.served.clone();
    let mut rest = objects.into_iter().peekable();
    let mut piece = head;
    let mut first = true;
    let mut done = false;
    let mut pieces = std::iter::from_fn(move || {
        if done {
            return None;
        }
        while piece.len() < PIECE {
            let Some(object) = rest.next() else { break };
            if !first {
                piece.push(b',');
            }
            first = false;
            codec::item(&served, &object, &mut piece);
        }
        if rest.peek().is_none() {
            done = true;
            piece.extend_from_slice(b"]}\n");
        }
        Some(Bytes::from(std::mem::take(&mut piece)))
    });
    if size < PIECE / 2 {
        let whole: Vec<u8> = pieces.by_ref().flatten().collect();
        return media::json_bytes(StatusCode::OK, whole);
    }
    media::answer(
        StatusCode::OK,
        "application/json",
        media::pieces(futures::stream::iter(pieces)),
    )
}
