//! Tests of TLS, mutual TLS, and certificates that change while the server runs.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_tests::Server;
use palimpsest_tests::say::{append, user};
use tonic::Code;

use crate::world::{Authority, World, list, soon, tls, watch, with};

fn files(world: &World) -> Vec<String> {
    vec![
        world.setting("tls.cert_file", "tls.crt"),
        world.setting("tls.key_file", "tls.key"),
        "tls.handshake_timeout_ms=500".to_owned(),
        "tls.max_handshakes=4".to_owned(),
    ]
}

fn serve(world: &World, more: &[String]) -> Server {
    world.serve(&[files(world), more.to_vec()].concat())
}

#[tokio::test]
async fn plaintext_calls_are_rejected_with_tls() {
    let world = World::new();
    let key = world.key("p", "read");
    let authority = Authority::new();
    let private = authority.write(world.folder.path());
    let server = serve(&world, &[]);
    let channel = tls(&server, &authority, None).await.unwrap();
    list(&channel, &key, "p").await.unwrap();
    // A certificate of another CA, and a connection without TLS.
    assert!(tls(&server, &Authority::new(), None).await.is_err());
    let plain = format!("http://{}", server.address());
    let plain = tonic::transport::Endpoint::from_shared(plain).unwrap();
    if let Ok(channel) = plain.connect().await {
        let status = list(&channel, &key, "p").await.unwrap_err();
        assert_ne!(status.code(), Code::Ok);
    }
    // Silent connections occupy all handshake slots, but only until the handshake times out.
    let mut silent: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(server.address()).unwrap())
        .collect();
    let channel = tls(&server, &authority, None).await.unwrap();
    list(&channel, &key, "p").await.unwrap();
    silent[0]
        .set_read_timeout(Some(Duration::from_mins(2)))
        .unwrap();
    assert_eq!(
        silent[0].read(&mut [0; 16]).unwrap_or(0),
        0,
        "the silent connection is still open"
    );

    let log = server.log().join("\n");
    let secret = private.lines().nth(1).unwrap();
    assert!(!log.contains(secret) && !log.contains(&key[21..]));
}

/// All slots for handshakes are free, so only the time-out ends a silent connection.
#[tokio::test]
async fn a_silent_handshake_ends_at_its_time_out() {
    let world = World::new();
    let authority = Authority::new();
    authority.write(world.folder.path());
    let server = serve(&world, &[]);
    let mut silent = TcpStream::connect(server.address()).unwrap();
    silent
        .set_read_timeout(Some(Duration::from_mins(2)))
        .unwrap();
    assert_eq!(silent.read(&mut [0; 16]).unwrap(), 0);
    assert!(!server.log().join("\n").contains("evicted"));
}

#[tokio::test]
async fn mutual_tls_requires_a_client_certificate() {
    let world = World::new();
    let key = world.key("p", "read");
    let (authority, callers) = (Authority::new(), Authority::new());
    authority.write(world.folder.path());
    std::fs::write(world.at("ca.crt"), callers.pem()).unwrap();
    let server = serve(&world, &[world.setting("tls.client_ca_file", "ca.crt")]);
    let shown = callers.sign("caller");
    let channel = tls(&server, &authority, Some(shown)).await.unwrap();
    list(&channel, &key, "p").await.unwrap();
    // A client certificate does not replace a credential.
    assert_eq!(
        list(&channel, "none", "p").await.unwrap_err().code(),
        Code::Unauthenticated
    );
    for shown in [None, Some(authority.sign("caller"))] {
        // With TLS 1.3 the client receives the rejection with its first call, not during the handshake.
        if let Ok(channel) = tls(&server, &authority, shown).await {
            let status = list(&channel, &key, "p").await.unwrap_err();
            assert_ne!(status.code(), Code::Unauthenticated);
        }
    }
}

#[tokio::test]
async fn a_new_certificate_is_used_while_an_old_stream_continues() {
    let world = World::new();
    let key = world.key("p", "read,write");
    let (old, new) = (Authority::new(), Authority::new());
    old.write(world.folder.path());
    let server = serve(&world, &[]);
    let channel = tls(&server, &old, None).await.unwrap();
    let session = "projects/p/sessions/s";
    let say = async |text: &str| {
        let mut client = ContextServiceClient::new(channel.clone());
        let request = append(session, vec![user(text)]);
        client.append_messages(with(&key, request)).await.unwrap();
    };
    say("one").await;
    let mut watched = watch(&channel, &key, session).await.unwrap();
    new.write(world.folder.path());
    let shown = async || tls(&server, &new, None).await.is_ok();
    soon("a new certificate", shown).await;
    assert!(tls(&server, &old, None).await.is_err());
    let fresh = tls(&server, &new, None).await.unwrap();
    list(&fresh, &key, "p").await.unwrap();
    // Open connections continue with the old certificate.
    say("two").await;
    let mut revision = 0;
    while revision < 2 {
        let next = tokio::time::timeout(Duration::from_mins(2), watched.message());
        let event = next.await.unwrap().unwrap().unwrap();
        revision = event.event.map_or(revision, |event| event.revision);
    }
    // The server does not load a certificate that does not match the key.
    std::fs::write(world.at("tls.crt"), old.sign("localhost").0).unwrap();
    let said = async || server.log().join("\n").contains("do not go together");
    soon("the error", said).await;
    tls(&server, &new, None).await.unwrap();
}
