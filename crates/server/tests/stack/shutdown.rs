//! Shutdown: calls in flight finish, new calls are rejected, and the store closes last.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use palimpsest_proto::context::v1;
use tokio::net::TcpStream;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::{Stack, append, append_aside, check};

#[tokio::test]
async fn shutdown_finishes_calls_in_flight_and_rejects_new_ones() {
    let stack = Stack::start().await;
    let mut client = stack.context().await;
    let slow = append_aside(&client, "slow");
    stack.state.has_begun().await;
    stack.stop.cancel();
    refuses_connections(stack.address).await;
    // Calls that arrive before the client knows of the shutdown succeed. The client reports the closing connection in
    // its own way.
    let refused = loop {
        if let Err(refused) = append(&mut client, "fine").await {
            break refused;
        }
    };
    let codes = [Code::Unavailable, Code::Cancelled];
    assert!(codes.contains(&refused.code()), "{refused:?}");
    assert!(!stack.state.closed.load(Ordering::SeqCst));
    assert!(!stack.running.is_finished());

    stack.state.released.add_permits(1);
    slow.await.unwrap().unwrap();
    stack.running.await.unwrap().unwrap();
    assert!(stack.state.closed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn shutdown_waits_for_a_change_without_a_caller() {
    let mut stack = Stack::start().await;
    let client = stack.context().await;
    let change = append_aside(&client, "change");
    stack.state.has_begun().await;
    change.abort();
    drop(client);
    stack.stop.cancel();
    refuses_connections(stack.address).await;
    // A shutdown that does not wait ends within this time. On a slow machine, this step only proves less.
    let early = tokio::time::timeout(Duration::from_millis(100), &mut stack.running).await;
    assert!(early.is_err(), "{early:?}");
    assert!(!stack.state.closed.load(Ordering::SeqCst));
    stack.state.released.add_permits(1);
    stack.running.await.unwrap().unwrap();
    // If the store closed before the change ended, the change would be lost, although its caller has gone.
    assert!(stack.state.closed_after_change.load(Ordering::SeqCst));
}

/// Waits until the shutdown has closed the listener.
async fn refuses_connections(address: SocketAddr) {
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn watches_do_not_delay_shutdown() {
    let stack = Stack::start().await;
    let mut sessions = stack.sessions().await;
    let watch = sessions.watch_session(v1::WatchSessionRequest::default());
    let mut watch = watch.await.unwrap().into_inner();
    watch.message().await.unwrap();
    let mut health = HealthClient::new(stack.channel().await);
    let request = HealthCheckRequest::default();
    let mut states = health.watch(request).await.unwrap().into_inner();
    // The first state can be older than the first successful check of the store.
    while states.message().await.unwrap().unwrap().status() != ServingStatus::Serving {}

    stack.stop.cancel();
    let last = states.message().await.unwrap().unwrap();
    assert_eq!(last.status(), ServingStatus::NotServing);
    check(
        &states.message().await.unwrap_err(),
        Code::Unavailable,
        "NOT_SERVING",
    );
    check(
        &watch.message().await.unwrap_err(),
        Code::Unavailable,
        "NOT_SERVING",
    );
    stack.running.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_drain_ends_at_its_deadline() {
    let stack = Stack::with(|config| config.shutdown.drain_ms = 30).await;
    let client = stack.context().await;
    let _slow = append_aside(&client, "slow");
    stack.state.has_begun().await;
    stack.stop.cancel();
    // The slow call never gets its permit, so only the deadline can end the drain.
    stack.running.await.unwrap().unwrap();
    assert!(stack.state.closed.load(Ordering::SeqCst));
}
