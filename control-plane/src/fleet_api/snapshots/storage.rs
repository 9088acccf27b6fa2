//! Object storage by S3's protocol. `rusty-s3` signs requests (version 4 of the signature, in the
//! URL); they are sent here, and neither a file nor an object is ever in memory as a whole.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use kube::Config;
use kube::client::ConfigExt as _;
use muster_shared::clock::calendar;
use ring::digest::{Context, Digest, SHA256};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Way;

/// Bytes of the largest object that one request writes.
pub(super) const LARGEST: u64 = 5 * 1024 * 1024 * 1024;
/// Bytes of a file that are in memory at once.
const PIECE: usize = 128 * 1024;
/// Bytes of the longest list and the longest error that are read.
const LONGEST: usize = 4 * 1024 * 1024;
/// Namespace of lists, as AWS and most others write it.
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
/// Time for which a signed URL is good: longer than a transfer may take.
const VALIDITY: Duration = Duration::from_hours(1);
/// Time in which a connection is there.
const CONNECT: Duration = Duration::from_secs(10);
/// Time in which a server reads or writes something.
const STALL: Duration = Duration::from_mins(1);

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Reason why a request failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The request may succeed later.
    Passing(anyhow::Error),
    /// The request was refused, and would be again.
    Lasting(anyhow::Error),
}

/// Size and SHA-256 of a file or an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Sum {
    pub bytes: u64,
    hash: [u8; 32],
}

impl Sum {
    fn new(bytes: u64, digest: &Digest) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest.as_ref());
        Self { bytes, hash }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} bytes, SHA-256 ", self.bytes)?;
        self.hash.iter().try_for_each(|it| write!(to, "{it:02x}"))
    }
}

/// An object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub key: String,
    pub written: Timestamp,
}

/// A bucket.
pub(super) struct Storage {
    client: Client<TimeoutConnector<HttpsConnector<HttpConnector>>, Body>,
    bucket: Bucket,
    credentials: Credentials,
}

impl Storage {
    /// Prepares the way to a bucket; nothing is sent yet.
    pub(super) fn open(way: &Way, bucket: &str) -> anyhow::Result<Self> {
        let endpoint = way.endpoint.parse().map_err(anyhow::Error::from);
        let endpoint = endpoint.with_context(|| format!("read --endpoint={}", way.endpoint))?;
        let (name, region) = (bucket.to_owned(), way.region.clone());
        let bucket = Bucket::new(endpoint, UrlStyle::Path, name, region)
            .map_err(|error| anyhow!("--endpoint={} cannot be used: {error}", way.endpoint))?;
        let uri: Uri = bucket.base_url().as_str().parse()?;
        let mut config = Config::new(uri);
        if let Some(path) = &way.authority {
            let found = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let found = found.with_context(|| format!("read {}", path.display()))?;
            config.root_cert = Some(found.iter().map(|it| it.to_vec()).collect());
        }
        let mut connector = TimeoutConnector::new(config.rustls_https_connector()?);
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_read_timeout(Some(STALL));
        connector.set_write_timeout(Some(STALL));
        // Nothing is to be read while a file is being sent.
        connector.set_reset_reader_on_write(true);
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            bucket,
            credentials: credentials(&way.credentials)?,
        })
    }

    /// Writes a file of so many bytes as an object.
    pub(super) async fn put(&self, key: &str, file: &Path, bytes: u64) -> Result<(), Trouble> {
        let opened = File::open(file).await;
        let opened = opened
            .with_context(|| format!("read {}", file.display()))
            .map_err(Trouble::Lasting)?;
        let pieces = stream::try_unfold(opened, async |mut file| {
            let mut piece = vec![0; PIECE];
            let read = file.read(&mut piece).await?;
            piece.truncate(read);
            Ok((read > 0).then(|| (Frame::data(Bytes::from(piece)), file)))
        });
        let body = StreamBody::new(pieces).boxed_unsync();
        let action = self.bucket.put_object(Some(&self.credentials), key);
        self.ask(&action, key, Some((body, bytes))).await?;
        Ok(())
    }

    /// Reads an object, and returns its size and checksum.
    pub(super) async fn sum(&self, key: &str) -> Result<Sum, Trouble> {
        self.read(key, async |_| Ok(())).await
    }

    /// Reads an object into a file, which is there only when it is complete.
    pub(super) async fn get(&self, key: &str, file: &Path) -> Result<Sum, Trouble> {
        let part = file.with_added_extension("part");
        let wrong = |error: std::io::Error| {
            Trouble::Lasting(anyhow!(error).context(format!("write {}", file.display())))
        };
        let mut to = File::create(&part).await.map_err(wrong)?;
        let sum = self.read(key, async |piece| to.write_all(piece).await);
        let sum = sum.await?;
        to.sync_all().await.map_err(wrong)?;
        tokio::fs::rename(&part, file).await.map_err(wrong)?;
        Ok(sum)
    }

    /// Lists the objects whose keys begin with a text.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<Object>, Trouble> {
        let mut objects = Vec::new();
        let mut after = None;
        loop {
            let mut action = self.bucket.list_objects_v2(Some(&self.credentials));
            action.with_prefix(prefix);
            if let Some(token) = after {
                action.with_continuation_token(token);
            }
            let answer = self.ask(&action, prefix, None).await?;
            let text = text(answer).await.map_err(Trouble::Passing)?;
            let page = ListObjectsV2::parse_response(&in_namespace(&text));
            let page = page
                .with_context(|| format!("read the list of s3://{}/{prefix}", self.bucket.name()))
                .map_err(Trouble::Lasting)?;
            // Without a time it is nobody's snapshot.
            objects.extend(page.contents.into_iter().filter_map(|it| {
                let written = it.last_modified?.parse().ok()?;
                Some(Object {
                    key: it.key,
                    written,
                })
            }));
            after = page.next_continuation_token;
            if after.is_none() {
                return Ok(objects);
            }
        }
    }

    /// Removes an object.
    pub(super) async fn delete(&self, key: &str) -> Result<(), Trouble> {
        let action = self.bucket.delete_object(Some(&self.credentials), key);
        self.ask(&action, key, None).await?;
        Ok(())
    }

    /// Reads an object piece by piece.
    async fn read(
        &self,
        key: &str,
        mut take: impl AsyncFnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<Sum, Trouble> {
        let action = self.bucket.get_object(Some(&self.credentials), key);
        let mut body = self.ask(&action, key, None).await?.into_body();
        let (mut bytes, mut hash) = (0, Context::new(&SHA256));
        while let Some(frame) = body.frame().await {
            let frame = frame
                .with_context(|| format!("read s3://{}/{key}", self.bucket.name()))
                .map_err(Trouble::Passing)?;
            let Ok(piece) = frame.into_data() else {
                continue;
            };
            bytes += piece.len() as u64;
            hash.update(&piece);
            let taken = take(&piece).await.context("write the file");
            taken.map_err(Trouble::Lasting)?;
        }
        Ok(Sum::new(bytes, &hash.finish()))
    }

    /// Makes a request about a key, with a body of so many bytes, and returns an answer that is no
    /// refusal. The signed URL is a credential, and is in no error.
    async fn ask<'a, A: S3Action<'a>>(
        &self,
        action: &A,
        key: &str,
        body: Option<(Body, u64)>,
    ) -> Result<Response<Incoming>, Trouble> {
        let name = A::METHOD.to_str();
        let what = format!("{name} s3://{}/{key}", self.bucket.name());
        let url = action.sign_with_time(VALIDITY, &calendar());
        let request = request(name, url.as_str(), body);
        let request = request.with_context(|| what.clone());
        let answer = self.client.request(request.map_err(Trouble::Lasting)?);
        let answer = answer.await.map_err(|error| {
            let at = self.bucket.base_url().origin().ascii_serialization();
            Trouble::Passing(anyhow!(error).context(format!("{what} at {at}")))
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let said = text(answer).await.unwrap_or_default();
        let error = anyhow!("{what}: {status}{}", reason(&said));
        Err(
            if status.is_server_error() || matches!(status.as_u16(), 408 | 429) {
                Trouble::Passing(error)
            } else {
                Trouble::Lasting(error)
            },
        )
    }
}

fn request(method: &str, url: &str, body: Option<(Body, u64)>) -> anyhow::Result<Request<Body>> {
    let request = Request::builder()
        .method(Method::from_bytes(method.as_bytes())?)
        .uri(url);
    Ok(match body {
        Some((body, bytes)) => request.header(header::CONTENT_LENGTH, bytes).body(body)?,
        None => request.body(Empty::new().map_err(|never| match never {}).boxed_unsync())?,
    })
}

/// Reads the files of a Secret.
fn credentials(directory: &Path) -> anyhow::Result<Credentials> {
    let read = |name: &str| {
        let path = directory.join(name);
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| format!("read {}", path.display()))?;
        // Editors and `echo` end a file with a line break.
        anyhow::Ok(text.trim().to_owned())
    };
    let (id, secret) = (read("access-key-id")?, read("secret-access-key")?);
    Ok(if directory.join("session-token").exists() {
        Credentials::new_with_token(id, secret, read("session-token")?)
    } else {
        Credentials::new(id, secret)
    })
}

async fn text(answer: Response<Incoming>) -> anyhow::Result<String> {
    let body = Limited::new(answer.into_body(), LONGEST).collect().await;
    let body = body.map_err(|error| anyhow!("{error}"))?.to_bytes();
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Returns a list with the namespace of AWS in place of another one, as Google's storage has it.
fn in_namespace(xml: &str) -> String {
    let parts = xml.split_once("xmlns=").and_then(|(before, rest)| {
        let quote = rest.chars().next().filter(|it| "'\"".contains(*it))?;
        let (_, after) = rest.get(1..)?.split_once(quote)?;
        Some((before, after))
    });
    parts.map_or_else(
        || xml.to_owned(),
        |(before, after)| format!("{before}xmlns=\"{NAMESPACE}\"{after}"),
    )
}

/// Returns what an error of S3 says, in the form of the end of a sentence.
fn reason(xml: &str) -> String {
    let part = |name: &str| {
        let rest = xml.split_once(&format!("<{name}>"))?.1;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    };
    let parts = ["Code", "Message"].into_iter().filter_map(part);
    parts.fold(String::new(), |said, it| said + ": " + it)
}

/// Returns the size and the checksum of a file.
pub(super) async fn sum_of_file(path: &Path) -> anyhow::Result<Sum> {
    let name = || format!("read {}", path.display());
    let mut file = File::open(path).await.with_context(name)?;
    let (mut bytes, mut hash) = (0, Context::new(&SHA256));
    let mut piece = vec![0; PIECE];
    loop {
        let read = file.read(&mut piece).await.with_context(name)?;
        if read == 0 {
            return Ok(Sum::new(bytes, &hash.finish()));
        }
        bytes += read as u64;
        hash.update(&piece[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_in_any_namespace() {
        for namespace in [NAMESPACE, "http://doc.s3.amazonaws.com/2006-03-01"] {
            let xml = format!(
                "<?xml version='1.0'?><ListBucketResult xmlns='{namespace}'><Contents><Key>a.db</Key></Contents></ListBucketResult>"
            );
            let list = ListObjectsV2::parse_response(&in_namespace(&xml)).unwrap();
            assert_eq!(list.contents[0].key, "a.db", "{namespace}");
        }
        assert_eq!(in_namespace("<html xmlns="), "<html xmlns=");
    }

    #[test]
    fn an_error_says_what_the_storage_said() {
        let xml = "<?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>It does not exist</Message></Error>";
        assert_eq!(reason(xml), ": NoSuchBucket: It does not exist");
        assert_eq!(reason("<html>"), "");
    }
}
