//! Approves the signing requests of agents.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::ResourceExt;
use kube::api::{Api, Patch, PostParams};
use muster_shared::api::cluster::Cluster;
use muster_shared::client::Head;
use muster_shared::controller::Controller;
use muster_shared::k8s::CertificateSigningRequest;
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer, Selection};
use muster_shared::write::patch_params;
use serde_json::Value;

use super::decide::{self, Agent, NameState, Question};
use super::roles;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::memory::Recent;
use crate::fleet::write::Written;
use crate::settings::COMPONENT;

/// One after another, so that of two requests for one name the second finds the first approved.
const WORKERS: usize = 1;
/// How long until a request is decided again while the list of all requests is on its way.
const UNLISTED: Duration = Duration::from_secs(1);
/// How soon a request is decided again whose requester may not yet: roles are sometimes written
/// after the token.
const AGAIN: Duration = Duration::from_secs(30);
/// For how long an approval is remembered here, where the watch has not shown it yet: as long as
/// Kubernetes keeps the request.
const REMEMBERED: Duration = Duration::from_hours(1);
/// For how long that goes on.
const PATIENCE: SignedDuration = SignedDuration::from_mins(15);

/// Starts the controller, with a watch of its own: nobody else needs signing requests. Starts
/// that of the agents' roles as well.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let api = Api::all(fleet.watch_client.clone());
    let requests: Informer<CertificateSigningRequest> =
        Informer::keeping(api, Selection::everything(), decide::form);
    let memory = (requests.clone(), Arc::new(Given::lasting(REMEMBERED)));
    Controller::new(fleet, "agent approver")
        .watches(&requests, |_, change| match change {
            Change::Applied { new, .. } => Some(new.name_any()),
            Change::Deleted { .. } => None,
        })
        .run(
            tasks,
            WORKERS,
            memory,
            |fleet, (requests, given), name| async move {
                // Whether a name is promised already is known from the whole list only.
                if !requests.is_synced() {
                    return Ok(Next::After(UNLISTED));
                }
                answer(&fleet, &requests, &given, &name).await
            },
        );
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("signing requests", requests.run(shutdown));
    roles::start(fleet, tasks);
}

/// Names for which a request was approved a moment ago, with that request.
type Given = Recent<String, String>;

async fn answer(
    fleet: &Fleet,
    requests: &Informer<CertificateSigningRequest>,
    given: &Given,
    name: &str,
) -> Result<Next, ApiError> {
    let Some(request) = requests.get(None, name) else {
        return Ok(Next::Done);
    };
    let Agent { cluster, renewal } = match decide::read(&request) {
        Ok(Some(agent)) => agent,
        Ok(None) => return Ok(Next::Done),
        Err(why) => {
            let why = format!("it is not exactly an agent's: {why}");
            leave(fleet, &request, &why);
            return Ok(Next::Done);
        }
    };
    if !renewal && let Some(rival) = rival(fleet, &cluster).await? {
        let why = format!(
            "cluster {cluster:?} cannot be beside cluster {rival:?}: the names of their Secrets would be the same"
        );
        leave(fleet, &request, &why);
        return Ok(Next::Done);
    }
    let all = requests.list();
    let state = if is_there(fleet, &cluster).await? {
        NameState::There
    } else if given.get(&cluster).is_some_and(|other| other != name)
        || decide::is_promised(name, &cluster, all.iter().map(|it| &**it))
    {
        NameState::Promised
    } else {
        NameState::New
    };
    for question in state.questions(renewal) {
        if may(fleet, &request, &cluster, *question).await? {
            given.note(cluster.clone(), name.to_owned());
            return approve(fleet, &request, question.message).await;
        }
    }
    let who = request.spec.username.as_deref().unwrap_or_default();
    let state = state.describe();
    let why = format!("{who:?} may not ask for the agent of cluster {cluster:?}, {state}");
    leave(fleet, &request, &why);
    if !decide::is_among_the_newest(&request, all.iter().map(|it| &**it)) {
        return Ok(Next::Done);
    }
    let made = request.metadata.creation_timestamp.as_ref();
    let fresh = made.is_some_and(|it| fleet.clock.now().duration_since(it.0) < PATIENCE);
    Ok(if fresh {
        Next::After(AGAIN)
    } else {
        Next::Done
    })
}

/// Returns whether there is a Cluster of this name, whatever its state and whether it can be read
/// or not: asked at the decision, because a cache has only what it could read.
async fn is_there(fleet: &Fleet, name: &str) -> Result<bool, ApiError> {
    let clusters = Api::all(fleet.client.clone());
    let found = Head::<Cluster>::get_opt(&clusters, name).await;
    let found = found.map_err(ApiError::of("look for", &format!("Cluster {name:?}")))?;
    Ok(found.is_some())
}

/// Returns the name of a Cluster that is there and beside which one of this name cannot be.
async fn rival(fleet: &Fleet, cluster: &str) -> Result<Option<String>, ApiError> {
    for rival in decide::rivals(cluster) {
        if is_there(fleet, &rival).await? {
            return Ok(Some(rival));
        }
    }
    Ok(None)
}

async fn may(
    fleet: &Fleet,
    request: &CertificateSigningRequest,
    cluster: &str,
    question: Question,
) -> Result<bool, ApiError> {
    let review = decide::review(request, cluster, question);
    let requester = format!("the requester of {:?}", request.name_any());
    let failed = || ApiError::of("ask for the rights of", &requester);
    let review: SubjectAccessReview =
        serde_json::from_value(review).map_err(|error| failed()(kube::Error::SerdeError(error)))?;
    let reviews: Api<SubjectAccessReview> = Api::all(fleet.client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(failed())?.status.unwrap_or_default();
    Ok(answer.allowed && answer.denied != Some(true))
}

async fn approve(
    fleet: &Fleet,
    request: &CertificateSigningRequest,
    message: &str,
) -> Result<Next, ApiError> {
    let name = request.name_any();
    let api: Api<CertificateSigningRequest> = Api::all(fleet.client.clone());
    let params = patch_params(COMPONENT);
    let patch: Patch<Value> = Patch::Merge(decide::approval(request, message));
    let answer = api.patch_approval(&name, &params, &patch).await;
    let object = format!("signing request {name:?}");
    let written = Written::of(answer).map_err(ApiError::of("approve", &object))?;
    if let Written::Done(_) = written {
        tracing::info!(
            request = name,
            message,
            "approved an agent's signing request"
        );
        fleet.events.inform(request, "AutoApproved", message);
    }
    Ok(written.next())
}

fn leave(fleet: &Fleet, request: &CertificateSigningRequest, why: &str) {
    let name = request.name_any();
    tracing::info!(request = name, why, "left a signing request to a person");
    let note = format!("Not approved: {why}.");
    fleet.events.warn(request, "NotAutoApproved", note);
}
