//! TLS handshakes that show whether a server answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use super::provider;

/// Makes a TLS handshake with a server and closes the connection. Nothing else is sent: no
/// credentials, no request.
///
/// The server has to prove that it has the key of its certificate, which may be signed by anybody:
/// the question is whether it answers, and not whether it is to be trusted.
///
/// # Errors
/// A predicate that says what failed.
pub async fn handshake(host: &str, port: u16, deadline: Duration) -> Result<(), String> {
    let attempt = async {
        let addresses = lookup_host((host, port)).await;
        let mut addresses = addresses.map_err(|error| format!("cannot be resolved: {error}"))?;
        let address = addresses.next().ok_or("has no address")?;
        if is_link_local(address.ip()) {
            return Err(format!("is the link-local address {}", address.ip()));
        }
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| format!("cannot be connected to: {error}"))?;
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let config = config().map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(config));
        let answer = connector.connect(name, stream).await;
        answer.map_err(|error| format!("makes no TLS handshake: {error}"))?;
        Ok(())
    };
    tokio::time::timeout(deadline, attempt)
        .await
        .unwrap_or_else(|_| Err(format!("makes no TLS handshake within {deadline:?}")))
}

/// Returns whether an address is one at which clouds serve the credentials of machines.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => {
            let mapped = address.to_ipv4_mapped();
            address.is_unicast_link_local() || mapped.is_some_and(|it| it.is_link_local())
        }
    }
}

fn config() -> Result<ClientConfig, Error> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyAuthority(provider())))
        .with_no_client_auth())
}

/// Accepts the certificate of every authority; the signatures of the handshake are verified.
#[derive(Debug)]
struct AnyAuthority(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyAuthority {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let schemes = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, schemes)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let schemes = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(5);

    fn acceptor() -> TlsAcceptor {
        let made = rcgen::generate_simple_self_signed(["somebody.example.com".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    async fn listen() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[tokio::test]
    async fn a_server_that_answers_is_there_whoever_signed_its_certificate() {
        let (listener, port) = listen().await;
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            acceptor().accept(stream).await.is_ok()
        });
        handshake("127.0.0.1", port, DEADLINE).await.unwrap();
        assert!(server.await.unwrap());
    }

    #[tokio::test]
    async fn what_accepts_connections_and_speaks_no_tls_is_not_there() {
        let (listener, port) = listen().await;
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            drop(stream);
        });
        let error = handshake("127.0.0.1", port, DEADLINE).await.unwrap_err();
        assert!(error.contains("makes no TLS handshake"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_given_up_at_the_deadline() {
        let (_listener, port) = listen().await;
        let deadline = Duration::from_millis(50);
        let error = handshake("127.0.0.1", port, deadline).await.unwrap_err();
        assert_eq!(error, "makes no TLS handshake within 50ms");
    }

    #[tokio::test]
    async fn nothing_is_sent_to_where_clouds_keep_the_credentials_of_machines() {
        for host in ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254"] {
            let error = handshake(host, 443, DEADLINE).await.unwrap_err();
            assert!(error.contains("link-local"), "{host}: {error}");
        }
    }
}
