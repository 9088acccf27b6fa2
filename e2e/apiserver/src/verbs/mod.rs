//! What can be done to objects. A [`Call`] is one request that has been understood and permitted.

mod create;
mod decode;
mod delete;
mod patch;
mod read;
mod update;
mod watch;
mod write;

use bytes::Bytes;
use http::Response;

use crate::context::Call;
use crate::subresources;
use crate::wire::media::Body;
use crate::wire::request::Verb;
use crate::wire::status_error::StatusError;

pub use create::create;
pub use delete::{Options as DeleteOptions, delete};
pub use update::{Prepared, update_with};

/// Does what the call asks for.
pub async fn dispatch(
    call: &Call<'_>,
    verb: Verb,
    body: Bytes,
) -> Result<Response<Body>, StatusError> {
    if !call.path.subresource.is_empty() {
        return Ok(call.answer(&subresources::dispatch(call, verb, &body).await?));
    }
    let outcome = match verb {
        Verb::Get => read::get(call).await?,
        Verb::List => return read::list(call).await,
        Verb::Watch => return watch::start(call).await,
        Verb::Create if call.path.name.is_empty() => create(call, &body).await?,
        Verb::Update if !call.path.name.is_empty() => update::replace(call, &body).await?,
        Verb::Patch if !call.path.name.is_empty() => patch::patch(call, &body).await?,
        Verb::Delete => delete::one(call, &body).await?,
        Verb::DeleteCollection => delete::collection(call, &body).await?,
        _ => return Err(StatusError::method_not_allowed()),
    };
    Ok(call.answer(&outcome))
}

pub use patch::{patch, patched};
pub use update::replace;
