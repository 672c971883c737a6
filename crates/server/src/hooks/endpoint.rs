//! One hook service: a lazy connection and the limits of its calls.

use std::fmt;
use std::time::Duration;

use http::HeaderMap;
use palimpsest_proto::context::v1::hook_service_client::HookServiceClient;
use palimpsest_settings::EndpointConfig;
use palimpsest_store::error_chain;
use palimpsest_summarize::SecretSource;
use secrecy::ExposeSecret as _;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, ClientTlsConfig};
use tonic::{Code, Request, Status};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval of keepalive pings while a call is in flight.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// The maximum size of a response, far above the limits of the contract, in bytes.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The client of a hook service.
pub struct HookEndpoint {
    url: String,
    token: Option<SecretSource>,
    slots: Semaphore,
    channel: OnceCell<Channel>,
}

/// A client with the permit for one call.
#[derive(Debug)]
pub struct ReadyClient<'a> {
    /// The gRPC client.
    pub client: HookServiceClient<Channel>,
    _slot: SemaphorePermit<'a>,
}

impl HookEndpoint {
    pub(super) fn new(config: &EndpointConfig) -> Self {
        let of_env = config.token_env.as_ref();
        let of_env = of_env.map(|name| SecretSource::Env(name.as_str().to_owned()));
        let of_file = config.token_file.clone().map(SecretSource::File);
        let url = config.url.as_ref().map_or("", |url| url.as_str());
        Self {
            url: url.to_owned(),
            token: of_env.or(of_file),
            slots: Semaphore::new(config.max_concurrent),
            channel: OnceCell::new(),
        }
    }

    /// Waits for a permit and connects if necessary. An error is text for the operator.
    pub async fn ready(&self) -> Result<ReadyClient<'_>, String> {
        let slot = self
            .slots
            .acquire()
            .await
            .map_err(|error| error.to_string())?;
        // All calls share one HTTP/2 connection. It is created on first use, so an unused endpoint costs nothing.
        let channel = self.channel.get_or_try_init(|| async { self.connect() });
        let client = HookServiceClient::new(channel.await?.clone());
        Ok(ReadyClient {
            client: client.max_decoding_message_size(MAX_ANSWER_BYTES),
            _slot: slot,
        })
    }

    fn connect(&self) -> Result<Channel, String> {
        let wrong = |error: tonic::transport::Error| {
            format!(
                "the endpoint's address cannot be used: {}",
                error_chain(&error)
            )
        };
        let endpoint = Channel::from_shared(self.url.clone())
            .map_err(|error| format!("the endpoint's address cannot be used: {error}"))?;
        let mut endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            // With Nagle's algorithm, larger messages would wait 40 ms for a delayed acknowledgement.
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL);
        let agent = concat!("palimpsest/", env!("CARGO_PKG_VERSION"));
        endpoint = endpoint.user_agent(agent).map_err(wrong)?;
        // The URL scheme decides about TLS, and the authorities of the system are trusted.
        if self.url.starts_with("https:") {
            let tls = ClientTlsConfig::new().with_native_roots();
            endpoint = endpoint.tls_config(tls).map_err(wrong)?;
        }
        // A lazy connection reconnects by itself, so a restart of the hook service needs no handling here.
        Ok(endpoint.connect_lazy())
    }

    /// Builds a request with token, trace context and deadline. The token is read again for each call.
    pub async fn request<T>(
        &self,
        message: T,
        trace: HeaderMap,
        timeout: Duration,
    ) -> Result<Request<T>, String> {
        let mut request = Request::new(message);
        request.set_timeout(timeout);
        let metadata = request.metadata_mut();
        if let Some(source) = &self.token {
            let token = source.read().await.map_err(|error| error.to_string())?;
            let bearer = format!("Bearer {}", token.expose_secret());
            let value = MetadataValue::<Ascii>::try_from(bearer);
            let mut value = value.map_err(|_| "the token is no header's value".to_owned())?;
            // A sensitive value is left out of debug output.
            value.set_sensitive(true);
            metadata.insert("authorization", value);
        }
        metadata.as_mut().extend(trace);
        Ok(request)
    }
}

impl fmt::Debug for HookEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Returns the code and text of a failed call.
pub(super) fn failed(status: &Status) -> String {
    let text = match std::error::Error::source(status) {
        // For connection failures the status text is generic, and only the source names the cause.
        Some(source) if status.code() == Code::Unavailable => error_chain(source),
        _ => status.message().to_owned(),
    };
    format!("{:?}: {text}", status.code())
}
