//! The HTTP client of upstreams.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::time::timeout;
use tower::Service;

use super::request_body::{BodyError, RequestBody};

/// The idle time after which a connection to upstream is closed. Providers keep idle connections longer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The maximum number of idle connections to one upstream.
const MAX_IDLE: usize = 256;
/// The interval of TCP keepalives, which detect a lost upstream during a silent response.
const KEEPALIVE: Duration = Duration::from_mins(1);
/// The size of the buffer of one response, in bytes. It is also the maximum size of a head.
const MAX_BUFFER: usize = 64 * 1024;
/// The maximum number of headers of a response.
const MAX_HEADERS: usize = 256;

/// The client of all upstreams.
///
/// It uses HTTP/1.1, which preserves the case and the order of headers. Each response has a connection of its own, so an
/// agent that reads slowly delays no other one.
pub(crate) type UpstreamClient = Client<TimedConnector<HttpsConnector<HttpConnector>>, RequestBody>;

/// Creates the client. Fails if the authorities of the system cannot be read.
pub(crate) fn new(connect_timeout: Duration) -> Result<UpstreamClient, rustls::Error> {
    let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    // The connector around this one adds TLS, so this one has to accept `https` too.
    tcp.enforce_http(false);
    // Nagle's algorithm would delay the last small packet of a request.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    let connector = TimedConnector {
        inner: https,
        limit: connect_timeout,
    };
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE)
        .http1_preserve_header_case(true)
        .http1_max_headers(MAX_HEADERS)
        .http1_max_buf_size(MAX_BUFFER)
        // Only requests of which no byte was sent.
        .retry_canceled_requests(true)
        .build(connector))
}

/// A connector with a time limit for TCP and TLS together.
#[derive(Debug, Clone)]
pub(crate) struct TimedConnector<C> {
    inner: C,
    limit: Duration,
}

impl<C> Service<Uri> for TimedConnector<C>
where
    C: Service<Uri>,
    C::Error: Into<BodyError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BodyError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BodyError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        // A server can accept a connection and never continue the TLS handshake.
        let connecting = timeout(self.limit, self.inner.call(uri));
        Box::pin(async {
            match connecting.await {
                Ok(connected) => connected.map_err(Into::into),
                // `forward` recognizes this kind, and answers 504 in place of 502.
                Err(_elapsed) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        })
    }
}
