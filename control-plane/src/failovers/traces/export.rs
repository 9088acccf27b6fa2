//! Sends traces by OTLP over HTTP.

use std::env;
use std::time::{Duration, UNIX_EPOCH};

use hyper_rustls::HttpsConnectorBuilder;
use jiff::Timestamp;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, Protocol, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};

use super::spans::{Span, Trace, Value};

/// Longest time of a request, if the environment does not give a shorter one.
const DEADLINE: Duration = Duration::from_secs(10);
/// Name of this program in the traces, as `service.name`.
const SERVICE: &str = "muster-control-plane";

/// The way to a collector.
pub struct Exporter {
    endpoint: String,
    exporter: SpanExporter,
}

impl Exporter {
    /// The one that the environment of the process names, if it names one.
    pub fn of_the_environment() -> Result<Option<Self>, String> {
        let value = |name: &str| env::var(name).ok();
        endpoint(&value)?.map(Self::new).transpose()
    }

    fn new(endpoint: String) -> Result<Self, String> {
        let builder = SpanExporter::builder()
            .with_http()
            .with_endpoint(&endpoint)
            .with_protocol(Protocol::HttpBinary);
        let builder = if endpoint.starts_with("https:") {
            let provider = rustls::crypto::ring::default_provider();
            let connector = HttpsConnectorBuilder::new()
                .with_provider_and_native_roots(provider)
                .map_err(|error| format!("the certificates of the system: {error}"))?
                .https_only()
                .enable_http1()
                .build();
            builder.with_http_client(HyperClient::new(connector, DEADLINE, None))
        } else {
            builder.with_http_client(HyperClient::with_default_connector(DEADLINE, None))
        };
        let exporter = builder.build();
        let mut exporter = exporter.map_err(|error| format!("{endpoint}: {error}"))?;
        let resource = Resource::builder()
            .with_service_name(SERVICE)
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        exporter.set_resource(&resource);
        Ok(Self { endpoint, exporter })
    }

    /// Where it sends to.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Sends a trace.
    pub async fn send(&self, trace: Trace) -> Result<(), String> {
        let id = TraceId::from_bytes(trace.id.to_be_bytes());
        let scope = InstrumentationScope::builder("muster.failover").build();
        let spans = trace.spans.into_iter();
        let spans = spans.map(|span| data(id, span, scope.clone())).collect();
        let result = self.exporter.export(spans).await;
        result.map_err(|error| error.to_string())
    }
}

/// Where traces are sent to by the variables of the OpenTelemetry specification.
fn endpoint(value: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>, String> {
    let value = |name| value(name).filter(|it| !it.is_empty());
    let (name, endpoint) = if let Some(endpoint) = value(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) {
        (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, endpoint)
    } else if let Some(endpoint) = value(OTEL_EXPORTER_OTLP_ENDPOINT) {
        let endpoint = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        (OTEL_EXPORTER_OTLP_ENDPOINT, endpoint)
    } else {
        return Ok(None);
    };
    let uri: Result<http::Uri, _> = endpoint.parse();
    let is_http = |uri: &http::Uri| matches!(uri.scheme_str(), Some("http" | "https"));
    if !uri.is_ok_and(|uri| is_http(&uri)) {
        let example = "such as http://collector.monitoring:4318";
        return Err(format!(
            "{name}: {endpoint} is no URL with http or https, {example}"
        ));
    }
    for name in [
        OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
        OTEL_EXPORTER_OTLP_PROTOCOL,
    ] {
        let protocol = value(name);
        if let Some(protocol) = protocol.filter(|it| it != "http/protobuf") {
            return Err(format!(
                "{name}: {protocol} is not spoken, http/protobuf is"
            ));
        }
    }
    Ok(Some(endpoint))
}

fn data(trace: TraceId, span: Span, instrumentation_scope: InstrumentationScope) -> SpanData {
    let id = SpanId::from_bytes(span.id.to_be_bytes());
    let attributes = span
        .attributes
        .into_iter()
        .map(|(name, value)| match value {
            Value::Text(text) => KeyValue::new(name, text),
            Value::Number(number) => KeyValue::new(name, number),
        });
    SpanData {
        span_context: SpanContext::new(
            trace,
            id,
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: SpanId::from_bytes(span.parent.to_be_bytes()),
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: span.name.into(),
        start_time: system_time(span.start),
        end_time: system_time(span.end),
        attributes: attributes.collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: span.error.map_or(Status::Unset, Status::error),
        instrumentation_scope,
    }
}

/// The time of the record, as the exporter takes it. Times before 1970 do not occur.
fn system_time(time: Timestamp) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use prost::Message;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_variables_of_the_specification_name_the_collector() {
        for (variables, expected) in [
            (&[][..], Ok(None)),
            (&[("ENDPOINT", "")], Ok(None)),
            (
                &[("ENDPOINT", "http://a:4318/")],
                Ok(Some("http://a:4318/v1/traces")),
            ),
            (
                &[("ENDPOINT", "http://a/b"), ("PROTOCOL", "http/protobuf")],
                Ok(Some("http://a/b/v1/traces")),
            ),
            (
                &[("ENDPOINT", "http://a"), ("TRACES_ENDPOINT", "https://b/c")],
                Ok(Some("https://b/c")),
            ),
            (
                &[("ENDPOINT", "a:4317")],
                Err("OTEL_EXPORTER_OTLP_ENDPOINT: "),
            ),
            (
                &[("TRACES_ENDPOINT", "grpc://a")],
                Err("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "),
            ),
            (
                &[("ENDPOINT", "http://a"), ("PROTOCOL", "grpc")],
                Err("OTEL_EXPORTER_OTLP_PROTOCOL: grpc"),
            ),
        ] {
            let value = |name: &str| {
                let name = name.strip_prefix("OTEL_EXPORTER_OTLP_")?;
                let found = variables.iter().find(|(known, _)| *known == name)?;
                Some(found.1.to_owned())
            };
            match (endpoint(&value), expected) {
                (Ok(found), Ok(expected)) => {
                    assert_eq!(found.as_deref(), expected, "{variables:?}");
                }
                (Err(found), Err(expected)) => assert!(found.starts_with(expected), "{found}"),
                (found, expected) => panic!("{variables:?}: {found:?} and not {expected:?}"),
            }
        }
    }

    /// Reads one request and answers it; returns its head and body.
    async fn answer(mut stream: TcpStream, status: &str) -> (String, Vec<u8>) {
        let (mut bytes, mut rest) = (Vec::new(), usize::MAX);
        let end = |bytes: &[u8]| bytes.windows(4).position(|it| it == b"\r\n\r\n");
        while rest > 0 {
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
            let Some(end) = end(&bytes) else { continue };
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            rest = (end + 4 + length).saturating_sub(bytes.len());
        }
        let end = end(&bytes).unwrap();
        let reply = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(reply.as_bytes()).await.unwrap();
        let body = bytes.split_off(end + 4);
        (String::from_utf8_lossy(&bytes).into_owned(), body)
    }

    fn failover() -> Trace {
        let time = Timestamp::from_second(1_800_000_000).unwrap();
        let span = |name, id, parent, error: Option<&str>| Span {
            name,
            id,
            parent,
            start: time,
            end: time + Duration::from_secs(2),
            attributes: vec![("n", Value::Number(3)), ("t", Value::Text("x".to_owned()))],
            error: error.map(ToOwned::to_owned),
        };
        Trace {
            id: 7,
            spans: vec![
                span("failover", 1, 0, Some("stranded")),
                span("silence", 2, 1, None),
            ],
        }
    }

    #[tokio::test]
    async fn a_collector_gets_the_spans_with_their_parents_times_and_errors() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let exporter = Exporter::new(endpoint).unwrap();
        let collector = async { answer(listener.accept().await.unwrap().0, "200 OK").await };
        let (sent, (head, body)) = tokio::join!(exporter.send(failover()), collector);
        sent.unwrap();
        assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
        let request = ExportTraceServiceRequest::decode(&*body).unwrap();
        let resource = &request.resource_spans[0];
        let service = &resource.resource.as_ref().unwrap().attributes;
        assert!(service.iter().any(|it| it.key == "service.name"
            && format!("{:?}", it.value).contains("muster-control-plane")));
        let spans = &resource.scope_spans[0].spans;
        let found = spans.iter().map(|it| {
            let error = it.status.as_ref().map_or("", |it| &*it.message);
            let seconds = (it.end_time_unix_nano - it.start_time_unix_nano) / 1_000_000_000;
            (
                &*it.name,
                it.parent_span_id.last().copied(),
                seconds,
                error,
                it.attributes.len(),
            )
        });
        let found: Vec<_> = found.collect();
        assert_eq!(
            found,
            [
                ("failover", None, 2, "stranded", 2),
                ("silence", Some(1), 2, "", 2)
            ]
        );
        assert_eq!(spans[0].start_time_unix_nano, 1_800_000_000 * 1_000_000_000);
        assert_eq!(spans[0].trace_id[15], 7);
    }

    #[tokio::test]
    async fn a_collector_that_refuses_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let exporter = Exporter::new(endpoint).unwrap();
        let collector =
            async { answer(listener.accept().await.unwrap().0, "400 Bad Request").await };
        let (sent, _) = tokio::join!(exporter.send(failover()), collector);
        assert!(sent.is_err_and(|error| error.contains("400")));
    }
}
