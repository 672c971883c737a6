//! The HTTP server and the handle that tests keep of it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State as Extension};
use axum::http::{Method, Response};
use axum::middleware::{Next, from_fn};
use axum::routing::{any, get, post};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::billing::Bill;
use crate::clock::Clock;
use crate::control;
use crate::credential::Credential;
use crate::exchange::{Route, handle};
use crate::plan::Plan;
use crate::refusal::{Api, Refusal, respond};
use crate::resources;
use crate::script::Script;
use crate::state::{Recorded, State};
use crate::wire::{Connection, Port};

/// The maximum size of a script. Long ones have a text and a call for each of hundreds of turns.
const MAX_CONTROL_BYTES: usize = 16 * 1024 * 1024;

/// The parts that all requests share.
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) clock: Clock,
    /// The number of answers whose client disconnected before the end.
    pub(crate) abandoned: Arc<AtomicU64>,
    /// False while the port refuses connections.
    open: watch::Sender<bool>,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses new connections for a time.
    pub(crate) fn refuse(self: &Arc<Self>, time: Duration) {
        let shared = Arc::clone(self);
        self.open.send_replace(false);
        tokio::spawn(async move {
            shared.clock.sleep(time).await;
            shared.open.send_replace(true);
        });
    }
}

/// A running provider. It stops on drop.
pub struct FakeProvider {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: Option<JoinHandle<std::io::Result<()>>>,
}

impl FakeProvider {
    /// Starts a provider on a free loopback port.
    pub async fn start() -> anyhow::Result<Self> {
        Self::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// Starts a provider at an address.
    pub async fn listen(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (open, is_open) = watch::channel(true);
        let port = Port::new(listener, is_open)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            clock: Clock::default(),
            abandoned: Arc::default(),
            open,
        });
        let app = routes(&shared).into_make_service_with_connect_info::<Connection>();
        let server = tokio::spawn(async move { axum::serve(port, app).await });
        Ok(Self {
            address,
            shared,
            server: Some(server),
        })
    }

    /// Returns the base URL. Anthropic's clients use it directly, OpenAI's with the suffix `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Scripts the next requests with this model's name, in order. Later requests get the behavior that the name
    /// defines.
    pub fn script<P: Into<Plan>>(&self, model: &str, plans: impl IntoIterator<Item = P>) {
        let plans = plans.into_iter().map(Into::into);
        self.shared.state().plans(model, plans);
    }

    /// Adds a script for the requests that match it, as `POST /_control/script` does.
    pub fn add_script(&self, script: Script) -> Result<(), String> {
        self.shared.state().add_script(script, 0)
    }

    /// Advances the provider's clock, as `POST /_control/clock` does.
    pub fn advance(&self, by: Duration) {
        self.shared.clock.advance(by);
    }

    /// Returns the bill of an API key.
    pub fn bill(&self, key: &str) -> Bill {
        self.shared.state().billing.bill(&Credential::of_key(key))
    }

    /// Returns the latest requests, oldest first.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.state().recorded()
    }

    /// Returns the latest requests for models, files and batches, oldest first.
    pub fn resource_requests(&self) -> Vec<Recorded> {
        self.shared.state().recorded_resources()
    }

    /// Returns the number of answers whose client disconnected before the end.
    pub fn abandoned(&self) -> u64 {
        self.shared.abandoned.load(Ordering::Relaxed)
    }

    /// Serves until the listener fails.
    pub async fn serve_until_it_fails(mut self) -> anyhow::Result<()> {
        if let Some(server) = self.server.take() {
            server.await??;
        }
        Ok(())
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}

fn routes(shared: &Arc<Shared>) -> Router {
    let route = |route: Route| {
        post(
            async move |Extension(shared): Extension<Arc<Shared>>,
                        ConnectInfo(connection): ConnectInfo<Connection>,
                        request: Request| {
                handle(&shared, route, &connection, request).await
            },
        )
    };
    let control = Router::new()
        .route("/_control/requests", get(control::requests))
        .route("/_control/bill", get(control::bill))
        .route("/_control/script", post(control::script))
        .route(
            "/_control/clock",
            get(control::clock).post(control::advance),
        )
        .route("/_control/refuse", post(control::refuse))
        .layer(DefaultBodyLimit::max(MAX_CONTROL_BYTES));
    let resource = any(
        async move |Extension(shared): Extension<Arc<Shared>>,
                    ConnectInfo(connection): ConnectInfo<Connection>,
                    request: Request| {
            resources::handle(&shared, &connection, request).await
        },
    );
    let resources = ["models", "files", "batches", "messages/batches"];
    let resources = resources.iter().fold(Router::new(), |router, path| {
        router
            .route(&format!("/v1/{path}"), resource.clone())
            .route(&format!("/v1/{path}/{{*rest}}"), resource.clone())
    });
    Router::new()
        .merge(control)
        .merge(resources)
        .route("/v1/messages", route(Route::Messages))
        .route("/v1/messages/count_tokens", route(Route::CountTokens))
        .route("/v1/chat/completions", route(Route::Chat))
        .route("/v1/responses", route(Route::Responses).get(no_websocket))
        .route("/v1/responses/compact", route(Route::Compact))
        .fallback(any(nothing_here))
        .layer(from_fn(begin_next_request))
        .with_state(Arc::clone(shared))
}

/// Discards the recorded head of each request, also of those that are not recorded.
async fn begin_next_request(
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let response = next.run(request).await;
    connection.0.next_request();
    response
}

/// Rejects a WebSocket, so that clients continue with HTTP.
async fn no_websocket() -> Response<Body> {
    Refusal::new(426, "invalid_request_error", "Upgrade Required").respond(Api::Responses, "none")
}

async fn nothing_here(request: Request) -> Response<Body> {
    let path = request.uri().path();
    let api = if path.contains("chat") || path.contains("responses") {
        Api::Chat
    } else {
        Api::Messages
    };
    if request.method() == Method::HEAD {
        // Agents check the connection with `HEAD`.
        return respond(200, "text/plain", Body::empty(), api, "none");
    }
    Refusal::new(404, "not_found_error", "Not found").respond(api, "none")
}
