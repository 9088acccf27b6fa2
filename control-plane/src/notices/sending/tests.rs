use serde_json::json;

use super::super::event::tests::began;
use super::super::testing::Server;
use super::*;

fn file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("muster-notices-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

async fn sent(receiver: &Receiver) -> Result<(), Fault> {
    let now = Timestamp::from_second(1_000_000).unwrap();
    send(receiver, &began(), now).await
}

#[tokio::test]
async fn the_status_alone_decides_what_comes_next() {
    let server = Server::start().await;
    let receiver = server.receiver(&json!({}));
    let failed = |status: u16, wish: Option<u64>| {
        let why = format!("the receiver answered {status}");
        Err(Fault::Failed(why, wish.map(Duration::from_secs)))
    };
    for (status, header, value, expected) in [
        (200, "x", "", Ok(())),
        (202, "x", "", Ok(())),
        (302, "location", "/elsewhere", failed(302, None)),
        (410, "x", "", Err(Fault::Gone)),
        (400, "x", "", failed(400, None)),
        (500, "retry-after", "soon", failed(500, None)),
        (429, "retry-after", "90", failed(429, Some(90))),
        (
            503,
            "retry-after",
            "Mon, 12 Jan 1970 13:48:40 GMT",
            failed(503, Some(120)),
        ),
    ] {
        server.next(status, header, value);
        assert_eq!(sent(&receiver).await, expected, "{status} {value}");
        assert_eq!(server.take().len(), 1, "no redirect is followed");
    }
}

#[tokio::test]
async fn a_request_is_signed_by_the_keys_that_the_file_has_now() {
    let server = Server::start().await;
    let (old, new) = (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    );
    let path = file("key", old);
    let receiver = server.receiver(&json!({ "secretFile": path }));
    for key in [old, new] {
        std::fs::write(&path, key).unwrap();
        sent(&receiver).await.unwrap();
        let [(headers, body)] = &server.take()[..] else {
            panic!("one request")
        };
        assert_eq!(headers["webhook-id"], "uid-1-began-1");
        assert_eq!(headers["webhook-timestamp"], "1000000");
        let expected = Keys::read(key).unwrap();
        let expected = expected.sign("uid-1-began-1", 1_000_000, body);
        assert_eq!(headers["webhook-signature"], expected);
    }
    std::fs::write(&path, "hunter2").unwrap();
    let error = format!("{:?}", sent(&receiver).await.unwrap_err());
    assert!(
        error.contains("secretFile") && !error.contains("hunter2"),
        "{error}"
    );
    std::fs::remove_file(&path).unwrap();
    let error = format!("{:?}", sent(&receiver).await.unwrap_err());
    assert!(error.contains("cannot read secretFile"), "{error}");
    assert!(server.take().is_empty(), "nothing is sent unsigned");
}

#[tokio::test]
async fn an_address_in_a_file_is_used_and_reported_to_nobody() {
    let server = Server::start().await;
    let path = file("url", &format!("{}/T0/secret\n", server.address));
    let receiver = server.receiver(&json!({ "urlFile": path, "format": "slack" }));
    sent(&receiver).await.unwrap();
    assert_eq!(server.take().len(), 1);
    // No server listens on this port.
    for text in ["http://127.0.0.1:1/T0/secret", "ftp://x/secret", "secret"] {
        std::fs::write(&path, text).unwrap();
        let error = format!("{:?}", sent(&receiver).await.unwrap_err());
        assert!(!error.contains("secret"), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn authorities_that_are_none_are_refused_by_their_field() {
    let server = Server::start().await;
    let path = file("ca", "no certificate");
    let receiver = server.receiver(&json!({ "caFile": path }));
    let error = format!("{:?}", sent(&receiver).await.unwrap_err());
    assert!(error.contains("caFile") && error.contains("PEM"), "{error}");
    std::fs::remove_file(&path).unwrap();
}
