//! A hook service like a user's: it gives scripted answers and records its requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use palimpsest_proto::context::v1::hook_service_server::{HookService, HookServiceServer};
use palimpsest_proto::context::v1::{
    PostCompactRequest, PostCompactResponse, PreCompactRequest, PreCompactResponse,
    SessionStartRequest, SessionStartResponse,
};
use tokio::sync::Notify;
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

/// The scripted answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    pub(crate) pre: PreCompactResponse,
    pub(crate) post: PostCompactResponse,
    pub(crate) start: SessionStartResponse,
    /// The delay before every answer.
    pub(crate) delay: Duration,
    /// A gate that holds every answer until it is notified.
    pub(crate) gate: Option<Arc<Notify>>,
    /// An error in place of every answer.
    pub(crate) status: Option<Status>,
}

/// The recorded requests.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) pre: Vec<PreCompactRequest>,
    pub(crate) post: Vec<PostCompactRequest>,
    pub(crate) start: Vec<SessionStartRequest>,
    pub(crate) metadata: Vec<MetadataMap>,
}

#[derive(Debug, Default)]
struct State {
    answers: Mutex<Answers>,
    asked: Mutex<Asked>,
}

/// A running hook service. It ends with the runtime of its test.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    state: Arc<State>,
    pub(crate) url: String,
}

impl Hook {
    pub(crate) fn start() -> Self {
        Self::on(TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap())
    }

    /// Starts the service on a listener.
    pub(crate) fn on(incoming: impl Into<TcpIncoming>) -> Self {
        let incoming = incoming.into();
        let url = format!("http://{}", incoming.local_addr().unwrap());
        let state = Arc::new(State::default());
        let service = HookServiceServer::new(Served(Arc::clone(&state)))
            .max_encoding_message_size(usize::MAX);
        let served = Server::builder().add_service(service);
        tokio::spawn(served.serve_with_incoming(incoming));
        Self { state, url }
    }

    /// Starts the service with TLS. Its certificate is signed by the tests' CA, whose key is in the repository. Nothing
    /// except tests may trust this CA.
    pub(crate) fn start_with_tls() -> Self {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("https://{}", incoming.local_addr().unwrap());
        let state = Arc::new(State::default());
        let identity =
            Identity::from_pem(include_str!("tls/cert.pem"), include_str!("tls/key.pem"));
        let mut server = Server::builder()
            .tls_config(ServerTlsConfig::new().identity(identity))
            .unwrap();
        let service = HookServiceServer::new(Served(Arc::clone(&state)));
        tokio::spawn(server.add_service(service).serve_with_incoming(incoming));
        Self { state, url }
    }

    /// Sets the answers from now on.
    pub(crate) fn answers(&self, answers: Answers) {
        *self.state.answers.lock().unwrap() = answers;
    }

    /// Returns the requests since the last call.
    pub(crate) fn asked(&self) -> Asked {
        std::mem::take(&mut self.state.asked.lock().unwrap())
    }

    /// Returns the number of calls of each hook.
    pub(crate) fn count(&self) -> (usize, usize, usize) {
        let asked = self.state.asked.lock().unwrap();
        (asked.pre.len(), asked.post.len(), asked.start.len())
    }
}

struct Served(Arc<State>);

impl Served {
    async fn answers(&self) -> Result<Answers, Status> {
        // The guard is dropped before the wait. Otherwise a held answer would block a change of the answers.
        let answers = self.0.answers.lock().unwrap().clone();
        if let Some(gate) = &answers.gate {
            gate.notified().await;
        }
        tokio::time::sleep(answers.delay).await;
        answers.status.clone().map_or(Ok(answers), Err)
    }

    fn note<T>(&self, request: Request<T>, note: impl FnOnce(&mut Asked, T)) {
        let mut asked = self.0.asked.lock().unwrap();
        asked.metadata.push(request.metadata().clone());
        note(&mut asked, request.into_inner());
    }
}

#[tonic::async_trait]
impl HookService for Served {
    async fn pre_compact(
        &self,
        request: Request<PreCompactRequest>,
    ) -> Result<Response<PreCompactResponse>, Status> {
        // The request is recorded before its answer, so that a test can act while the gate holds the answer.
        self.note(request, |asked, request| asked.pre.push(request));
        Ok(Response::new(self.answers().await?.pre))
    }

    async fn post_compact(
        &self,
        request: Request<PostCompactRequest>,
    ) -> Result<Response<PostCompactResponse>, Status> {
        self.note(request, |asked, request| asked.post.push(request));
        Ok(Response::new(self.answers().await?.post))
    }

    async fn session_start(
        &self,
        request: Request<SessionStartRequest>,
    ) -> Result<Response<SessionStartResponse>, Status> {
        self.note(request, |asked, request| asked.start.push(request));
        Ok(Response::new(self.answers().await?.start))
    }
}
