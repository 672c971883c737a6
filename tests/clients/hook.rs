//! A hook service that vetoes every compaction.

use palimpsest_proto::context::v1::hook_service_server::{HookService, HookServiceServer};
use palimpsest_proto::context::v1::{
    PostCompactRequest, PostCompactResponse, PreCompactRequest, PreCompactResponse,
    SessionStartRequest, SessionStartResponse,
};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

struct Veto;

#[tonic::async_trait]
impl HookService for Veto {
    async fn pre_compact(
        &self,
        _: Request<PreCompactRequest>,
    ) -> Result<Response<PreCompactResponse>, Status> {
        Ok(Response::new(PreCompactResponse {
            veto_reason: Some("a release is running".to_owned()),
            ..PreCompactResponse::default()
        }))
    }

    async fn post_compact(
        &self,
        _: Request<PostCompactRequest>,
    ) -> Result<Response<PostCompactResponse>, Status> {
        Ok(Response::new(PostCompactResponse::default()))
    }

    async fn session_start(
        &self,
        _: Request<SessionStartRequest>,
    ) -> Result<Response<SessionStartResponse>, Status> {
        Ok(Response::new(SessionStartResponse::default()))
    }
}

/// Starts the service and returns its address. The service ends with the test.
pub(crate) fn start() -> String {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", incoming.local_addr().unwrap());
    let service = HookServiceServer::new(Veto);
    tokio::spawn(
        Server::builder()
            .add_service(service)
            .serve_with_incoming(incoming),
    );
    url
}
