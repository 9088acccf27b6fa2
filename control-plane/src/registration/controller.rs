//! Approves the signing requests of agents.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use muster_shared::client;
use muster_shared::events::EventType;
use muster_shared::k8s::CertificateSigningRequest;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer, Selection};
use serde_json::Value;

use super::decide::{self, Question, Request};
use crate::fleet::{COMPONENT, Fleet};

/// Requests are few, and each is looked at once.
const WORKERS: usize = 2;
/// How soon a request is looked at again whose requester may not yet: roles are sometimes written after the token.
const AGAIN: Duration = Duration::from_secs(30);
/// For how long that goes on.
const PATIENCE: SignedDuration = SignedDuration::from_mins(15);

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "ask whether the requester of {request:?} may: {}",
        client::brief(error)
    )]
    Review {
        request: String,
        error: Box<kube::Error>,
    },
    #[error("form the question about {request:?}: {error}")]
    Question {
        request: String,
        error: serde_json::Error,
    },
    #[error("approve signing request {request:?}: {}", client::brief(error))]
    Approve {
        request: String,
        error: Box<kube::Error>,
    },
}

/// Starts the controller, with a watch of its own: nobody else looks at signing requests.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let api = Api::all(fleet.watch_client.clone());
    let requests: Informer<CertificateSigningRequest> = Informer::new(api, Selection::everything());
    let queue = Queue::<String>::new("signing requests");
    requests.on_change({
        let queue = queue.clone();
        move |change| {
            if let Change::Applied { new, .. } = change {
                queue.add(new.name_any());
            }
        }
    });
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("signing requests", requests.clone().run(shutdown));
    fleet.work(
        tasks,
        "agent approver",
        queue,
        WORKERS,
        move |fleet, name| {
            let requests = requests.clone();
            async move { answer(&fleet, &requests, &name).await }
        },
    );
}

async fn answer(
    fleet: &Fleet,
    requests: &Informer<CertificateSigningRequest>,
    name: &str,
) -> Result<Next, Error> {
    let Some(request) = requests.get(None, name) else {
        return Ok(Next::Done);
    };
    let (cluster, renewal) = match decide::read(&request) {
        Request::Settled | Request::Foreign => return Ok(Next::Done),
        Request::Odd(why) => {
            leave(
                fleet,
                &request,
                &format!("it is not exactly an agent's: {why}"),
            );
            return Ok(Next::Done);
        }
        Request::Agent { cluster, renewal } => (cluster, renewal),
    };
    let known = fleet.clusters.get(None, &cluster);
    let known = known.is_some_and(|it| it.metadata.deletion_timestamp.is_none());
    for question in decide::questions(renewal, known) {
        if may(fleet, &request, &cluster, *question).await? {
            return approve(fleet, &request, question.message).await;
        }
    }
    let standing = if known {
        "is there already"
    } else {
        "is not there"
    };
    let who = request.spec.username.as_deref().unwrap_or_default();
    let why = format!("{who:?} may not ask for the agent of cluster {cluster:?}, which {standing}");
    leave(fleet, &request, &why);
    let made = request.metadata.creation_timestamp.as_ref();
    let fresh = made.is_some_and(|it| Timestamp::now().duration_since(it.0) < PATIENCE);
    Ok(if fresh {
        Next::After(AGAIN)
    } else {
        Next::Done
    })
}

async fn may(
    fleet: &Fleet,
    request: &CertificateSigningRequest,
    cluster: &str,
    question: Question,
) -> Result<bool, Error> {
    let review = decide::review(request, cluster, question);
    let name = || request.name_any();
    let review: SubjectAccessReview =
        serde_json::from_value(review).map_err(|error| Error::Question {
            request: name(),
            error,
        })?;
    let reviews: Api<SubjectAccessReview> = Api::all(fleet.client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|error| Error::Review {
        request: name(),
        error: Box::new(error),
    })?;
    let answer = answer.status.unwrap_or_default();
    Ok(answer.allowed && answer.denied != Some(true))
}

async fn approve(
    fleet: &Fleet,
    request: &CertificateSigningRequest,
    message: &str,
) -> Result<Next, Error> {
    let name = request.name_any();
    let api: Api<CertificateSigningRequest> = Api::all(fleet.client.clone());
    let params = PatchParams {
        field_manager: Some(COMPONENT.to_owned()),
        ..PatchParams::default()
    };
    let patch: Patch<Value> = Patch::Merge(decide::approval(request, message));
    match api.patch_approval(&name, &params, &patch).await {
        Ok(_) => {
            tracing::info!(
                request = name,
                message,
                "approved an agent's signing request"
            );
            fleet
                .events
                .publish(request, EventType::Normal, "AutoApproved", message);
            Ok(Next::Done)
        }
        // The watch tells what somebody else did.
        Err(error) if client::is_conflict(&error) || client::is_not_found(&error) => Ok(Next::Done),
        Err(error) => Err(Error::Approve {
            request: name,
            error: Box::new(error),
        }),
    }
}

fn leave(fleet: &Fleet, request: &CertificateSigningRequest, why: &str) {
    let name = request.name_any();
    tracing::info!(request = name, why, "left a signing request to a person");
    let note = format!("Not approved: {why}.");
    fleet
        .events
        .publish(request, EventType::Warning, "NotAutoApproved", note);
}
