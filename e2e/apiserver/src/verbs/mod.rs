//! What can be done to objects. A [`RequestContext`] is one request that has been understood and
//! permitted.

mod create;
mod decode;
mod delete;
mod patch;
mod read;
mod status;
mod update;
mod watch;
mod write;

use bytes::Bytes;
use http::Response;

use crate::context::RequestContext;
use crate::wire::media::Body;
use crate::wire::request::Verb;
use crate::wire::status_error::StatusError;

pub use create::{create, decoded};
pub use delete::{Options as DeleteOptions, delete};
pub use update::{Prepared, update_with};

/// Does what a request on an object or a collection asks for.
pub async fn dispatch(
    context: &RequestContext<'_>,
    verb: Verb,
    body: Bytes,
) -> Result<Response<Body>, StatusError> {
    let outcome = match verb {
        Verb::Get => read::get(context).await?,
        Verb::List => return read::list(context).await,
        Verb::Watch => return watch::start(context).await,
        Verb::Create if context.path.name.is_empty() => create(context, &body).await?,
        Verb::Update if !context.path.name.is_empty() => update::replace(context, &body).await?,
        Verb::Patch if !context.path.name.is_empty() => patch::patch(context, &body).await?,
        Verb::Delete => delete::one(context, &body).await?,
        Verb::DeleteCollection => delete::collection(context, &body).await?,
        _ => return Err(StatusError::method_not_allowed()),
    };
    Ok(context.answer(&outcome))
}

pub use patch::{patch, patched};
pub use update::replace;
