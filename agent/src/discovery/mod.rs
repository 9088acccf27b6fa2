//! Discovers the kinds that the member serves: for each status report, and when a kind is not
//! found.

pub mod catalog;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use http::{Request, StatusCode, header};
use kube::client::Body;
use muster_shared::k8s::{Client, GroupVersionKind};
use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use self::catalog::{Catalog, Completeness, Place};
use self::wire::Root;

/// Asks for everything in one answer, in the newest form that the server knows, and takes the old
/// form otherwise.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,\
                      application/json";
/// Asks for one group in the old form.
const PLAIN: &str = "application/json";
/// Deadline for one request.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// Group versions that are asked for at the same time where the server does not aggregate.
const PARALLEL: usize = 4;
/// Shortest time between two refreshes because of unknown kinds: a Work with a misspelt kind must
/// not become a load on the member's API.
const MISS_INTERVAL: Duration = Duration::from_secs(1);

/// Reason why discovery failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server did not answer in time.
    #[error("discover {path:?}: no answer within {ANSWER_DEADLINE:?}")]
    Deadline {
        /// Requested path.
        path: String,
    },
    /// The request failed.
    #[error("discover {path:?}: {source}")]
    Request {
        /// Requested path.
        path: String,
        /// Error of the client.
        #[source]
        source: kube::Error,
    },
    /// The server answered with an error.
    #[error("discover {path:?}: the server answered {status}")]
    Refused {
        /// Requested path.
        path: String,
        /// HTTP status of the answer.
        status: StatusCode,
    },
    /// The answer is not a discovery document.
    #[error("discover {path:?}: the answer is no discovery document: {source}")]
    Garbled {
        /// Requested path.
        path: String,
        /// Error of the parser.
        #[source]
        source: serde_json::Error,
    },
}

impl Error {
    /// Returns whether the server answered that there is no such thing.
    fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if *status == StatusCode::NOT_FOUND)
    }
}

/// The catalog of one member, shared by everything that maps kinds to URLs.
#[derive(Clone)]
pub struct Discovery {
    client: Client,
    known: Arc<RwLock<Arc<Catalog>>>,
    // Held while asking, so that several misses at once cost one refresh. The instant is that of
    // the last one.
    asking: Arc<Mutex<Asked>>,
}

#[derive(Default)]
struct Asked {
    at: Option<Instant>,
    roots: [Remembered; 2],
}

/// The last answer of one root, so that an unchanged one costs an empty answer (`If-None-Match`).
#[derive(Default)]
struct Remembered {
    tag: Option<header::HeaderValue>,
    part: Catalog,
}

impl Discovery {
    /// Makes an empty catalog.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            known: Arc::default(),
            asking: Arc::default(),
        }
    }

    /// Returns the present catalog, without a request.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.known.read())
    }

    /// Reads the catalog from the member. Parts that do not answer keep their earlier content.
    pub async fn refresh(&self) -> Result<Arc<Catalog>, Error> {
        let mut asked = self.asking.lock().await;
        self.ask(&mut asked).await
    }

    /// Returns the resource of a kind; reads the catalog again when the kind is unknown.
    pub async fn resolve(&self, kind: &GroupVersionKind) -> Result<Option<Place>, Error> {
        let find = |catalog: &Catalog| catalog.resolve(kind);
        if let Some(found) = find(&self.catalog()) {
            return Ok(Some(found));
        }
        let mut asked = self.asking.lock().await;
        // Another task may have refreshed the catalog while this one waited for the lock.
        if let Some(found) = find(&self.catalog()) {
            return Ok(Some(found));
        }
        let recent = asked.at.is_some_and(|at| at.elapsed() < MISS_INTERVAL);
        // While some group does not answer, each unknown kind would cause another refresh.
        if recent && self.catalog().completeness() != Completeness::Empty {
            return Ok(None);
        }
        Ok(find(&*self.ask(&mut asked).await?))
    }

    /// Returns a version in which the member serves a kind: the one in `kind` if it is served, else
    /// any other of the group. `None` when the member serves the kind in none.
    ///
    /// A catalog may lack a kind because one of many answers is missing, so the group itself is
    /// read then.
    ///
    /// # Errors
    /// When a part of the group does not answer, so that the kind may be served there.
    pub async fn version_of(&self, kind: &GroupVersionKind) -> Result<Option<String>, Error> {
        if let Some(version) = self.catalog().version_of(kind) {
            return Ok(Some(version));
        }
        if let Some(place) = self.resolve(kind).await? {
            return Ok(Some(place.resource.version));
        }
        if let Some(version) = self.catalog().version_of(kind) {
            return Ok(Some(version));
        }
        let (path, root) = match kind.group.as_str() {
            "" => ("/api".to_owned(), "/api"),
            group => (format!("/apis/{group}"), "/apis"),
        };
        let body = match self.get(&path, PLAIN, None).await {
            Ok(answer) => answer.unwrap_or_default().0,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let garbled = |source| Error::Garbled {
            path: path.clone(),
            source,
        };
        for name in wire::group(&body).map_err(garbled)? {
            let served = match self.group_version(root, &name).await {
                Ok(served) => served,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            if served.iter().any(|served| served.kind == kind.kind) {
                let version = name.rsplit('/').next().unwrap_or(&name);
                return Ok(Some(version.to_owned()));
            }
        }
        Ok(None)
    }

    async fn ask(&self, asked: &mut Asked) -> Result<Arc<Catalog>, Error> {
        asked.at = Some(Instant::now());
        let before = self.catalog();
        let mut catalog = Catalog::default();
        for (root, remembered) in ["/api", "/apis"].into_iter().zip(&mut asked.roots) {
            self.ask_root(root, remembered).await?;
            catalog.extend(&remembered.part);
        }
        let catalog = Arc::new(catalog.or_as_before(&before));
        *self.known.write() = Arc::clone(&catalog);
        Ok(catalog)
    }

    async fn ask_root(&self, root: &str, remembered: &mut Remembered) -> Result<(), Error> {
        let Some((body, tag)) = self.get(root, ACCEPT, remembered.tag.as_ref()).await? else {
            return Ok(());
        };
        let garbled = |source| Error::Garbled {
            path: root.to_owned(),
            source,
        };
        let mut part = Catalog::default();
        match wire::root(&body).map_err(garbled)? {
            Root::Aggregated(groups) => {
                wire::admit(groups, &mut part);
                *remembered = Remembered { tag, part };
            }
            Root::Names(names) => {
                let mut answers = stream::iter(names)
                    .map(|name| async {
                        let served = self.group_version(root, &name).await;
                        (name, served)
                    })
                    .buffer_unordered(PARALLEL);
                while let Some((name, served)) = answers.next().await {
                    match served {
                        Ok(served) => part.insert(name, served),
                        Err(error) => {
                            tracing::warn!(%error, "a group version of the member does not answer");
                            part.insert_unread(name);
                        }
                    }
                }
                drop(answers);
                // The tag covers the names of groups only, not their resources.
                *remembered = Remembered { tag: None, part };
            }
        }
        Ok(())
    }

    async fn group_version(&self, root: &str, name: &str) -> Result<Vec<catalog::Served>, Error> {
        let path = format!("{root}/{name}");
        let (body, _) = self.get(&path, ACCEPT, None).await?.unwrap_or_default();
        wire::resources(&body).map_err(|source| Error::Garbled { path, source })
    }

    /// Returns the body and its tag; `None` when the tag still matches.
    async fn get(
        &self,
        path: &str,
        accept: &str,
        tag: Option<&header::HeaderValue>,
    ) -> Result<Option<(String, Option<header::HeaderValue>)>, Error> {
        let failed = |source| Error::Request {
            path: path.to_owned(),
            source,
        };
        let mut request = Request::get(path).header(header::ACCEPT, accept);
        if let Some(tag) = tag {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let request = request
            .body(Body::empty())
            .map_err(|error| failed(kube::Error::HttpError(error)))?;
        let exchange = async {
            let response = self.client.send(request).await.map_err(failed)?;
            let (head, body) = response.into_parts();
            match head.status {
                StatusCode::NOT_MODIFIED => Ok(None),
                status if status.is_success() => {
                    let bytes = body.collect_bytes().await.map_err(failed)?;
                    let text = String::from_utf8(bytes.to_vec())
                        .map_err(|error| failed(kube::Error::FromUtf8(error)))?;
                    Ok(Some((text, head.headers.get(header::ETAG).cloned())))
                }
                status => Err(Error::Refused {
                    path: path.to_owned(),
                    status,
                }),
            }
        };
        timeout(ANSWER_DEADLINE, exchange)
            .await
            .unwrap_or_else(|_| {
                Err(Error::Deadline {
                    path: path.to_owned(),
                })
            })
    }
}

#[cfg(test)]
mod tests;
